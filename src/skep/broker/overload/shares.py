"""Which requests give way when there is not room for all. Pure.

`engine_shares` says how much of the engine each kind of work may fill: a share of its own, so that
no kind crowds out another, and a ceiling that falls with its priority, so that less important work
is refused first. `WaitingLine` holds requests that found no room: first come, first served among
those that wait for the same, each for a bounded time, together with a bounded weight.
`PartitionOrder` keeps the requests of a partition in the order they came while some of them wait
and others are being stored as operations.

`waiting_line` decides when requests are tried and what becomes of those whose time is over.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final, Generic, NamedTuple, TypeVar

from skep.broker.timetable import Timetable
from skep.model.priorities import Priority

CEILINGS: Final[Mapping[Priority, float]] = {
    Priority.SYSTEM_EVENT: 1.0,
    Priority.BATCH_ACK: 1.0,
    Priority.ACK: 0.95,
    Priority.PUSH: 0.90,
    Priority.POP: 0.80,
    Priority.BACKGROUND: 0.60,
    Priority.ANALYTICS: 0.50,
}
"""The share of its capacity up to which the engine takes work of a priority."""

DEFERRAL_SHARE: Final = 0.10
"""What requests may fill that are being stored as operations."""

RETRY_AFTER_S_MAX: Final = 60
UNKNOWN_PACE_S: Final = 0.1
"""Seconds per operation assumed until some have been carried out."""

E = TypeVar("E")


class Share(NamedTuple):
    """What an operation of the engine may fill."""

    own: float
    ceiling: float


def engine_shares(*, push: float, pop: float, ack: float) -> dict[str, Share]:
    """Return what each operation of the engine may fill of its capacity.

    Transactions, cycles, scheduled messages, calls on keys and timers have as much each as pushes.
    """
    pushes = Share(push, CEILINGS[Priority.PUSH])
    pops = Share(pop, CEILINGS[Priority.POP])
    system = Share(1.0, CEILINGS[Priority.SYSTEM_EVENT])
    return {
        "push": pushes,
        "transaction": pushes,
        "cycle": pushes,
        "schedule": pushes,
        "provision": pushes,
        "kv": pushes,
        "kv_read": pushes,
        "timers": pushes,
        "pop": pops,
        "pop_partition": pops,
        "fetch": pops,
        "subscribe": pops,
        "ack": Share(ack, CEILINGS[Priority.BATCH_ACK]),
        "defer": Share(DEFERRAL_SHARE, CEILINGS[Priority.SYSTEM_EVENT]),
        "renew": system,
        "release": system,
        "undo": system,
    }


def is_shed(priority: Priority, load: float) -> bool:
    """Tell whether work of a priority gives way at this load."""
    return load > CEILINGS[priority]


def estimated_wait_s(ahead: int, pace_s: float | None) -> float:
    """Return about how long an operation waits with so many ahead, itself included."""
    return round(ahead * (UNKNOWN_PACE_S if pace_s is None else pace_s), 3)


def retry_after_s(waiting: int, pace_s: float | None) -> int:
    """Return when to try again if so many operations wait: when half of them are done."""
    return min(max(1, ceil(estimated_wait_s(waiting, pace_s) / 2)), RETRY_AFTER_S_MAX)


@dataclass(slots=True, eq=False)
class Place(Generic[E]):
    """A request in line."""

    key: Hashable
    entry: E
    weight: int
    deadline: float
    is_left: bool = False


class WaitingLine(Generic[E]):
    """Requests in line, by what they wait for."""

    def __init__(self, weight_max: int) -> None:
        self._weight_max: Final = weight_max
        self._queues: Final[dict[Hashable, OrderedDict[Place[E], None]]] = {}
        self._deadlines: Final[Timetable[Place[E]]] = Timetable()
        self.weight = 0
        """The weight of all requests."""

    def __len__(self) -> int:
        return len(self._deadlines)

    def has(self, key: Hashable) -> bool:
        """Tell whether requests wait for this."""
        return key in self._queues

    def join(self, key: Hashable, entry: E, *, weight: int, deadline: float) -> Place[E] | None:
        """Let a request wait behind the others; None when there is no room for it."""
        if self.weight + weight > self._weight_max and self._queues:
            return None
        place = Place(key, entry, weight, deadline)
        self._queues.setdefault(key, OrderedDict())[place] = None
        self._deadlines.set(place, deadline)
        self.weight += weight
        return place

    def places(self, key: Hashable) -> list[Place[E]]:
        """Return the requests in line for this, the first one first."""
        return list(self._queues.get(key, ()))

    def leave(self, place: Place[E]) -> None:
        """Let a request go; it must be in line."""
        assert not place.is_left, "a request leaves once"
        place.is_left = True
        queue = self._queues[place.key]
        del queue[place]
        if not queue:
            del self._queues[place.key]
        self._deadlines.cancel(place)
        self.weight -= place.weight

    def take_expired(self, now: float) -> list[Place[E]]:
        """Remove the requests whose time is over, and return them."""
        expired = self._deadlines.take_until(now)
        for place in expired:
            self.leave(place)
        return expired

    def next_deadline(self) -> float | None:
        """Return when the next one's time is over."""
        return self._deadlines.next_at()

    def waited_for(self) -> list[Hashable]:
        """Return everything that requests wait for."""
        return list(self._queues)


class PartitionOrder:
    """Requests by partition, in the order they came.

    A request that waits is *ahead* of all that come later. One that is being stored as operations
    is *sent* until its answer: others may be sent after it, because those calls are made one at a
    time, but nothing may go into the partition by another way.
    """

    def __init__(self) -> None:
        self._ahead: Final[dict[Hashable, deque[object]]] = {}
        self._sent: Final[Counter[Hashable]] = Counter()

    def __bool__(self) -> bool:
        """Whether there is any request."""
        return bool(self._ahead) or bool(self._sent)

    def holds(self, partitions: Iterable[Hashable]) -> bool:
        """Tell whether a request that comes now must wait to use these partitions."""
        return any(partition in self._ahead or partition in self._sent for partition in partitions)

    def has_sent(self, partitions: Iterable[Hashable]) -> bool:
        """Tell whether requests for these partitions are being stored as operations."""
        return any(partition in self._sent for partition in partitions)

    def is_first(self, request: object, partitions: Iterable[Hashable]) -> bool:
        """Tell whether no other request is ahead in any of these partitions."""
        return all(
            partition not in self._ahead or self._ahead[partition][0] is request
            for partition in partitions
        )

    def queue(self, request: object, partitions: Iterable[Hashable]) -> None:
        """Let a request wait for its turn; its partitions are distinct."""
        for partition in partitions:
            self._ahead.setdefault(partition, deque()).append(request)

    def leave(self, request: object, partitions: Iterable[Hashable]) -> None:
        """Remove a request that waited."""
        for partition in partitions:
            waiting = self._ahead[partition]
            waiting.remove(request)
            if not waiting:
                del self._ahead[partition]

    def send(self, partitions: Iterable[Hashable]) -> None:
        """Note that a request is being stored as operations."""
        self._sent.update(partitions)

    def answered(self, partitions: Iterable[Hashable]) -> None:
        """Note that it was answered."""
        self._sent.subtract(partitions)
        for partition in partitions:
            if not self._sent[partition]:
                del self._sent[partition]
