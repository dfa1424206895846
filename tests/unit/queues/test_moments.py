from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.broker.timestamps import in_utc, parse_moment, spell_moment
from skep.model.errors import BadRequest


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-01T12:00:00Z", datetime(2026, 1, 1, 12, tzinfo=UTC)),
        ("2026-01-01T12:00:00.123456+02:00", datetime(2026, 1, 1, 10, 0, 0, 123456, UTC)),
        ("2026-01-01T12:00:00", datetime(2026, 1, 1, 12, tzinfo=UTC)),
        ("2026-01-01", datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_moment_is_read_and_is_utc_without_a_zone(text, moment):
    assert parse_moment("timestamp", text) == moment


@pytest.mark.parametrize("text", ["", "now", "12:00", "2026-13-01", "0001-01-01T00:00:00+05:00"])
def test_what_is_no_moment_is_refused_by_its_field(text):
    with pytest.raises(BadRequest, match="subscriptionTimestamp must be an ISO 8601 timestamp"):
        parse_moment("subscriptionTimestamp", text)


def test_a_moment_is_spelled_in_utc_with_milliseconds():
    moment = datetime(2026, 1, 1, 1, 0, 0, 123999, timezone(timedelta(hours=2)))

    assert spell_moment(moment) == "2025-12-31T23:00:00.123Z"


@given(st.datetimes(timezones=st.just(UTC)))
def test_what_was_spelled_is_read_as_the_same_millisecond(moment):
    read = parse_moment("timestamp", spell_moment(moment))

    assert timedelta(0) <= moment - read < timedelta(milliseconds=1)


def test_a_moment_without_a_zone_is_in_utc_and_one_with_a_zone_stays():
    paris = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=1)))

    assert in_utc(datetime.fromisoformat("2026-01-01T12:00:00")) == datetime(
        2026, 1, 1, 12, tzinfo=UTC
    )
    assert in_utc(paris) is paris
    assert in_utc(None) is None
