"""Write what became of jobs and how far they got, many in one call.

One call of settlements is in flight at a time; later settlements leave with the next. A chain that
another transaction holds is tried again by itself, so that it delays no other. The last progress
report of each handler is written once a second.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from uuid import UUID

from skep.db.access.errors import NotExecuted, OutcomeUnknown
from skep.db.access.slots import Caller
from skep.jobs import store
from skep.jobs.signals import Announcements, Signals
from skep.jobs.store import Claimed, Settled, Settlement, settle_arguments, settled
from skep.model.errors import SkepError, Unavailable

_log = logging.getLogger(__name__)

BATCH_MAX: Final = 200
BUSY_PAUSE_S: Final = 0.05
RETRY_PAUSE_S: Final = 0.2
RETRY_PAUSE_S_MAX: Final = 5.0
REPORT_EVERY_S: Final = 1.0


_Batch: TypeAlias = list[tuple[Settlement, "asyncio.Future[Settled]"]]


@dataclass(slots=True, eq=False)
class Settler:
    """Gathers settlements of one worker."""

    caller: Caller
    announcements: Announcements
    worker_id: Callable[[], UUID]
    waiting: _Batch = field(default_factory=_Batch)
    writing: asyncio.Task[None] | None = None

    async def settle(self, settlement: Settlement) -> Settled:
        """Write it, and return what became of it; tried again while the database is unavailable.

        A call whose outcome is unknown is repeated: if the first did happen, the second finds the
        claim gone and says `lost`, which then means done.

        Raises:
            SkepError: the database refuses the values.
        """
        pause_s = RETRY_PAUSE_S
        while True:
            try:
                answer = await self._submit(settlement)
            except (NotExecuted, OutcomeUnknown, Unavailable):
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, RETRY_PAUSE_S_MAX)
                continue
            if answer.outcome != "busy":
                return answer
            await asyncio.sleep(BUSY_PAUSE_S)

    async def _submit(self, settlement: Settlement) -> Settled:
        future: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self.waiting.append((settlement, future))
        if self.writing is None:
            self.writing = asyncio.get_running_loop().create_task(self._write())
        return await future

    async def _write(self) -> None:
        try:
            while self.waiting:
                batch, self.waiting = self.waiting[:BATCH_MAX], self.waiting[BATCH_MAX:]
                await self._write_batch(batch)
        finally:
            self.writing = None

    async def _write_batch(self, batch: _Batch) -> None:
        settlements = [settlement for settlement, _ in batch]
        try:
            rows = await self.caller.call(
                store.SETTLE_CALL, *settle_arguments(self.worker_id(), settlements, wait=False)
            )
        except Unavailable as error:
            _tell(batch, error)
            return
        except SkepError as error:
            # One settlement is at fault: halving the batch isolates it.
            if len(batch) == 1:
                _tell(batch, error)
                return
            middle = len(batch) // 2
            await self._write_batch(batch[:middle])
            await self._write_batch(batch[middle:])
            return
        answers = settled(rows)
        self.announcements.add(Signals.of_settled(settlements, answers))
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)


def _tell(batch: _Batch, error: SkepError) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)


class Progress:
    """Progress reports of the handlers of one worker."""

    def __init__(self, caller: Caller, worker_id: Callable[[], UUID]) -> None:
        self._caller: Final = caller
        self._worker_id: Final = worker_id
        self._lock: Final = threading.Lock()
        """Handlers in threads report too."""
        self._waiting: dict[UUID, tuple[int, float | None, str | None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writing: asyncio.Task[None] | None = None
        self._stopping: Final = asyncio.Event()

    def start(self) -> None:
        """Bind to the running event loop."""
        self._loop = asyncio.get_running_loop()

    def note(self, claimed: Claimed, share: float | None, note: str | None) -> None:
        """Take a report about a job, from any thread."""
        assert self._loop is not None
        with self._lock:
            self._waiting[claimed.job_id] = (claimed.attempt, share, note)
        self._loop.call_soon_threadsafe(self._begin)

    async def stop(self) -> None:
        """Write the last reports."""
        self._stopping.set()
        if self._writing is not None:
            await self._writing
        await self._write()

    def _begin(self) -> None:
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_until_empty())

    async def _write_until_empty(self) -> None:
        try:
            while self._waiting:
                await self._write()
                with suppress(TimeoutError):
                    async with asyncio.timeout(REPORT_EVERY_S):
                        await self._stopping.wait()
        finally:
            self._writing = None

    async def _write(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        if not waiting:
            return
        columns = map(list, zip(*waiting.values(), strict=True))
        try:
            await self._caller.call(store.REPORT_CALL, self._worker_id(), list(waiting), *columns)
        except SkepError as error:
            _log.debug("could not write the progress of jobs: %s", error)
