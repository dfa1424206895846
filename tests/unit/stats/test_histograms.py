from bisect import bisect_left
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.telemetry.histograms import COUNT_BOUNDS, LAG_BOUNDS_MS, Histogram, quantile

VALUES = st.lists(st.floats(min_value=0, max_value=10_000), min_size=1)


@given(VALUES)
def test_every_value_is_counted_once_and_summed(values):
    histogram = Histogram(COUNT_BOUNDS)

    for value in values:
        histogram.observe(value)

    assert histogram.count == len(values)
    assert histogram.sum == pytest.approx(sum(values))


def test_a_bound_belongs_below_and_what_is_above_all_bounds_has_a_place():
    histogram = Histogram((1, 10))

    for value in (0.5, 1, 1.1, 10, 11):
        histogram.observe(value, times=2)

    assert histogram.counts == [4, 4, 2]


@given(VALUES, st.floats(min_value=0, max_value=1))
def test_a_quantile_lies_within_a_bucket_of_the_true_one(values, share):
    histogram = Histogram(LAG_BOUNDS_MS)
    for value in values:
        histogram.observe(value)
    true = sorted(values)[max(ceil(share * len(values)) - 1, 0)]

    estimate = quantile(LAG_BOUNDS_MS, histogram.counts, share)

    place = bisect_left(LAG_BOUNDS_MS, true)
    assert (0, *LAG_BOUNDS_MS)[place] <= estimate <= LAG_BOUNDS_MS[place]


LAGS = st.lists(st.integers(min_value=0, max_value=2_000_000_000), min_size=1)


@given(LAGS, st.lists(st.floats(min_value=0, max_value=1), min_size=2))
def test_no_quantile_exceeds_what_was_observed(values, shares):
    histogram = Histogram(LAG_BOUNDS_MS)
    for value in values:
        histogram.observe(value)

    found = [
        quantile(LAG_BOUNDS_MS, histogram.counts, share, most=max(values))
        for share in sorted(shares)
    ]

    assert found == sorted(found)
    assert 0 <= found[0] <= found[-1] <= max(values)


def test_a_lag_of_minutes_is_not_told_as_many_minutes():
    counts = [0] * 14 + [7, 0]  # between one minute and ten

    assert quantile(LAG_BOUNDS_MS, counts, 0.95, most=160_000) == pytest.approx(155_000)


def test_lags_of_hours_are_told_apart():
    counts = Histogram(LAG_BOUNDS_MS)
    for hours in (1, 2, 20):
        counts.observe(hours * 3_600_000, times=10)

    median = quantile(LAG_BOUNDS_MS, counts.counts, 0.5, most=20 * 3_600_000)

    assert 3_600_000 < median < 3 * 3_600_000


def test_quantiles_rise_with_their_share():
    counts = [5, 0, 3, 2] + [0] * 12

    shares = [quantile(LAG_BOUNDS_MS, counts, share) for share in (0.1, 0.5, 0.6, 0.95, 1)]

    assert shares == sorted(shares)
    assert shares[-1] == 10


def test_nothing_has_no_quantile_and_what_is_above_all_bounds_is_told_as_the_last():
    above = [0] * len(LAG_BOUNDS_MS) + [3]

    assert quantile(LAG_BOUNDS_MS, [0] * 16, 0.5) is None
    assert quantile(LAG_BOUNDS_MS, above, 0.5) == LAG_BOUNDS_MS[-1]
    most = 2 * LAG_BOUNDS_MS[-1]
    assert quantile(LAG_BOUNDS_MS, above, 0.5, most=most) == most * 0.75
