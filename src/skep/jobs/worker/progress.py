"""Keep how far handlers got: the newest word of each, written together once a second."""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from skep.db.access.slots import Caller
from skep.jobs.store import REPORT_CALL, Claimed
from skep.model.errors import SkepError

_log = logging.getLogger(__name__)

GATHER_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Report:
    attempt: int
    share: float | None
    note: str | None


class Progress:
    """What the handlers of one worker say."""

    def __init__(
        self, caller: Caller, worker_id: Callable[[], UUID], *, gather_s: float = GATHER_S
    ) -> None:
        self._caller: Final = caller
        self._worker_id: Final = worker_id
        self._gather_s: Final = gather_s
        self._lock: Final = threading.Lock()
        """Handlers in threads report too."""
        self._waiting: dict[UUID, _Report] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writing: asyncio.Task[None] | None = None
        self._stopping: Final = asyncio.Event()

    def start(self) -> None:
        """Belong to the running event loop."""
        self._loop = asyncio.get_running_loop()

    def note(self, claimed: Claimed, share: float | None, note: str | None) -> None:
        """Hear how far a job got; from any thread."""
        assert self._loop is not None
        with self._lock:
            self._waiting[claimed.job_id] = _Report(claimed.attempt, share, note)
        self._loop.call_soon_threadsafe(self._begin)

    async def stop(self) -> None:
        """Write what is still to be written."""
        self._stopping.set()
        if self._writing is not None:
            await self._writing
        await self._write()

    def _begin(self) -> None:
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_again_and_again())

    async def _write_again_and_again(self) -> None:
        try:
            while self._waiting:
                await self._write()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._gather_s):
                        await self._stopping.wait()
        finally:
            self._writing = None

    async def _write(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        if not waiting:
            return
        reports = waiting.values()
        try:
            await self._caller.call(
                REPORT_CALL,
                self._worker_id(),
                list(waiting),
                [each.attempt for each in reports],
                [each.share for each in reports],
                [each.note for each in reports],
            )
        except SkepError as error:
            _log.debug("how far jobs got was not written: %s", error)
