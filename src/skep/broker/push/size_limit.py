"""Admission: queues with a `maxSize` take no more than that.

The size of a queue is what waits for the slowest of its groups. Measuring it for every push would
cost more than the push, so a process measures now and then and counts its own pushes in between:

* a push that fits is admitted at once, and a measurement that is 200 ms old is renewed meanwhile;
* a push that does not fit is decided by a fresh measurement, because consumers may have made room
  since the last one.

So the bound is approximate: other processes may add, unseen, what arrives within 200 ms. A batch
larger than `maxSize` is admitted when the queue is empty, or it never could be. Scheduled messages
that are due are always admitted.

`SizeBook` decides and is pure; `AdmissionGate` measures, and makes room where the queue's overflow
is `drop_oldest`.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from skep.db.access.slots import Caller
from skep.model.errors import QueueFull, SkepError
from skep.model.limits import PUSH_ITEMS_MAX
from skep.model.queue_options import Overflow

if TYPE_CHECKING:
    from skep.broker.directory import Partition

_log = logging.getLogger(__name__)

BACKLOG_CALL: Final = "select skep.queue_backlog($1, $2)"
DROP_CALL: Final = "select * from skep.drop_oldest($1, $2)"

RENEW_S: Final = 0.2
"""Age at which a measurement is renewed while pushes come."""

TRUST_S: Final = 1.0
"""Age up to which a measurement is taken for a queue that seems to have room."""

REFUSE_S: Final = 0.02
"""Age up to which a measurement is taken for a queue that seems to be full."""

DURATION_SHARE: Final = 10
"""A queue that takes long to measure is measured less often: a tenth of the time at most."""

RETRY_AFTER_S: Final = 1
QUEUES_MAX: Final = 10_000
"""Queues remembered; the oldest is forgotten and measured again when needed."""


class SizeLimit(NamedTuple):
    """The limit of a queue; `max_size` is above 0."""

    max_size: int
    overflow: Overflow = "reject"

    @property
    def measured_to(self) -> int:
        """How far to count; to drop the excess, it must be counted too."""
        if self.overflow == "reject":
            return self.max_size
        return 2 * self.max_size + PUSH_ITEMS_MAX


def queue_full(queue: str, depth: int) -> QueueFull:
    """Return the error of a queue without room, in which so many messages wait."""
    return QueueFull(f"queue {queue} is full", retry_after_s=RETRY_AFTER_S, queue_depth=depth)


@dataclass(slots=True, eq=False)
class _Size:
    """What is known of one queue."""

    waiting: int = 0
    measured_at: float = float("-inf")
    duration_s: float = 0.0
    added: int = 0
    """Admitted here since the measurement began."""
    added_before: int = 0
    """What `added` was when the measurement under way began."""
    is_being_measured: bool = False


class SizeBook:
    """The sizes of queues as far as this process knows them. Times are in seconds."""

    def __init__(self) -> None:
        self._sizes: Final[dict[int, _Size]] = {}

    def admit(self, queue_id: int, count: int, limit: SizeLimit, now: float) -> bool | None:
        """Decide about `count` messages for a queue, and count those that are admitted.

        None when only a measurement can tell.
        """
        is_admitted = self.takes(queue_id, count, limit, now)
        if is_admitted:
            self.add(queue_id, count)
        return is_admitted

    def add(self, queue_id: int, count: int) -> None:
        """Count messages that are admitted."""
        self._size(queue_id).added += count

    def takes(self, queue_id: int, count: int, limit: SizeLimit, now: float) -> bool | None:
        """Decide about `count` messages for a queue; None when only a measurement can tell."""
        size = self._size(queue_id)
        age_s = now - size.measured_at
        known = size.waiting + size.added
        has_room = known + count <= limit.max_size or known <= 0
        if age_s > max(TRUST_S if has_room else REFUSE_S, self._pause_s(size)):
            return None
        return has_room or limit.overflow != "reject"

    def excess(self, queue_id: int, limit: SizeLimit) -> int:
        """Return by how many messages a queue is too large, as far as known."""
        size = self._size(queue_id)
        return max(0, size.waiting + size.added - limit.max_size)

    def depth(self, queue_id: int) -> int:
        """Return how many messages wait in a queue, as far as known."""
        size = self._size(queue_id)
        return size.waiting + size.added

    def is_renewal_due(self, queue_id: int, now: float) -> bool:
        """Tell whether a push should start a measurement in the background."""
        size = self._size(queue_id)
        if size.is_being_measured:
            return False
        return now - size.measured_at >= max(RENEW_S, self._pause_s(size))

    def begin_measurement(self, queue_id: int) -> None:
        """Begin a measurement; it may miss what is admitted from now on."""
        size = self._size(queue_id)
        size.is_being_measured = True
        size.added_before = size.added

    def end_measurement(
        self, queue_id: int, waiting: int | None, *, began_at: float, now: float
    ) -> None:
        """End a measurement; `waiting` is None when it failed."""
        size = self._size(queue_id)
        size.is_being_measured = False
        if waiting is None:
            return
        size.waiting = waiting
        size.added -= size.added_before
        size.added_before = 0
        size.measured_at = now
        size.duration_s = now - began_at

    def note_dropped(self, queue_id: int, count: int) -> None:
        """Note that so many waiting messages were dropped."""
        self._size(queue_id).waiting -= count

    def _size(self, queue_id: int) -> _Size:
        size = self._sizes.get(queue_id)
        if size is None:
            if len(self._sizes) >= QUEUES_MAX:
                del self._sizes[next(iter(self._sizes))]
            size = self._sizes[queue_id] = _Size()
        return size

    def _pause_s(self, size: _Size) -> float:
        return DURATION_SHARE * size.duration_s


class AdmissionGate:
    """Decides for one process which messages a queue with a limit takes."""

    def __init__(self, caller: Caller, *, dropper: Caller, now: Callable[[], float]) -> None:
        """Take who measures, for which pushes wait, and who drops, which may take long."""
        self._caller: Final = caller
        self._dropper: Final = dropper
        self._now: Final = now
        self._book: Final = SizeBook()
        self._measurements: Final[dict[int, asyncio.Task[None]]] = {}
        self._clearances: Final[dict[int, asyncio.Task[None]]] = {}

    def admit(self, queue_id: int, count: int, limit: SizeLimit) -> bool | None:
        """Decide at once; None when only `decide` can. Never waits.

        Admitted messages of a queue that drops its oldest make room in the background.
        """
        is_admitted = self._book.admit(queue_id, count, limit, self._now())
        if is_admitted:
            self._follow_up(queue_id, limit)
        return is_admitted

    async def decide(self, queue_id: int, count: int, limit: SizeLimit) -> bool:
        """Decide, measuring first where needed."""
        while (is_admitted := self.admit(queue_id, count, limit)) is None:
            await asyncio.shield(self._measure(queue_id, limit))
        return is_admitted

    def depth(self, queue_id: int) -> int:
        """Return how many messages wait in a queue, as far as known; of a full one, `maxSize`."""
        return self._book.depth(queue_id)

    async def require_room(self, sizes: "Mapping[Partition, int]") -> None:
        """Raise `QueueFull` unless all queues have room for the messages of their partitions.

        All messages are counted, or none.
        """
        limits: dict[int, tuple[str, SizeLimit]] = {}
        counts: Counter[int] = Counter()
        for partition, size in sizes.items():
            if (limit := partition.rules.size_limit) is not None:
                limits[partition.queue_id] = partition.key[0], limit
                counts[partition.queue_id] += size
        for queue_id, (queue, limit) in limits.items():
            while (has_room := self._takes(queue_id, counts[queue_id], limit)) is None:
                await asyncio.shield(self._measure(queue_id, limit))
            if not has_room:
                raise queue_full(queue, self.depth(queue_id))
        for queue_id, (queue, limit) in limits.items():
            # Another request may have taken the room while the next queue was measured.
            if self._takes(queue_id, counts[queue_id], limit) is False:
                raise queue_full(queue, self.depth(queue_id))
        for queue_id, (_, limit) in limits.items():
            self._book.add(queue_id, counts[queue_id])
            self._follow_up(queue_id, limit)

    def _takes(self, queue_id: int, count: int, limit: SizeLimit) -> bool | None:
        return self._book.takes(queue_id, count, limit, self._now())

    def _follow_up(self, queue_id: int, limit: SizeLimit) -> None:
        """Make room for what was admitted, and renew a measurement that is old, meanwhile."""
        if limit.overflow == "drop_oldest":
            self._make_room(queue_id, limit)
        if self._book.is_renewal_due(queue_id, self._now()):
            self._measure(queue_id, limit)

    async def settle(self) -> None:
        """Wait until nothing is under way, before the connections close."""
        while tasks := [*self._measurements.values(), *self._clearances.values()]:
            await asyncio.wait(tasks)

    def _measure(self, queue_id: int, limit: SizeLimit) -> asyncio.Task[None]:
        """Return the measurement under way, or begin one."""
        task = self._measurements.get(queue_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._count(queue_id, limit.measured_to))
            self._measurements[queue_id] = task
            task.add_done_callback(lambda done: self._end_measurement(queue_id, done))
        return task

    def _end_measurement(self, queue_id: int, task: asyncio.Task[None]) -> None:
        del self._measurements[queue_id]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.warning("cannot measure queue %d: %s", queue_id, error)

    async def _count(self, queue_id: int, at_most: int) -> None:
        began_at, waiting = self._now(), None
        self._book.begin_measurement(queue_id)
        try:
            ((waiting,),) = await self._caller.call(BACKLOG_CALL, queue_id, at_most)
        finally:
            self._book.end_measurement(queue_id, waiting, began_at=began_at, now=self._now())

    def _make_room(self, queue_id: int, limit: SizeLimit) -> None:
        """Begin to drop the oldest messages, unless there is room or it is being made."""
        if queue_id not in self._clearances and self._book.excess(queue_id, limit):
            task = asyncio.get_running_loop().create_task(self._drop(queue_id, limit))
            self._clearances[queue_id] = task
            task.add_done_callback(lambda _: self._clearances.pop(queue_id))

    async def _drop(self, queue_id: int, limit: SizeLimit) -> None:
        while excess := self._book.excess(queue_id, limit):
            try:
                ((dropped, unread),) = await self._dropper.call(DROP_CALL, queue_id, excess)
            except SkepError as error:
                _log.warning("cannot drop the oldest messages of queue %d: %s", queue_id, error)
                return
            self._book.note_dropped(queue_id, unread)
            if not dropped:
                return  # the excess is not stored yet
