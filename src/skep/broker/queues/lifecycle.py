"""Pause, resume, clear and delete whole queues.

A queue may have a hundred thousand partitions, so nothing here is one transaction. Deleting makes
the queue unreachable at once and then sweeps its rows in small steps; `removed_queue_sweep`
finishes what the request does not. Clearing goes from partition to partition, each in one
transaction.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from skep.broker.cluster.changes import QUEUE, ChangeAnnouncer
from skep.broker.cluster.housekeeping import CallDuty, Duty
from skep.broker.cluster.wakeups import Announcer
from skep.db.access.errors import QueueHeld
from skep.db.access.functions import Functions, statement_of
from skep.db.access.slots import Caller
from skep.model.errors import NotFound, Refused
from skep.model.limits import POP_PARTITIONS_MAX
from skep.model.names import check_name, check_optional_name

SWEEP_ROWS: Final = 2_000
"""Rows deleted by one call; it takes some ten milliseconds."""

SWEEP_S_MAX: Final = 10.0
"""How long a request sweeps before it leaves the rest to the background: clients wait 30 s."""

CLEAR_PARTITIONS: Final = 200
CLEAR_SEGMENTS: Final = 1_000
"""What one call clears at most; its partitions are locked meanwhile."""

_HELD: Final = "a hold keeps messages of the queue for a reader: release it first"


async def find_queue(caller: Caller, queue: str) -> int:
    """Return the id of a queue."""
    rows = await caller.call(
        "select q.id from skep.queue q where q.name = $1", check_name("queue", queue)
    )
    if not rows:
        raise NotFound("Queue not found")
    return rows[0]["id"]


class Cleared(msgspec.Struct, frozen=True, kw_only=True):
    """What clearing a queue dropped."""

    partitions: int
    messages: int


@dataclass(frozen=True, slots=True, eq=False)
class QueueLifecycle:
    """Pauses, resumes, clears and deletes queues; one that does not exist raises `NotFound`."""

    sql: Functions
    announcer: Announcer
    now: Callable[[], float]
    """A monotonic clock."""
    changes: ChangeAnnouncer | None = None

    async def pause(self, queue: str) -> None:
        """Deliver nothing of a queue until it is resumed; pushes go on."""
        await self._set_paused(queue, is_paused=True)

    async def resume(self, queue: str) -> None:
        """Deliver again, also to polls that wait already."""
        queue_id = await self._set_paused(queue, is_paused=False)
        self.announcer.announce(queue_id, POP_PARTITIONS_MAX)

    async def delete(self, queue: str) -> bool:
        """Delete a queue and everything that belongs to it; return whether there was one.

        Raises `Refused` while a hold has unread messages in it.
        When this returns, pushes and polls of that name find no queue and begin a new one.
        """
        try:
            queue_id = await self.sql.value("remove_queue", check_name("queue", queue))
        except QueueHeld:
            raise Refused(_HELD) from None
        if queue_id is None:
            return False
        if self.changes is not None:
            self.changes.announce(QUEUE, queue_id)
        # Polls that wait for the deleted queue subscribe to the next one of that name.
        self.announcer.announce(queue_id, POP_PARTITIONS_MAX)
        until = self.now() + SWEEP_S_MAX
        sweep = ("sweep_removed_queue", queue_id, SWEEP_ROWS)
        while await self.sql.value(*sweep) and self.now() < until:
            pass
        return True

    async def clear(self, queue: str, partition: str | None) -> Cleared:
        """Drop all messages of a queue, or of one of its partitions.

        Groups stand at the end afterwards and their leases are over. Dead letters stay. The
        transaction ids of what was dropped may be used again at once.
        """
        queue_id = await find_queue(self.sql, queue)
        start, upto = check_optional_name("partition", partition), None
        partitions = messages = 0
        while True:
            done, dropped, start, upto, is_held = await self.sql.row(
                "clear_partitions",
                queue_id,
                start,
                upto,
                partition is not None,
                CLEAR_PARTITIONS,
                CLEAR_SEGMENTS,
            )
            if is_held:
                raise Refused(_HELD)
            partitions += done
            messages += dropped
            if start is None:
                break
        if partition is not None and not partitions:
            raise NotFound("Partition not found")
        return Cleared(partitions=partitions, messages=messages)

    async def _set_paused(self, queue: str, *, is_paused: bool) -> int:
        check_name("queue", queue)
        return await self.sql.value(
            "pause_queue", queue, is_paused, missing=NotFound("Queue not found")
        )


def removed_queue_sweep(caller: Caller) -> Duty:
    """Return the duty that sweeps what deleted queues have left behind."""
    sweep = statement_of("sweep_removed_queue", 2)
    return CallDuty(
        "sweep removed queues", 60.0, caller, sweep, (None, SWEEP_ROWS), again_from=True
    )
