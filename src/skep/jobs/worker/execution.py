"""Where a handler runs: on the worker's event loop, in a thread, or in a process of its own.

A process cannot be handed a function that a decorator replaced, so it is told where the job is
declared and finds the handler there. It gets the data of the context, and nothing that is alive.
"""

import asyncio
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextvars import copy_context
from importlib import import_module
from typing import Any, Final, cast

from skep.jobs.declare.context import BlockerResult, Ctx, Detached, JobFacts, NoTransactions
from skep.jobs.declare.declaration import Job
from skep.model.errors import Defect


class Executors:
    """Threads and processes, made when the first handler needs them."""

    def __init__(self, *, threads: int, processes: int) -> None:
        self._threads: Final = threads
        self._processes: Final = processes
        self._thread_pool: ThreadPoolExecutor | None = None
        self._process_pool: ProcessPoolExecutor | None = None

    async def call(self, job: Job[Any, Any], context: Ctx[Any, Any]) -> object:
        """Run the handler of a job and return what it returned."""
        handler = job.handler
        if handler is None:
            raise Defect(f"{job!r} has no handler here")
        loop = asyncio.get_running_loop()
        if job.executor == "thread":
            # In the attempt's own context: its trace, and whatever else middleware has put there.
            around = copy_context()
            work = loop.run_in_executor(self._thread(), lambda: around.run(handler, context))
            return cast("object", await work)
        if job.executor == "process":
            place = (handler.__module__, handler.__qualname__)
            data = (context.facts, context.input, context.blocker_results())
            return await loop.run_in_executor(self._process(), call_in_process, *place, *data)
        return cast("object", await handler(context))

    def close(self) -> None:
        """End them; what still runs in a process is ended, in a thread it is left to end."""
        if self._thread_pool is not None:
            self._thread_pool.shutdown(wait=False, cancel_futures=True)
        if self._process_pool is not None:
            self._process_pool.shutdown(wait=False, cancel_futures=True)

    def _thread(self) -> ThreadPoolExecutor:
        if self._thread_pool is None:
            self._thread_pool = ThreadPoolExecutor(self._threads, "skep-job")
        return self._thread_pool

    def _process(self) -> ProcessPoolExecutor:
        if self._process_pool is None:
            # A fork would copy locks that other threads of this process hold.
            context = multiprocessing.get_context("spawn")
            self._process_pool = ProcessPoolExecutor(self._processes, context)
        return self._process_pool


def call_in_process(
    module: str, qualname: str, facts: JobFacts, value: object, blockers: list[BlockerResult]
) -> object:
    """Run a handler in this process."""
    job: Any = getattr(import_module(module), qualname, None)
    if not isinstance(job, Job):
        raise Defect(f"{module}.{qualname} is not a job that a process can import")
    handler = cast("Job[Any, Any]", job).handler
    assert handler is not None
    return handler(Ctx[Any, Any](facts, value, blockers, NoTransactions(), Detached()))
