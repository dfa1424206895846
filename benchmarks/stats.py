"""The arithmetic of the benchmark: percentiles, rates and spreads. Nothing here reads a clock."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


def percentile(ascending: Sequence[float], percent: float) -> float | None:
    """Return the smallest sample that at least `percent` of all samples do not exceed.

    Nearest rank, so the answer is always a latency that somebody really had; None without samples.
    """
    if not ascending:
        return None
    rank = math.ceil(len(ascending) * percent / 100)
    return ascending[max(rank, 1) - 1]


def per(amount: float | None, count: float) -> float | None:
    """Return `amount / count`, or None where there is nothing to divide or to divide by."""
    if amount is None or count <= 0:
        return None
    return amount / count


def growth(values: Sequence[float | None]) -> float | None:
    """Return how many times the first value the largest of the others is; below 1 it shrank.

    None if a value is missing or the first is zero.
    """
    first, *others = values
    known = [value for value in others if value is not None]
    if not first or not known or len(known) != len(others):
        return None
    return max(known) / first


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over the repeats of a scenario: the median speaks, the range says how far."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Spread | None":
        """Summarise the values that were measured; None if none was."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        return cls(statistics.median(known), min(known), max(known), len(known))


def share_out(total: int, parts: int) -> list[int]:
    """Split `total` into `parts` whole numbers that differ by at most one."""
    base, extra = divmod(total, parts)
    return [base + (1 if index < extra else 0) for index in range(parts)]
