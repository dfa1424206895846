"""Move scheduled messages into the log when their time comes.

Every process may do it; the database lets one at a time. A process looks when something that it
knows of is due, and every few seconds for what others scheduled and did not live to deliver.
`SequencePlan` decides when, and is pure; `ScheduledSequencer` is its driver.
"""

import asyncio
import logging
from typing import Any, Final

from skep.broker.cluster.wakeups import Announcer
from skep.broker.polling_loop import LookLoop
from skep.db.access.slots import Caller
from skep.model.errors import SkepError

_log = logging.getLogger(__name__)

SEQUENCE_CALL: Final = "select * from skep.sequence_due($1, $2)"

MESSAGES_PER_CALL: Final = 1_000
BYTES_PER_CALL: Final = 8 << 20
"""Together they bound how long a call holds its partitions and how much memory it takes."""

IDLE_S: Final = 2.0
"""How often to look when nothing is known to be due: what remains of a process that died waits so
long. A look at an empty table is one cheap call."""

PAUSE_S: Final = 0.02
"""The least time between two looks: messages that are due one after the other travel together."""

YIELD_S: Final = 0.04
"""How long to leave the work to another process that is at it, or what is due to someone who holds
it. Not longer: the other may not know yet of what this process heard of meanwhile."""

RECOVERY_S: Final = 1.0
"""How long to leave alone a database in trouble."""


class SequencePlan:
    """When to look for due messages. Times are those of the event loop's clock."""

    def __init__(self, now: float) -> None:
        self._earliest = now
        self._due_at: float | None = now

    def next_look(self) -> float:
        """Return when to look next."""
        if self._due_at is None:
            return self._idle_at
        return max(self._earliest, min(self._due_at, self._idle_at))

    def hear_of_due(self, due_at: float) -> bool:
        """Take note that a message is due then; return whether the next look is earlier now."""
        before = self.next_look()
        if self._due_at is None or due_at < self._due_at:
            self._due_at = due_at
        return self.next_look() < before

    def begin(self) -> None:
        """A look begins: what is heard of from now on may be too late for it."""
        self._due_at = None

    def looked(self, now: float, *, moved: int, is_busy: bool, next_s: float | None) -> None:
        """A look ended: so many messages were moved, and the next one is due in `next_s`."""
        is_more_due = next_s is not None and next_s <= 0
        if is_more_due:
            # One call could not carry all; or what is left is in other hands.
            self._earliest = now if moved else now + YIELD_S
        else:
            self._earliest = now + PAUSE_S
        if is_busy:
            self._earliest = now + YIELD_S
        if next_s is not None:
            self.hear_of_due(now + next_s)

    def failed(self, now: float) -> None:
        """A look failed: try again, but not at once."""
        self._earliest = now + RECOVERY_S
        self._due_at = now

    @property
    def _idle_at(self) -> float:
        return self._earliest + IDLE_S


class ScheduledSequencer:
    """Looks for due messages, in a task of its own."""

    def __init__(self, caller: Caller, announcer: Announcer) -> None:
        self._caller: Final = caller
        self._announcer: Final = announcer
        self._loop: Final = asyncio.get_running_loop()
        self._plan: Final = SequencePlan(self._loop.time())
        self._looks: Final = LookLoop(self._look, self._plan.next_look)

    def start(self) -> None:
        """Begin to look."""
        self._looks.start()

    async def stop(self) -> None:
        """Stop looking."""
        await self._looks.stop()

    def hear_of_due(self, seconds: float) -> None:
        """Hear that a message is due in so many seconds."""
        if self._plan.hear_of_due(self._loop.time() + seconds):
            self._looks.hurry()

    async def _look(self) -> None:
        self._plan.begin()
        try:
            (row,) = await self._caller.call(SEQUENCE_CALL, MESSAGES_PER_CALL, BYTES_PER_CALL)
        except SkepError as error:
            _log.warning("scheduled messages could not be moved: %s", error)
            self._plan.failed(self._loop.time())
            return
        self._hear_of_look(row)

    def _hear_of_look(self, row: Any) -> None:
        queue_ids, partition_counts, moved, is_busy, next_s = row
        self._plan.looked(self._loop.time(), moved=moved, is_busy=is_busy, next_s=next_s)
        for queue_id, partition_count in zip(queue_ids or (), partition_counts or (), strict=True):
            self._announcer.announce(queue_id, partition_count)
