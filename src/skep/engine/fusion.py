"""Choose which waiting units share the next call.

This is the pure half of the engine. It owns what waits and decides what leaves; it never awaits,
never reads a clock and never sees a connection. The driver tells it what happened, always with
the current time, and carries out what `take_ready` returns.

A *unit* is work for one partition: the items of the pushes that joined for it, one poll of one
consumer group, one batch of acknowledgments. A *partition* is here whatever must stay in order: one
of a queue, or for polls a consumer group. A *call* is one procedure execution that carries many
units.

Promises the broker builds on:

* Idle means at once: if no call of an operation is in flight, whatever waits for it leaves. Only
  right after a call has come back it may wait a moment for the clients that were just answered,
  so that they go together with the others and not in turns with them (`gather_share`).
* Under load, units gather: another call leaves when it is worth one (`preferred_weight`) or when
  the oldest unit that could leave has waited `hold_s_max`.
* One that is stuck holds up few: the limiter counts calls that work. One that waits for a lock
  takes its place among `concurrency_max` only, or nothing could leave beside it while the
  limiter allows a single call.
* Order: units of one partition leave in the order they arrived, and no more than
  `calls_per_partition` calls in flight carry the same partition. Units without a partition (None)
  leave in order but exclude none.
* Fairness: free partitions stand in line for calls, a partition that could not be emptied goes to
  the end of it, and operations take turns for slots. Nothing starves while calls come back.
* Bounds: slots and weight are limited. An operation may fill its share of the capacity, and none
  of it above its ceiling: what matters less is turned away first. A partition exists only while
  something of it waits or flies. No step looks at more than the units it moves and the partitions
  it frees.

Not here on purpose: retries and timeouts, which are the driver's. This module is only told that a
call came back.
"""

from collections import OrderedDict, deque
from collections.abc import Hashable, Mapping
from heapq import heapify, heappop, heappush
from itertools import count, islice
from sys import maxsize
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from skep.engine.limiter import ConcurrencyLimiter
from skep.engine.policy import BatchPolicy
from skep.model.errors import Overloaded

C = TypeVar("C")

_AT_ONCE: Final = float("-inf")

STALLED_AFTER_S: Final = 1.0
"""A call that has been in flight for so long waits for something, mostly a lock."""

_RETURNING_SHARE: Final = 0.75
"""How much of what was answered must be back for the next call to leave."""


class WorkUnit(Struct, Generic[C], eq=False):
    """What one request brings for one partition.

    A Struct because every request makes one: a Python initialiser would cost 80 ns more, and
    all that fusion does for a unit takes 500 to 1,100.
    """

    partition: Hashable | None
    weight: int
    work: C
    arrived_at: float
    waiting_in: "Partition | None"
    """Where it waits; None once it left with a call or was withdrawn."""
    ahead: "WorkUnit[Any] | None" = None
    behind: "WorkUnit[Any] | None" = None


class Partition(Struct, eq=False):
    """The units that wait in one partition, first to last, and the number of calls that carry it.

    Units are linked to their neighbours, so that one can leave from the middle at once, and so that
    a partition with a single unit, the usual case, needs no container (a deque takes 760 bytes).
    The links of a unit that leaves are cut, or it would keep its neighbours alive.
    """

    key: Hashable | None
    backlog: "_Backlog"
    calls_max: int
    calls: int = 0
    is_ready: bool = False
    first: WorkUnit[Any] | None = None
    last: WorkUnit[Any] | None = None
    weight: int = 0

    def append(self, unit: WorkUnit[Any]) -> None:
        """Let a unit wait behind the others."""
        last = self.last
        if last is None:
            self.first = unit
        else:
            last.behind = unit
            unit.ahead = last
        self.last = unit
        self.weight += unit.weight

    def remove(self, unit: WorkUnit[Any]) -> None:
        """Let a unit go, wherever it stands."""
        ahead, behind = unit.ahead, unit.behind
        if ahead is None:
            self.first = behind
        else:
            ahead.behind = behind
        if behind is None:
            self.last = ahead
        else:
            behind.ahead = ahead
        unit.ahead = unit.behind = unit.waiting_in = None
        self.weight -= unit.weight


class Call:
    """One procedure call and the units it carries: partition by partition, each in its order."""

    __slots__ = ("is_in_flight", "operation", "partitions", "started_at", "units", "weight")

    def __init__(self, operation: str, started_at: float) -> None:
        self.operation = operation
        self.started_at = started_at
        self.units: list[WorkUnit[Any]] = []
        self.partitions: list[Partition] = []
        self.weight = 0
        self.is_in_flight = True

    def load(self, partition: Partition, *, weight_max: int, units_max: int) -> bool:
        """Move the units of a partition that fit, and tell whether they were all of them."""
        carried, weight = self.units, self.weight
        unit = partition.first
        while unit is not None:
            if carried and (weight + unit.weight > weight_max or len(carried) >= units_max):
                break
            weight += unit.weight
            carried.append(unit)
            behind = unit.behind
            unit.ahead = unit.behind = unit.waiting_in = None
            unit = behind
        if weight == self.weight:
            return False
        partition.first = unit
        if unit is None:
            partition.last = None
        else:
            unit.ahead = None
        partition.weight -= weight - self.weight
        partition.calls += 1
        self.partitions.append(partition)
        self.weight = weight
        return unit is None


class _ArrivalIndex:
    """Finds the earliest arrival among the first units of the ready partitions.

    The partitions that a settled call releases are not in order of arrival, so their line cannot
    tell. A unit is noted when it becomes first and sorted in only when `earliest` is called, which
    is while little waits. Units that are gone stay until they surface or are the majority.
    """

    __slots__ = ("_serial", "_sorted", "noted")

    _GONE_MAX: Final = 64
    """Units gone that a short line may keep, so that it is not tidied at every step."""

    def __init__(self) -> None:
        self.noted: list[WorkUnit[Any]] = []
        """The units that became first and are not sorted in yet."""
        self._sorted: list[tuple[float, int, WorkUnit[Any]]] = []
        self._serial = count()

    def earliest(self) -> float:
        """Return the earliest arrival; there must be a ready partition."""
        for unit in self.noted:
            heappush(self._sorted, (unit.arrived_at, next(self._serial), unit))
        self.noted.clear()
        while self._sorted[0][2].waiting_in is None:
            heappop(self._sorted)
        return self._sorted[0][0]

    def tidy(self, ready_count: int) -> None:
        """Forget units that are gone if they outnumber those of the partitions still ready."""
        if ready_count == 0:
            self.noted.clear()
            self._sorted.clear()
        elif len(self.noted) + len(self._sorted) > 2 * ready_count + self._GONE_MAX:
            self.noted = [unit for unit in self.noted if unit.waiting_in is not None]
            self._sorted = [entry for entry in self._sorted if entry[2].waiting_in is not None]
            heapify(self._sorted)


class _Backlog:
    """What waits for one operation, and how many calls of it are in flight.

    Partitions that wait and are free stand in `_ready`, in the order they became so.
    """

    def __init__(
        self, operation: str, policy: BatchPolicy, limiter: ConcurrencyLimiter, capacity: int
    ) -> None:
        self._operation: Final = operation
        self._policy: Final = policy
        self.weight_max: Final = policy.weight_max
        self.weight = 0
        self.own_max: Final = capacity * policy.own_share
        self.total_max: Final = capacity * policy.ceiling
        self._limiter: Final = limiter
        # The longest in flight first.
        self._in_flight: Final[dict[Call, None]] = {}
        # Clients that were answered come again: until then, or until so much waits.
        self._gather_until = _AT_ONCE
        self._gather_weight = 0.0
        self._partitions: Final[dict[Hashable | None, Partition]] = {}
        self._ready: Final[OrderedDict[Partition, None]] = OrderedDict()
        self.ready_weight = 0
        self._arrivals: Final = _ArrivalIndex()

    def add(self, key: Hashable | None, weight: int, work: C, now: float) -> WorkUnit[C]:
        partition = self._partitions.get(key)
        if partition is None:
            calls_max = maxsize if key is None else self._policy.calls_per_partition
            partition = self._partitions[key] = Partition(key, self, calls_max)
        self.weight += weight
        unit = WorkUnit(key, weight, work, now, partition)
        partition.append(unit)
        if partition.is_ready:
            self.ready_weight += weight
        elif partition.calls < partition.calls_max:
            self._join_ready(partition, unit)
        return unit

    def remove(self, unit: WorkUnit[Any], partition: Partition) -> None:
        was_first = partition.first is unit
        partition.remove(unit)
        self.weight -= unit.weight
        first = partition.first
        if partition.is_ready:
            self.ready_weight -= unit.weight
            if first is None:
                partition.is_ready = False
                del self._ready[partition]
            elif was_first:
                self._arrivals.noted.append(first)
            self._arrivals.tidy(len(self._ready))
        if first is None and partition.calls == 0:
            del self._partitions[partition.key]

    def has(self, key: Hashable) -> bool:
        """Tell whether units of a partition wait or are in flight."""
        return key in self._partitions

    def due_at(self) -> float | None:
        """Return when a call may leave: the past if at once, None if another must return first."""
        if not self._ready:
            return None
        if not self._in_flight:
            return _AT_ONCE if self.ready_weight >= self._gather_weight else self._gather_until
        if len(self._in_flight) >= self._policy.concurrency_max:
            return None
        opens_at = self._opens_at()
        if self.ready_weight >= self._policy.preferred_weight:
            return opens_at
        return max(opens_at, self._arrivals.earliest() + self._policy.hold_s_max)

    def _opens_at(self) -> float:
        """Return when the limiter lets another call leave, if none comes back."""
        beyond = len(self._in_flight) - self._limiter.limit
        if beyond < 0:
            return _AT_ONCE
        # Once this one and those that left before it are stalled, too few are left to count.
        return next(islice(self._in_flight, beyond, None)).started_at + STALLED_AFTER_S

    def take(self, now: float) -> Call:
        """Load the next call from the partitions first in line.

        A unit that does not fit ends the loading although a lighter one behind it might: it is
        first in line for the next call, where stepping over it could go on forever.
        """
        policy = self._policy
        call = Call(self._operation, now)
        for partition in islice(self._ready, policy.partitions_per_call):
            if not call.load(partition, weight_max=policy.weight_max, units_max=policy.units_max):
                break
        self._in_flight[call] = None
        self._gather_weight = 0.0
        self._depart(call)
        return call

    def settle(self, call: Call, now: float, *, succeeded: bool) -> None:
        del self._in_flight[call]
        beside = sum(now < each.started_at + STALLED_AFTER_S for each in self._in_flight)
        self._limiter.record(
            rtt_s=now - call.started_at,
            in_flight=1 + beside,
            now=now,
            succeeded=succeeded,
            weight=call.weight,
        )
        self.weight -= call.weight
        for partition in call.partitions:
            partition.calls -= 1
            first = partition.first
            if first is None:
                if partition.calls == 0:
                    del self._partitions[partition.key]
            elif not partition.is_ready:
                self._join_ready(partition, first)
        if self._policy.gather_share and not self._in_flight:
            self._gather(call, now)

    def _gather(self, call: Call, now: float) -> None:
        """Let the next call wait a moment for the clients that this one answered."""
        policy = self._policy
        wait_s = min(policy.gather_share * (now - call.started_at), policy.hold_s_max)
        returning = self.ready_weight + _RETURNING_SHARE * call.weight
        self._gather_until = now + wait_s
        self._gather_weight = min(returning, policy.weight_max)

    def _depart(self, call: Call) -> None:
        ready = self._ready
        self.ready_weight -= call.weight
        for partition in call.partitions:
            partition.is_ready = False
            del ready[partition]
        # Only the last partition can have something left: it is where the call was full.
        last = call.partitions[-1]
        if last.first is not None:
            self.ready_weight -= last.weight
            if last.calls < last.calls_max:
                self._join_ready(last, last.first)
        self._arrivals.tidy(len(ready))

    def _join_ready(self, partition: Partition, first: WorkUnit[Any]) -> None:
        partition.is_ready = True
        self._ready[partition] = None
        self.ready_weight += partition.weight
        self._arrivals.noted.append(first)


class FusionCore:
    """The waiting units of all operations and the calls in flight.

    Operations share the slots, one for each call in flight, and the weight capacity, which counts
    what waits and what flies.
    """

    def __init__(
        self,
        operations: Mapping[str, tuple[BatchPolicy, ConcurrencyLimiter]],
        *,
        slots: int,
        weight_capacity: int,
    ) -> None:
        if slots < 1:
            raise ValueError(f"slots must be at least 1, not {slots}")
        self._backlogs: Final = {
            name: _Backlog(name, policy, limiter, weight_capacity)
            for name, (policy, limiter) in operations.items()
        }
        self._turns: Final = deque(self._backlogs.values())
        self._slots_free = slots
        self._weight = 0
        self._waiting = 0
        """Units that have not left with a call. With none a pump has nothing to look at."""
        self._weight_capacity: Final = weight_capacity

    @property
    def weight(self) -> int:
        """What waits and flies; zero when there is nothing to do or to wait for."""
        return self._weight

    @property
    def load(self) -> float:
        """What waits and flies, as a share of the capacity."""
        return self._weight / self._weight_capacity

    def admit(self, operation: str, weight: int) -> None:
        """Check that there is room for units of so much weight together.

        Raises:
            Overloaded: What waits and flies would pass the operation's ceiling, or its own units
                their share. What is heavier than that is let in when there is nothing else, or it
                could never be.
        """
        backlog = self._backlogs[operation]
        if (self._weight + weight > backlog.total_max and self._weight) or (
            backlog.weight + weight > backlog.own_max and backlog.weight
        ):
            raise Overloaded

    def offer(
        self,
        operation: str,
        partition: Hashable | None,
        weight: int,
        work: C,
        now: float,
        *,
        is_admitted: bool = False,
    ) -> WorkUnit[C]:
        """Let a unit wait for a call; one that is not admitted yet only if there is room.

        Raises:
            Overloaded: See `admit`.
        """
        assert weight > 0, "a unit without weight would escape every bound"
        if not is_admitted:
            self.admit(operation, weight)
        self._weight += weight
        self._waiting += 1
        return self._backlogs[operation].add(partition, weight, work, now)

    def enlarge(self, unit: WorkUnit[Any], weight: int) -> bool:
        """Add weight, admitted before, to a unit that waits; False if it left or would be full."""
        partition = unit.waiting_in
        if partition is None:
            return False
        backlog = partition.backlog
        if unit.weight + weight > backlog.weight_max:
            return False
        # Done here and not in the backlog: a wide push does it for every message.
        unit.weight += weight
        partition.weight += weight
        if partition.is_ready:
            backlog.ready_weight += weight
        backlog.weight += weight
        self._weight += weight
        return True

    def is_under_way(self, operation: str, partition: Hashable) -> bool:
        """Tell whether units of a partition wait or are in flight."""
        return self._backlogs[operation].has(partition)

    def withdraw(self, unit: WorkUnit[Any]) -> bool:
        """Take back a unit whose client is gone; False if it already left with a call."""
        partition = unit.waiting_in
        if partition is None:
            return False
        partition.backlog.remove(unit, partition)
        self._weight -= unit.weight
        self._waiting -= 1
        return True

    def take_ready(self, now: float) -> list[Call]:
        """Return the calls to start now. They count as in flight until they are settled."""
        calls: list[Call] = []
        passed_over = 0
        while self._waiting and self._slots_free and passed_over < len(self._turns):
            backlog = self._turns[0]
            self._turns.rotate(-1)
            due_at = backlog.due_at()
            if due_at is None or due_at > now:
                passed_over += 1
                continue
            passed_over = 0
            call = backlog.take(now)
            calls.append(call)
            self._slots_free -= 1
            self._waiting -= len(call.units)
        return calls

    def settle(self, call: Call, now: float, *, succeeded: bool) -> None:
        """Free the slot and the partitions of a call that came back, and let the limiter learn."""
        assert call.is_in_flight, "a call comes back once"
        call.is_in_flight = False
        self._backlogs[call.operation].settle(call, now, succeeded=succeeded)
        self._slots_free += 1
        self._weight -= call.weight

    def next_due(self, now: float) -> float | None:
        """Return when `take_ready` will next have something if nothing else happens.

        That is `now` if it has something already, and None if time alone brings nothing.
        """
        if not (self._waiting and self._slots_free):
            return None
        due = [at for backlog in self._turns if (at := backlog.due_at()) is not None]
        return max(now, min(due)) if due else None
