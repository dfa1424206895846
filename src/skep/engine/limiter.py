"""Decide how many calls of one operation the database takes well at the moment.

`StaticLimiter` is a fixed number. `VegasLimiter` measures: it raises its limit while calls come
back as fast as they ever do, and lowers it when they begin to queue inside the database. Both are
pure: they learn the time from their caller, and change only inside `record`.
"""

from dataclasses import dataclass
from typing import Final, Protocol

_PROBES: Final = 3
"""Calls that must have been alone before a floor counts as measured: one may be unlucky."""

_QUEUE_LOW: Final = 2.0
_QUEUE_HIGH: Final = 4.0


class ConcurrencyLimiter(Protocol):
    """A limit on calls in flight that may learn from each call that comes back."""

    @property
    def limit(self) -> int:
        """Calls that may be in flight, at least one."""
        ...

    def record(
        self, rtt_s: float, in_flight: int, now: float, succeeded: bool, *, weight: int = 1
    ) -> None:
        """Learn from a call that came back `now`, of the `in_flight` ones of its operation.

        It `succeeded` if the database did what it asked at the first try.
        """
        ...


class StaticLimiter:
    """Always the same limit."""

    def __init__(self, cap: int) -> None:
        self._cap: Final = _at_least_one(cap)

    @property
    def limit(self) -> int:
        """The cap."""
        return self._cap

    def record(
        self, rtt_s: float, in_flight: int, now: float, succeeded: bool, *, weight: int = 1
    ) -> None:
        """Learn nothing."""


class VegasLimiter:
    """Keeps a small, steady number of calls queueing inside the database.

    The idea is that of TCP Vegas. A call's floor is the least it takes when nothing is in its
    way, and up to `spread` times that is chance; of what it took, `1 - spread * floor / rtt` is
    the part spent queueing. The average part times the calls in flight is how many of them queue
    at any moment. Below `_QUEUE_LOW` the database has room and the limit grows by one, if calls
    have been using all of it; above `_QUEUE_HIGH` it shrinks by one; once per interval, which
    lasts `interval_s` and long enough to see what the limit did. The cap is a ceiling and not an
    operating point: past the knee, more calls in flight only make each of them slower, while the
    same units in fewer calls cost the database less.

    Two things would spoil the floor:

    * Calls differ. One that carries a thousand items takes longer than one that carries ten, and
      would look as if it had queued. So a call is measured against calls of its own weight or
      more, and parts are averaged, not times. A part is below one, so a single call held up by a
      checkpoint cannot outweigh the others.
    * Floors age. The database may become slower for good, so a floor is forgotten after
      `floor_s`. Under constant load, calls that queue would then set the next one, the queue
      would become invisible and the limit would creep up to the cap. So if no call has been alone
      for half that time, and at the very start, the limit is one until three calls have been.

    A failed call says nothing about queueing: a refusal is quick and a repetition slow, whatever
    the load. But when nothing succeeds for a whole interval the limit shrinks.
    """

    def __init__(
        self,
        cap: int,
        *,
        start: int = 2,
        spread: float = 1.5,
        interval_s: float = 0.1,
        floor_s: float = 10.0,
    ) -> None:
        self._cap: Final = _at_least_one(cap)
        self._spread: Final = spread
        self._interval_s: Final = interval_s
        self._interval = _Interval(began_at=0.0)
        self._limit = min(_at_least_one(start), cap)
        self._floors: Final = RttFloors(floor_s)
        self._last_return_at = float("-inf")
        self._probes_left = _PROBES

    @property
    def limit(self) -> int:
        """The limit, between one and the cap."""
        return 1 if self._probes_left else self._limit

    def record(
        self, rtt_s: float, in_flight: int, now: float, succeeded: bool, *, weight: int = 1
    ) -> None:
        """Learn from a call that came back; see `ConcurrencyLimiter.record`."""
        # Whatever flew beside a call is still in flight or came back after it left. A microsecond
        # is forgiven because the time it left is computed, with a rounding error.
        was_alone = in_flight == 1 and now - rtt_s >= self._last_return_at - 1e-6
        self._last_return_at = now
        queued_part = None
        if succeeded and rtt_s > 0:
            self._floors.note(rtt_s, weight, now, was_alone=was_alone)
            queued_part = max(0.0, 1 - self._spread * self._floors.of(weight) / rtt_s)
        if self._is_probing(now, was_alone=was_alone and succeeded):
            return
        self._interval.add(queued_part, in_flight)
        if self._interval.is_over(now, lasting_s=self._interval_s, calls_min=2 * self._limit):
            self._adjust(self._interval)
            self._interval = _Interval(began_at=now)

    def _is_probing(self, now: float, *, was_alone: bool) -> bool:
        """Tell whether the call belongs to a probe, and see to it that probes begin and end."""
        if self._probes_left:
            self._probes_left -= was_alone
            return True
        if self._limit > 1 and self._floors.is_probe_due(now):
            self._probes_left = _PROBES
        return False

    def _adjust(self, interval: "_Interval") -> None:
        queued = interval.queued_calls
        if queued is None or queued > _QUEUE_HIGH:
            self._limit = max(self._limit - 1, 1)
        elif queued < _QUEUE_LOW and interval.in_flight_max >= self._limit:
            self._limit = min(self._limit + 1, self._cap)


@dataclass(slots=True, eq=False)
class _Interval:
    """What came back since the last adjustment."""

    began_at: float
    calls: int = 0
    successes: int = 0
    queued_parts: float = 0.0
    in_flight_max: int = 0

    def add(self, queued_part: float | None, in_flight: int) -> None:
        """Count a call; the part is None if it failed."""
        self.calls += 1
        self.in_flight_max = max(self.in_flight_max, in_flight)
        if queued_part is not None:
            self.successes += 1
            self.queued_parts += queued_part

    def is_over(self, now: float, *, lasting_s: float, calls_min: int) -> bool:
        return self.calls >= calls_min and now - self.began_at >= lasting_s

    @property
    def queued_calls(self) -> float | None:
        """How many calls queued at a time, on average; None if none succeeded."""
        if not self.successes:
            return None
        return self.in_flight_max * self.queued_parts / self.successes


class RttFloors:
    """The least time a call took of late, by weight.

    Weights are classed by powers of two. The floor of a class is the least seen in it or in a
    heavier one, which takes no less. That matters because probes are heavy: more units gather while
    only one call may leave.

    Times are kept in two halves, the present and the previous, which makes a sliding window of
    between half of `floor_s` and all of it out of two numbers per class.
    """

    def __init__(self, floor_s: float) -> None:
        self._half_s: Final = floor_s / 2
        self._half_began_at = float("-inf")
        self._last_alone_at = float("-inf")
        self._present: dict[int, float] = {}
        self._previous: dict[int, float] = {}

    def note(self, rtt_s: float, weight: int, now: float, *, was_alone: bool) -> None:
        """Take in what a call took, and whether it was the only one in flight all that time."""
        age_s = now - self._half_began_at
        if age_s >= self._half_s:
            self._previous = self._present if age_s < 2 * self._half_s else {}
            self._present = {}
            self._half_began_at = now
        if was_alone:
            self._last_alone_at = now
        weight_class = weight.bit_length()
        self._present[weight_class] = min(rtt_s, self._present.get(weight_class, rtt_s))

    def of(self, weight: int) -> float:
        """Return the floor of a weight that has been noted."""
        weight_class = weight.bit_length()
        return min(
            rtt_s
            for half in (self._present, self._previous)
            for noted_class, rtt_s in half.items()
            if noted_class >= weight_class
        )

    def is_probe_due(self, now: float) -> bool:
        """Tell whether the floors may soon rest on calls that queued."""
        return now - self._last_alone_at >= self._half_s


def _at_least_one(bound: int) -> int:
    if bound < 1:
        raise ValueError(f"a limit must be at least 1, not {bound}")
    return bound
