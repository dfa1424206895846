"""Pause, resume, clear and delete whole queues.

A queue may have a hundred thousand partitions, so nothing here is one transaction. Deleting makes
the queue unreachable at once and then sweeps its rows in small steps; `RemovedQueueSweep` finishes
what the request does not. Clearing goes from partition to partition, each in one transaction.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from skep.broker.cluster.changes import QUEUE, ChangeAnnouncer
from skep.broker.cluster.wakeups import Announcer
from skep.db.access.slots import Caller
from skep.model.errors import NotFound, Refused
from skep.model.limits import POP_PARTITIONS_MAX
from skep.model.names import check_name

REMOVE_CALL: Final = "select skep.remove_queue($1)"
SWEEP_CALL: Final = "select skep.sweep_removed_queue($1, $2)"
CLEAR_CALL: Final = "select * from skep.clear_partitions($1, $2, $3, $4, $5, $6)"
PAUSE_CALL: Final = "select skep.pause_queue($1, $2)"

SWEEP_ROWS: Final = 2_000
"""Rows deleted by one call; it takes some ten milliseconds."""

SWEEP_S_MAX: Final = 10.0
"""How long a request sweeps before it leaves the rest to the background: clients wait 30 s."""

CLEAR_PARTITIONS: Final = 200
CLEAR_SEGMENTS: Final = 1_000
"""What one call clears at most; its partitions are locked meanwhile."""


async def find_queue(caller: Caller, queue: str) -> int:
    """Return the id of a queue.

    Raises:
        NotFound: There is no such queue.
    """
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


class QueueLifecycle:
    """Pauses, resumes, clears and deletes queues."""

    def __init__(
        self,
        caller: Caller,
        announcer: Announcer,
        *,
        now: Callable[[], float],
        changes: ChangeAnnouncer | None = None,
    ) -> None:
        """Take a caller, the announcers to polls and to other processes, and a monotonic clock."""
        self._changes: Final = changes
        self._caller: Final = caller
        self._announcer: Final = announcer
        self._now: Final = now

    async def pause(self, queue: str) -> None:
        """Deliver nothing of a queue until it is resumed; pushes go on.

        Raises:
            NotFound: There is no such queue.
        """
        await self._set_paused(queue, is_paused=True)

    async def resume(self, queue: str) -> None:
        """Deliver again, also to polls that wait already.

        Raises:
            NotFound: There is no such queue.
        """
        queue_id = await self._set_paused(queue, is_paused=False)
        self._announcer.announce(queue_id, POP_PARTITIONS_MAX)

    async def delete(self, queue: str) -> bool:
        """Delete a queue and everything that belongs to it; return whether there was one.

        When this returns, pushes and polls of that name find no queue and begin a new one.
        """
        ((queue_id,),) = await self._caller.call(REMOVE_CALL, check_name("queue", queue))
        if queue_id is None:
            return False
        if self._changes is not None:
            self._changes.announce(QUEUE, queue_id)
        # Polls that wait for the deleted queue subscribe to the next one of that name.
        self._announcer.announce(queue_id, POP_PARTITIONS_MAX)
        until = self._now() + SWEEP_S_MAX
        while await self._sweep(queue_id) and self._now() < until:
            pass
        return True

    async def clear(self, queue: str, partition: str | None) -> Cleared:
        """Drop all messages of a queue, or of one of its partitions.

        Groups stand at the end afterwards and their leases are over. Dead letters stay. The
        transaction ids of what was dropped may be used again at once.

        Raises:
            NotFound: There is no such queue or partition.
            Refused: A reader outside still needs some of the messages.
        """
        queue_id = await find_queue(self._caller, queue)
        start, upto = check_name("partition", partition or ""), None
        partitions = messages = 0
        while True:
            ((done, dropped, start, upto, is_held),) = await self._caller.call(
                CLEAR_CALL,
                queue_id,
                start,
                upto,
                partition is not None,
                CLEAR_PARTITIONS,
                CLEAR_SEGMENTS,
            )
            if is_held:
                raise Refused("a hold keeps messages of the queue for a reader: release it first")
            partitions += done
            messages += dropped
            if start is None:
                break
        if partition is not None and not partitions:
            raise NotFound("Partition not found")
        return Cleared(partitions=partitions, messages=messages)

    async def _set_paused(self, queue: str, *, is_paused: bool) -> int:
        ((queue_id,),) = await self._caller.call(PAUSE_CALL, check_name("queue", queue), is_paused)
        if queue_id is None:
            raise NotFound("Queue not found")
        return queue_id

    async def _sweep(self, queue_id: int) -> bool:
        ((has_more,),) = await self._caller.call(SWEEP_CALL, queue_id, SWEEP_ROWS)
        return has_more


class RemovedQueueSweep:
    """The housekeeping task that sweeps what deleted queues have left behind."""

    def __init__(self, caller: Caller) -> None:
        self.name: Final = "sweep removed queues"
        self.interval_s: Final = 60.0
        self._caller: Final = caller

    async def run(self) -> bool:
        """Sweep one step; return whether there is more."""
        ((has_more,),) = await self._caller.call(SWEEP_CALL, None, SWEEP_ROWS)
        return has_more
