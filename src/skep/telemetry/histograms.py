"""Histograms: how often a value fell between fixed bounds.

Pure and small: an observation is one search and two additions, so that hot paths can afford it.
Histograms with the same bounds add up, over processes and over time; averages would not.
"""

from bisect import bisect_left
from collections.abc import Sequence
from math import inf, isfinite
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

LAG_BOUNDS_MS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000, 600_000),
    *(1_800_000, 3_600_000, 10_800_000, 43_200_000, 86_400_000, 604_800_000),
)
"""From push to delivery, up to a week. The rollups in the database have one count for each, and one
above. Bounds may only be added at the end: the place of a count is all that is stored."""


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


def quantile(
    bounds: Sequence[float], counts: Sequence[int], share: float, *, most: float = inf
) -> float | None:
    """Estimate the value below which a share of the observations lies; None without any.

    Within its bucket a value is taken to be as likely anywhere up to `most`, the greatest value
    observed, which no estimate exceeds. Without it, what is above the last bound is told as that
    bound: nothing more is known of it.
    """
    total = sum(counts)
    if not total:
        return None
    rank = share * total
    below = 0
    last = most if isfinite(most) else bounds[-1]
    for index, count in enumerate(counts):
        if count and below + count >= rank:
            lower = min(bounds[index - 1], last) if index else 0.0
            upper = min(bounds[index], last) if index < len(bounds) else last
            return lower + (upper - lower) * max(rank - below, 0) / count
        below += count
    return float(last)
