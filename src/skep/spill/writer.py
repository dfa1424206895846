"""Group commit: pushes of many clients become durable with one fsync, off the event loop.

One thread takes everything that gathered while the last fsync ran, appends it in the order it came
and confirms it together. It is started with the first message and costs nothing before.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Final, TypeAlias

from skep.model.errors import Overloaded, SkepError
from skep.spill.log import SpillLog
from skep.spill.records import SpillRecord
from skep.telemetry.defects import error_of

_log = logging.getLogger(__name__)

Confirm: TypeAlias = Callable[[SkepError | None], None]
"""Called in the loop: with None when the records are durable, else with why they are not kept."""

GATHERED_BYTES_MAX: Final = 64 << 20
"""What may wait in memory for a disk that is slow."""


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    records: Sequence[SpillRecord]
    weight: int
    confirm: Confirm


class SpillWriter:
    """Appends to a spill log in a thread."""

    def __init__(self, log: SpillLog) -> None:
        self._spill: Final = log
        self._loop: Final = asyncio.get_running_loop()
        self._queue: Final[SimpleQueue[_Batch | None]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._gathered = 0
        self.fsync_count = 0
        """Group commits so far."""

    def write(self, records: Sequence[SpillRecord], confirm: Confirm) -> None:
        """Make records durable; `confirm` is called once."""
        weight = sum(len(record.envelope) + 256 for record in records)
        if self._gathered and self._gathered + weight > GATHERED_BYTES_MAX:
            raise Overloaded("the disk is slower than the pushes")
        self._gathered += weight
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="skep-spill", daemon=True)
            self._thread.start()
        self._queue.put(_Batch(records, weight, confirm))

    async def close(self) -> None:
        """Return when everything written is durable and confirmed."""
        if self._thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    def _run(self) -> None:
        is_open = True
        while is_open:
            gathered = [self._queue.get()]
            while not self._queue.empty():
                gathered.append(self._queue.get())
            is_open = None not in gathered
            if batches := [batch for batch in gathered if batch is not None]:
                self._commit(batches)

    def _commit(self, batches: Sequence[_Batch]) -> None:
        """Make batches durable together; when not all of them fit, those that fit."""
        error = self._append(batches)
        kept: Sequence[_Batch] = batches
        refused: list[_Batch] = []
        if error is not None:
            verdicts = [(batch, self._append([batch])) for batch in batches if len(batches) > 1]
            kept = [batch for batch, its_error in verdicts if its_error is None]
            refused = [batch for batch in batches if batch not in kept]
        if refused:
            self._loop.call_soon_threadsafe(self._confirm, refused, error)
        if kept:
            self._loop.call_soon_threadsafe(self._confirm, kept, self._sync())

    def _append(self, batches: Sequence[_Batch]) -> SkepError | None:
        records = [record for batch in batches for record in batch.records]
        return error_of(lambda: self._spill.append(records))

    def _sync(self) -> SkepError | None:
        # What was appended may be read although this fails, so it must not be appended again.
        error = error_of(self._spill.sync)
        self.fsync_count += error is None
        return error

    def _confirm(self, batches: Sequence[_Batch], error: SkepError | None) -> None:
        for batch in batches:
            self._gathered -= batch.weight
            # One that fails must not keep the others from theirs.
            if failure := error_of(partial(batch.confirm, error)):
                _log.error("a kept push could not be answered: %s", failure)
