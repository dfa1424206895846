"""Which hours are computed: pure decisions."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.model.errors import BadRequest
from skep.spark.analytics.hours import (
    DAY,
    HOUR,
    SETTLE,
    Hours,
    begin_of_day,
    choose_hours,
)

NOW = datetime(2026, 3, 5, 14, 30, tzinfo=UTC)
OVER = datetime(2026, 3, 5, 14, tzinfo=UTC)


def choose(watermark=None, since=None, until=None, now=NOW, keep_days=90):
    return choose_hours(now, watermark, since, until, keep_days=keep_days)


def test_the_first_run_goes_back_a_week():
    assert choose() == (OVER - 7 * DAY, OVER)
    assert choose(keep_days=2) == (begin_of_day(NOW) - 2 * DAY, OVER)


def test_a_run_goes_on_at_the_watermark_and_looks_at_the_hour_before_it_again():
    assert choose(OVER - 3 * HOUR) == (OVER - 4 * HOUR, OVER)


def test_nothing_is_new_until_another_hour_is_over_and_has_settled():
    assert choose(OVER) is None
    assert choose(OVER, now=OVER + HOUR + SETTLE - timedelta(seconds=1)) is None
    assert choose(OVER, now=OVER + HOUR + SETTLE) == (OVER - HOUR, OVER + HOUR)


def test_chosen_times_are_cut_to_whole_hours_and_need_nothing_new():
    chosen = choose(OVER, since=OVER - timedelta(minutes=90), until=OVER - timedelta(minutes=10))

    assert chosen == (OVER - 2 * HOUR, OVER - HOUR)


@pytest.mark.parametrize(
    ("since", "until", "complaint"),
    [
        (None, OVER + HOUR, "when it is over"),
        (OVER - 200 * DAY, None, "results are kept for 90 days"),
        (OVER - HOUR, OVER - HOUR, "no whole hour"),
        (OVER, None, "no whole hour"),
        (None, OVER - 2 * HOUR, "no whole hour"),
    ],
)
def test_hours_that_cannot_be_computed_are_refused(since, until, complaint):
    with pytest.raises(BadRequest, match=complaint):
        choose(OVER, since, until)


@settings(deadline=None)
@given(st.integers(0, 800), st.integers(1, 200))
def test_days_follow_each_other_without_a_gap(start, count):
    since = OVER + start * HOUR
    hours = Hours(since, since + count * HOUR)

    days = list(hours.by_day())

    assert days[0].since == hours.since
    assert days[-1].upto == hours.upto
    assert all(one.upto == other.since for one, other in pairwise(days))
    assert all(begin_of_day(day.since) == begin_of_day(day.upto - HOUR) for day in days)
