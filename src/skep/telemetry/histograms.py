"""Histograms: how often a value fell between fixed bounds.

Pure and small: an observation is one search and two additions, so that hot paths can afford it.
Histograms with the same bounds add up, over processes and over time; averages would not.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

DURATION_BOUNDS_S: Final = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)
"""From half a millisecond to the longest poll."""

COUNT_BOUNDS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0)
"""For things that come in batches."""

LAG_BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 60000, 600000)
"""From push to delivery; the rollups in the database have one count for each, and one above."""


class Histogram:
    """Counts by bound, the last one for what is above all of them, and the sum of all values."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds: Final = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value; a bound itself belongs below."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self.counts)


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Estimate the value below which a share of the observations lies; None without any.

    Within its bucket a value is taken to be as likely anywhere. What is above the last bound is
    told as that bound: nothing more is known of it.
    """
    total = sum(counts)
    if not total:
        return None
    rank = share * total
    below = 0
    for index, count in enumerate(counts[: len(bounds)]):
        if count and below + count >= rank:
            lower = bounds[index - 1] if index else 0
            return lower + (bounds[index] - lower) * max(rank - below, 0) / count
        below += count
    return float(bounds[-1])
