"""Move scheduled messages into the log when their time comes.

Every process does it; the database lets one at a time. A process polls when a message that it
knows of is due, and every few seconds for what processes that died had scheduled. `SequencePlan`
(pure) decides when; `ScheduledSequencer` drives it.
"""

import asyncio
import logging
from typing import Final

from skep.broker.cluster.wakeups import Announcer
from skep.broker.polling_loop import PollingLoop
from skep.db.access.slots import Caller
from skep.model.errors import SkepError

_log = logging.getLogger(__name__)

SEQUENCE_CALL: Final = "select * from skep.sequence_due($1, $2)"

MESSAGES_PER_CALL: Final = 1_000
BYTES_PER_CALL: Final = 8 << 20
"""Together they bound how long a call holds its partitions and how much memory it takes."""

IDLE_S: Final = 2.0
"""How often to poll when nothing is known to be due; messages of a process that died wait so long.
A poll of an empty table is one cheap call."""

PAUSE_S: Final = 0.02
"""The least time between two polls: messages that are due one after the other move together."""

YIELD_S: Final = 0.04
"""How long to wait while another process sequences, or holds what is due. Not longer: the other may
not know of what this process heard of meanwhile."""

RECOVERY_S: Final = 1.0
"""How long to leave alone a database in trouble."""


class SequencePlan:
    """When to poll for due messages. Times are those of the event loop's clock."""

    def __init__(self, now: float) -> None:
        self._earliest = now
        self._due_at: float | None = now

    def next_poll_at(self) -> float:
        """Return when to poll next."""
        if self._due_at is None:
            return self._idle_at
        return max(self._earliest, min(self._due_at, self._idle_at))

    def hear_of_due(self, due_at: float) -> bool:
        """Note when a message is due; return whether that makes the next poll sooner."""
        before = self.next_poll_at()
        if self._due_at is None or due_at < self._due_at:
            self._due_at = due_at
        return self.next_poll_at() < before

    def begin(self) -> None:
        """A poll begins: what is heard of from now on may be too late for it."""
        self._due_at = None

    def polled(self, now: float, *, moved: int, is_busy: bool, next_s: float | None) -> None:
        """A poll ended: so many messages were moved, and the next one is due in `next_s`."""
        is_more_due = next_s is not None and next_s <= 0
        if is_more_due:
            # One call could not move all; or another process holds the rest.
            self._earliest = now if moved else now + YIELD_S
        else:
            self._earliest = now + PAUSE_S
        if is_busy:
            self._earliest = now + YIELD_S
        if next_s is not None:
            self.hear_of_due(now + next_s)

    def failed(self, now: float) -> None:
        """A poll failed: try again, but not at once."""
        self._earliest = now + RECOVERY_S
        self._due_at = now

    @property
    def _idle_at(self) -> float:
        return self._earliest + IDLE_S


class ScheduledSequencer(PollingLoop):
    """Moves due messages, in a task of its own."""

    def __init__(self, caller: Caller, announcer: Announcer) -> None:
        self._caller: Final = caller
        self._announcer: Final = announcer
        self._plan: Final = SequencePlan(asyncio.get_running_loop().time())
        super().__init__(self._move_due, self._plan.next_poll_at)

    def hear_of_due(self, seconds: float) -> None:
        """Hear that a message is due in so many seconds."""
        if self._plan.hear_of_due(self._loop.time() + seconds):
            self.poll_sooner()

    async def _move_due(self) -> None:
        self._plan.begin()
        try:
            (row,) = await self._caller.call(SEQUENCE_CALL, MESSAGES_PER_CALL, BYTES_PER_CALL)
        except SkepError as error:
            _log.warning("scheduled messages could not be moved: %s", error)
            self._plan.failed(self._loop.time())
            return
        queue_ids, partition_counts, moved, is_busy, next_s = row
        self._plan.polled(self._loop.time(), moved=moved, is_busy=is_busy, next_s=next_s)
        for queue_id, partition_count in zip(queue_ids or (), partition_counts or (), strict=True):
            self._announcer.announce(queue_id, partition_count)
