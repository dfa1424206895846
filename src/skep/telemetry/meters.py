"""The counters of one process: requests, calls, messages by queue.

Plain integers that hot paths add to, never an object per message. `snapshots` exposes them; the
broker adds the increments to the rollups in the database.

The first `exposed_max` queues that are used keep their counters for the life of the process and are
exposed by name; any other queue is dropped when idle, and its counts move to the combined ones.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from time import perf_counter
from typing import Final, NamedTuple, TypeAlias

from skep.telemetry import histograms
from skep.telemetry.group_activity import GroupActivity

QUEUES_EXPOSED: Final = 100
OTHER_QUEUES: Final = ""
"""The name of the combined counters of all other queues."""

NoteLetters: TypeAlias = Callable[[str, int], None]
"""Called with a queue and how many of its messages became dead letters."""


class RouteMeter:
    """Answered requests of one route."""

    __slots__ = ("durations", "statuses")

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.durations: Final = histograms.Histogram(histograms.DURATION_BOUNDS_S)

    def note(self, status: int, began: float) -> None:
        """Count an answer; `began` is the `perf_counter` of the request."""
        self.statuses[status] += 1
        durations, duration_s = self.durations, perf_counter() - began
        durations.counts[bisect_left(histograms.DURATION_BOUNDS_S, duration_s)] += 1
        durations.sum += duration_s


class CallMeter:
    """Executions of one SQL function."""

    __slots__ = ("durations", "failures")

    def __init__(self) -> None:
        self.durations: Final = histograms.Histogram(histograms.DURATION_BOUNDS_S)
        self.failures = 0


class OperationMeter:
    """Batches of one engine operation."""

    __slots__ = ("failures", "in_flight", "messages", "units")

    def __init__(self) -> None:
        self.units: Final = histograms.Histogram(histograms.COUNT_BOUNDS)
        self.messages: Final = histograms.Histogram(histograms.COUNT_BOUNDS)
        self.in_flight = 0
        self.failures = 0


@dataclass(slots=True, eq=False)
class QueueCounters:
    """The counters of a queue, in the order of the rollup columns."""

    push_requests: int = 0
    push_messages: int = 0
    push_bytes: int = 0
    push_duplicates: int = 0
    pop_requests: int = 0
    pop_messages: int = 0
    pop_bytes: int = 0
    pop_empty: int = 0
    redelivered: int = 0
    ack_requests: int = 0
    ack_success: int = 0
    ack_failed: int = 0
    dead_letters: int = 0
    transactions: int = 0
    partitions_created: int = 0
    lag_ms_sum: int = 0


COUNTERS: Final = tuple(each.name for each in fields(QueueCounters))


class QueueDelta(NamedTuple):
    """Increments of a queue's counters."""

    queue: str
    counts: tuple[int, ...]
    """By `COUNTERS`."""
    lag_counts: tuple[int, ...]
    lag_ms_max: int


class QueueMeter(QueueCounters):
    """The counters of one queue, and what was reported of them."""

    __slots__ = ("_told", "lag", "lag_ms_max")

    def __init__(self) -> None:
        super().__init__()
        self.lag_ms_max = 0
        """The maximum since the last report."""
        self.lag: Final = [0] * (len(histograms.LAG_BOUNDS_MS) + 1)
        self._told = [0] * (len(COUNTERS) + len(self.lag))

    def values(self) -> list[int]:
        """Return the counters in their order, then the lag histogram."""
        return [*(getattr(self, name) for name in COUNTERS), *self.lag]

    def tell(self, queue: str) -> QueueDelta | None:
        """Return the increments since the last call; None without any."""
        values = self.values()
        new = tuple(value - told for value, told in zip(values, self._told, strict=True))
        if not any(new):
            return None
        self._told = values
        greatest, self.lag_ms_max = self.lag_ms_max, 0
        return QueueDelta(queue, new[: len(COUNTERS)], new[len(COUNTERS) :], greatest)

    def take_back(self, delta: QueueDelta) -> None:
        """Undo `tell`: the increments could not be reported."""
        new = (*delta.counts, *delta.lag_counts)
        self._told = [told - back for told, back in zip(self._told, new, strict=True)]
        self.lag_ms_max = max(self.lag_ms_max, delta.lag_ms_max)

    def absorb(self, other: "QueueMeter") -> None:
        """Add the counters of another meter, all of which were reported."""
        for name in COUNTERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for index, count in enumerate(other.lag):
            self.lag[index] += count
        self._told = self.values()


class QueueMeters:
    """The meters of all queues."""

    def __init__(self, *, exposed_max: int = QUEUES_EXPOSED) -> None:
        self._exposed_max: Final = exposed_max
        self._by_name: dict[str, QueueMeter] = {}
        self._exposed: dict[str, QueueMeter] = {}
        self._other: Final = QueueMeter()
        self.lag: Final = histograms.Histogram([bound / 1000 for bound in histograms.LAG_BOUNDS_MS])
        """Seconds from push to delivery, over all queues."""

    def of(self, queue: str) -> QueueMeter:
        """Return the meter of a queue. Do not keep it: it may be dropped."""
        meter = self._by_name.get(queue)
        if meter is None:
            meter = self._by_name[queue] = QueueMeter()
            if len(self._exposed) < self._exposed_max:
                self._exposed[queue] = meter
        return meter

    def note_letters(self, queue: str, count: int) -> None:
        """Count messages of a queue that became dead letters."""
        if count:
            self.of(queue).dead_letters += count

    def note_delivery(
        self, meter: QueueMeter, messages: int, lag_s: float, *, is_redelivery: bool
    ) -> None:
        """Count messages that were pushed and delivered together."""
        if lag_s < 0:
            lag_s = 0.0  # clocks differ
        lag_ms = int(lag_s * 1000)
        index = bisect_left(histograms.LAG_BOUNDS_MS, lag_s * 1000)
        self.lag.counts[index] += messages
        self.lag.sum += lag_s * messages
        meter.lag[index] += messages
        meter.lag_ms_sum += lag_ms * messages
        meter.lag_ms_max = max(meter.lag_ms_max, lag_ms)
        if is_redelivery:
            meter.redelivered += messages

    def tell(self) -> list[QueueDelta]:
        """Return the increments of each queue, and drop idle queues."""
        news: list[QueueDelta] = []
        for queue, meter in list(self._by_name.items()):
            delta = meter.tell(queue)
            if delta is not None:
                news.append(delta)
            elif queue not in self._exposed:
                self._other.absorb(meter)
                del self._by_name[queue]
        return news

    def take_back(self, deltas: Iterable[QueueDelta]) -> None:
        """Undo `tell` for increments that could not be reported."""
        for delta in deltas:
            self.of(delta.queue).take_back(delta)

    def totals(self) -> dict[str, list[int]]:
        """Return the counters of the exposed queues, and of all others combined."""
        shown = {queue: meter.values() for queue, meter in self._exposed.items()}
        hidden = [self._other.values()]
        hidden += [m.values() for queue, m in self._by_name.items() if queue not in self._exposed]
        shown[OTHER_QUEUES] = [sum(column) for column in zip(*hidden, strict=True)]
        return {queue: values[: len(COUNTERS)] for queue, values in shown.items()}


class Meters:
    """Everything one process counts."""

    def __init__(self, *, queues_exposed: int = QUEUES_EXPOSED) -> None:
        self.routes: Final[defaultdict[str, RouteMeter]] = defaultdict(RouteMeter)
        self.calls: Final[defaultdict[str, CallMeter]] = defaultdict(CallMeter)
        """By SQL function."""
        self.operations: Final[defaultdict[str, OperationMeter]] = defaultdict(OperationMeter)
        self.queues: Final = QueueMeters(exposed_max=queues_exposed)
        self.groups: Final = GroupActivity()
        self.loop_lag: Final = histograms.Histogram(histograms.DURATION_BOUNDS_S)
        self.unknown_fields = 0
        """Of pushed items."""
        self.missing_payloads = 0
        self.windows_searched = 0
        """By pushes, in the database."""
        self.gauges: Final[dict[str, Callable[[], dict[tuple[str, ...], float]]]] = {}
        """By family: asks for the values of the moment, by the values of the labels."""
        self.counts: Final[dict[str, Callable[[], dict[tuple[str, ...], float]]]] = {}
        """By family: functions that return counts kept elsewhere."""

    def watch(self, family: str, read: Callable[[], float]) -> None:
        """Show a value of the moment."""
        self.gauges[family] = lambda: {(): read()}

    @property
    def requests_total(self) -> int:
        """Requests that were answered."""
        return sum(route.durations.count for route in self.routes.values())

    @property
    def messages_total(self) -> int:
        """Messages pushed and delivered."""
        columns = (COUNTERS.index("push_messages"), COUNTERS.index("pop_messages"))
        totals: Iterable[Sequence[int]] = self.queues.totals().values()
        return sum(values[column] for values in totals for column in columns)
