"""Times without a time zone are those of the session, as in Spark's own functions."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql.types import ArrayType, StructField, StructType, TimestampNTZType, TimestampType

from skep.spark.decode.payloads import payload_decoder
from skep.spark.decode.time_zones import UnknownTimeZone, session_zone, zone_of

NOON = datetime.fromisoformat("2026-07-01T12:00:00")
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("name", "zone"),
    [
        ("UTC", UTC),
        ("Z", UTC),
        ("Europe/Berlin", BERLIN),
        ("+05:30", timezone(timedelta(hours=5, minutes=30))),
        ("-8", timezone(-timedelta(hours=8))),
        ("GMT+2", timezone(timedelta(hours=2))),
        ("UTC-03:00", timezone(-timedelta(hours=3))),
        ("+0530", timezone(timedelta(hours=5, minutes=30))),
    ],
)
def test_zones_are_named_as_in_java(name, zone):
    assert zone_of(name) == zone


@pytest.mark.parametrize("name", ["Nowhere/Else", "PST", "../etc/passwd", ""])
def test_a_zone_that_python_does_not_know_is_refused_by_name(name):
    with pytest.raises(UnknownTimeZone, match="set spark"):
        zone_of(name)


def test_outside_of_tasks_the_zone_of_the_machine_counts():
    decode = payload_decoder(TimestampType())

    assert session_zone() is None
    assert decode(b'"2026-07-01T12:00:00"') == NOON.astimezone()


def test_a_time_without_a_zone_is_one_of_the_session_wherever_it_stands():
    nested = StructType([StructField("at", ArrayType(TimestampType()))])
    decode = payload_decoder(nested, lambda: BERLIN)

    found = decode(b'{"at": ["2026-07-01T12:00:00", "2026-07-01T12:00:00Z", null]}')

    assert found["at"] == [NOON.replace(tzinfo=BERLIN), NOON.replace(tzinfo=UTC), None]


def test_a_time_that_has_a_zone_does_not_fit_a_column_that_has_none():
    decode = payload_decoder(TimestampNTZType())

    assert decode(b'"2026-07-01T12:00:00"') == NOON
    with pytest.raises(ValueError, match="timezone"):
        decode(b'"2026-07-01T12:00:00+02:00"')
