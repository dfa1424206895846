"""Run handlers on the event loop, in threads or in processes.

A handler runs at a place that is ready for it: the time that a place takes to get ready is not the
attempt's. Nothing stops a thread: one whose attempt ended without it (timeout, cancellation, lost
job) is abandoned, and keeps its place until its handler returns.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeAlias

from skep.jobs.declare.context import Ctx
from skep.jobs.declare.declaration import Job
from skep.jobs.worker.processes import Processes
from skep.model.errors import Defect

_log = logging.getLogger(__name__)

Call: TypeAlias = Callable[[Ctx[Any, Any]], Awaitable[object]]


class Executors:
    """The places of one worker; threads and processes are made when first needed.

    `on_abandoned` is told whenever the number of abandoned threads changes.
    """

    def __init__(
        self, *, threads: int, processes: int, on_abandoned: Callable[[int], None]
    ) -> None:
        self._sizes: Final = (threads, processes)
        self._threads: Final = ThreadPoolExecutor(threads, "skep-job")
        self._processes: Final = Processes(processes)
        self._abandoned = 0
        self._on_abandoned: Final = on_abandoned

    @property
    def places(self) -> tuple[int, int]:
        """How many attempts can run at once now, in threads and in processes."""
        threads, processes = self._sizes
        return threads - self._abandoned, processes

    @asynccontextmanager
    async def place(self, job: Job[Any, Any]) -> AsyncGenerator[Call]:
        """Lend a place, as a function that runs the handler with a context."""
        handler = job.handler
        if handler is None:
            raise Defect(f"{job!r} has no handler here")
        if job.executor == "process":
            async with self._processes.lend(handler) as call:
                yield call
        elif job.executor == "thread":
            yield partial(self._call_in_thread, handler)
        else:
            yield handler

    def close(self) -> None:
        """End them: handlers in processes are ended, those in threads are left to end."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._processes.close()

    async def _call_in_thread(
        self, handler: Callable[..., object], context: Ctx[Any, Any]
    ) -> object:
        # In the attempt's own context, which has its trace and the variables of middleware.
        work = self._threads.submit(copy_context().run, handler, context)
        try:
            return await asyncio.wrap_future(work)
        except asyncio.CancelledError:
            if not work.done():
                facts = context.facts
                _log.warning(
                    "Job %s (%s) ended, but its thread is still running and keeps its slot",
                    facts.job_id,
                    facts.name,
                )
                self._abandon(work)
            raise

    def _abandon(self, work: Future[object]) -> None:
        loop = asyncio.get_running_loop()

        def on_end(_: object) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._count, -1)

        self._count(1)
        work.add_done_callback(on_end)

    def _count(self, change: int) -> None:
        self._abandoned += change
        self._on_abandoned(self._abandoned)
