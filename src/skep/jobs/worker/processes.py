"""Processes that run handlers, one at a time each.

A process cannot be handed a function that a decorator replaced, so it is told where the job is
declared and finds the handler there. It gets the data of the context, and no live objects.

A process that ends, killed for its memory perhaps, fails the one attempt that it ran; the next
attempt gets a new process. One whose attempt ended without it (timeout, cancellation) is killed,
because nothing else stops a handler. A process ends at once with a worker that is killed. It is
lent only when it has imported the handler, so that an attempt does not pay for that with its time.
"""

import asyncio
import atexit
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final, TypeAlias, cast

from skep.jobs.declare.context import BlockerResult, Ctx, JobFacts
from skep.jobs.declare.declaration import Job
from skep.jobs.errors import ProcessEnded
from skep.model.errors import Defect

LOOK_S: Final = 1.0
"""How often it is checked that a process lives: one that it made may keep the pipe open."""
JOIN_S: Final = 5.0
_pickle: Final[Any] = ForkingPickler
"""That of `Connection.send` and `recv`."""

Work: TypeAlias = tuple[JobFacts, object, list[BlockerResult]]


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a handler returned, or what it raised, with the stack as text."""

    result: object = None
    error: Exception | None = None
    stack: str = ""


class _Stack(Exception):
    """Where in its process an exception came from."""


class Child:
    """A process, and our end of the pipe to it."""

    def __init__(self) -> None:
        # A fork would copy locks that other threads of this process hold.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process: Final = context.Process(target=serve, args=(theirs,), name="skep-job")
        self._process.start()
        theirs.close()
        self.is_idle = True
        """It can be asked: it lives, and has answered the last question."""

    def ask(self, module: str, qualname: str, work: Work | None) -> object:
        """Let it run a handler, or only find it; blocks.

        Raises:
            ProcessEnded: it ended before it answered.
            Exception: what the handler raised.
        """
        answer = self._exchange((module, qualname, work))
        if answer is None:
            raise ProcessEnded(f"the process of the handler ended: {self._end()}")
        self.is_idle = True
        if answer.error is not None:
            raise answer.error from _Stack(answer.stack)
        return answer.result

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.is_alive()

    def kill(self) -> None:
        """End it at once."""
        self.is_idle = False
        self._process.kill()

    def join(self) -> None:
        """Wait for its end, for a moment."""
        self._process.join(JOIN_S)

    def _exchange(self, question: object) -> _Answer | None:
        """Return the answer, None if it ended without one."""
        with suppress(EOFError, OSError):
            self._pipe.send(question)
            while not self._pipe.poll(LOOK_S):
                if not self.is_alive:
                    return None
            return cast("_Answer", self._pipe.recv())
        return None

    def _end(self) -> str:
        self.join()
        code = self._process.exitcode
        if code is None or code >= 0:
            return f"exit code {code}"
        is_killed = code == -signal.SIGKILL
        return f"signal {-code}{' (it may have run out of memory)' if is_killed else ''}"


class Processes:
    """Lends processes, up to a number of them, made when they are needed."""

    def __init__(self, size: int) -> None:
        self._room: Final = asyncio.Semaphore(size)
        # One that was killed may hold its thread for a moment.
        self._threads: Final = ThreadPoolExecutor(2 * size, "skep-job-process")
        self._children: Final = set[Child]()
        self._idle: Final[list[Child]] = []
        self._is_closed_at_exit = False

    @asynccontextmanager
    async def lend(
        self, handler: Callable[..., Any]
    ) -> AsyncGenerator[Callable[[Ctx[Any, Any]], Awaitable[object]]]:
        """Lend a process that has imported the handler, as a function of the context.

        Raises:
            Defect: the process cannot find the handler.
            ProcessEnded: it ended before it was ready.
        """
        place = (handler.__module__, handler.__qualname__)
        async with self._room:
            child = self._take()

            async def call(context: Ctx[Any, Any]) -> object:
                work = (context.facts, context.input, context.blocker_results())
                return await self._ask(child, *place, work)

            try:
                await self._ask(child, *place, None)
                yield call
            finally:
                if child.is_idle:
                    self._idle.append(child)
                else:
                    child.kill()
                    self._children.discard(child)

    async def _ask(self, child: Child, *question: Any) -> object:
        child.is_idle = False  # here: the thread may begin after this attempt was cancelled
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, child.ask, *question)

    def close(self) -> None:
        """End them all."""
        for child in self._children:
            child.kill()
        for child in self._children:
            child.join()
        self._children.clear()
        self._idle.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)
        atexit.unregister(self.close)

    def _take(self) -> Child:
        """Return an idle one that lives, or a new one."""
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
            self._children.discard(child)
        if not self._is_closed_at_exit:
            atexit.register(self.close)  # or the interpreter would wait for them
            self._is_closed_at_exit = True
        child = Child()
        self._children.add(child)
        return child


def serve(pipe: Connection) -> None:
    """Answer questions until the worker is gone; what a process does."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave_to_worker)
    threading.Thread(target=_end_with_worker, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            pipe.send_bytes(_answer(pipe.recv_bytes()))


def _end_with_worker() -> None:
    """End with a worker that was killed: another one runs the job again."""
    worker = multiprocessing.parent_process()
    if worker is not None:
        worker.join()
        os._exit(1)


def _leave_to_worker(_number: int, _frame: object) -> None:
    """Ignore a signal: the worker gives a grace.

    Terminals and service managers send signals to all processes of a worker. Programs that a
    handler starts do not inherit a function, as they would inherit SIG_IGN.
    """


def _answer(question: bytes) -> "bytes | memoryview":
    caught = _Caught()
    with caught:
        module, qualname, work = _pickle.loads(question)
        handler = _find(module, qualname)
        result = None if work is None else handler(Ctx[Any, Any](*work))
        return _pickle.dumps(_Answer(result))
    assert caught.error is not None
    stack = "".join(traceback.format_exception(caught.error))
    if isinstance(caught.error, Exception):
        with suppress(Exception):  # if it cannot be made again here, neither can it there
            answer = _pickle.dumps(_Answer(error=caught.error, stack=stack))
            _pickle.loads(answer)
            return answer
    plain = RuntimeError(f"{type(caught.error).__name__}: {caught.error}")
    return _pickle.dumps(_Answer(error=plain, stack=stack))


class _Caught:
    """Ends a block with any exception: the end of a handler is not that of its process."""

    error: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        self.error = error
        return True


def _find(module: str, qualname: str) -> Callable[..., Any]:
    job: Any = getattr(import_module(module), qualname, None)
    if not isinstance(job, Job):
        raise Defect(f"{module}.{qualname} is not a job that a process can import")
    handler = cast("Job[Any, Any]", job).handler
    assert handler is not None
    return handler
