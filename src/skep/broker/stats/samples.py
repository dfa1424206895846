"""What a worker was doing in some time, and how such samples add up. Pure.

A sample holds counters, which are summed up, and gauges, of which the least, the greatest, the
latest and the average are kept. Samples of one worker merge over time, and those of several workers
over an installation.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from skep.telemetry.histograms import LAG_BOUNDS_MS

LAG_COUNTERS: Final = tuple(f"lag_{place}" for place in range(len(LAG_BOUNDS_MS) + 1))
"""The counters that hold the histogram of lags, by place. Places without messages are left out."""


class Gauge(msgspec.Struct, array_like=True, frozen=True):
    """A value that was looked at several times."""

    times: int
    sum: float
    least: float
    greatest: float
    last: float

    @classmethod
    def of(cls, value: float) -> "Gauge":
        """Make the gauge of a value that was looked at once."""
        return cls(1, value, value, value, value)

    @property
    def average(self) -> float:
        """The mean of what was seen."""
        return self.sum / self.times

    def merge(self, later: "Gauge") -> "Gauge":
        """Return the gauge of both; of the two latest values the other one's counts."""
        return Gauge(
            self.times + later.times,
            self.sum + later.sum,
            min(self.least, later.least),
            max(self.greatest, later.greatest),
            later.last,
        )


class Sample(msgspec.Struct, frozen=True):
    """What a worker was doing in some time."""

    counters: dict[str, int]
    gauges: dict[str, Gauge]

    def merge(self, later: "Sample") -> "Sample":
        """Return the sample of both times, or of two workers."""
        counters = self.counts
        counters.update(later.counters)
        gauges = dict(self.gauges)
        for name, gauge in later.gauges.items():
            gauges[name] = gauges[name].merge(gauge) if name in gauges else gauge
        return Sample(counters, gauges)

    @property
    def counts(self) -> Counter[str]:
        """The counters; one that nothing was added to is 0."""
        return Counter(self.counters)

    def count(self, name: str) -> int:
        """Return a counter, 0 when nothing was counted."""
        return self.counters.get(name, 0)

    @property
    def lag_counts(self) -> list[int]:
        """Messages by place in the histogram of the time from push to delivery."""
        return [self.count(name) for name in LAG_COUNTERS]

    def average(self, name: str) -> float | None:
        """Return the average of a gauge, None when it was not looked at."""
        gauge = self.gauges.get(name)
        return None if gauge is None else gauge.average


EMPTY: Final = Sample({}, {})


def merge_samples(samples: Iterable[Sample]) -> Sample:
    """Merge samples in their order."""
    merged = EMPTY
    for sample in samples:
        merged = merged.merge(sample)
    return merged


def observe(counters: Mapping[str, int], gauges: Mapping[str, Iterable[float]]) -> Sample:
    """Make a sample of counters, and of gauges that were looked at any number of times."""
    seen: dict[str, Gauge] = {}
    for name, values in gauges.items():
        for value in values:
            gauge = Gauge.of(value)
            seen[name] = seen[name].merge(gauge) if name in seen else gauge
    return Sample({name: count for name, count in counters.items() if count}, seen)


encode_sample = msgspec.json.encode
decode_sample = msgspec.json.Decoder(Sample).decode
