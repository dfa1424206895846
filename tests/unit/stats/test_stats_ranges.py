from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.broker.stats.ranges import SPAN_MAX, chart_range
from skep.model.errors import BadRequest

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("hours", "minutes", "of_many"),
    [
        *((1, 1, 1), (1.05, 1, 1), (1.1, 1, 5), (6.01, 1, 5)),
        *((7, 15, 15), (24, 15, 15), (25, 60, 60), (168, 60, 60)),
    ],
)
def test_a_longer_time_has_longer_buckets(hours, minutes, of_many):
    covered = chart_range(NOW - timedelta(hours=hours), None, now=NOW)

    assert [covered.bucket_minutes, covered.for_many().bucket_minutes] == [minutes, of_many]


def test_defect_39_buckets_of_a_long_time_are_as_long_as_their_rates_say():
    covered = chart_range(NOW - timedelta(days=8), None, now=NOW)
    bucket = covered.bucket_of(NOW - timedelta(days=2))

    assert covered.bucket_minutes == 360
    assert bucket.hour % 6 == bucket.minute == bucket.second == 0
    assert covered.seconds_in(bucket) == 360 * 60


def test_minutes_that_are_not_kept_any_more_are_charted_by_the_hour():
    covered = chart_range(
        NOW - timedelta(days=5), NOW - timedelta(days=5) + timedelta(minutes=30), now=NOW
    )

    assert covered.is_hourly
    assert covered.bucket_minutes == 60


def test_an_hour_until_now_is_the_default():
    covered = chart_range(None, None, now=NOW)

    assert [covered.since, covered.until] == [NOW - timedelta(hours=1), NOW]
    assert not covered.is_hourly


@pytest.mark.parametrize(
    ("since", "until"),
    [
        (NOW, NOW),
        (NOW, NOW - timedelta(seconds=1)),
        (NOW - SPAN_MAX - timedelta(seconds=1), NOW),
        (None, datetime.min.replace(tzinfo=UTC)),
    ],
)
def test_a_time_that_makes_no_sense_is_refused(since, until):
    with pytest.raises(BadRequest):
        chart_range(since, until, now=NOW)


@given(
    st.timedeltas(timedelta(minutes=1), timedelta(days=30)),
    st.floats(min_value=0, max_value=1),
)
def test_the_seconds_of_all_buckets_add_up_to_the_time_covered(span, share):
    covered = chart_range(NOW - span, NOW, now=NOW)
    moment = covered.since + share * span

    bucket, total = covered.bucket_of(covered.since), 0.0
    while bucket < covered.until:
        total += covered.seconds_in(bucket)
        bucket += timedelta(minutes=covered.bucket_minutes)

    # A last bucket of less than a second counts as one, so that no rate explodes.
    assert total == pytest.approx(span.total_seconds(), abs=2)
    assert covered.bucket_of(moment) <= moment
