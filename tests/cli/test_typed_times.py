"""Times as people type them."""

from datetime import UTC, datetime, timedelta

import pytest

from skep.cli.shared.options import read_fixed_moment, read_moment
from skep.model.errors import BadRequest


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-07-01T12:00:00Z", datetime(2026, 7, 1, 12, tzinfo=UTC)),
        ("2026-07-01T12:00:00+02:00", datetime(2026, 7, 1, 10, tzinfo=UTC)),
        ("2026-07-01 12:00", datetime(2026, 7, 1, 12, tzinfo=UTC)),
        ("2026-07-01", datetime(2026, 7, 1, tzinfo=UTC)),
    ],
)
def test_a_moment_is_utc_unless_it_names_a_zone(text, moment):
    assert read_moment(text) == moment


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("1.5h", timedelta(hours=1.5)),
        ("7d ago", timedelta(days=7)),
    ],
)
def test_a_duration_is_so_long_ago(text, ago):
    before = datetime.now(UTC)

    found = read_moment(text)

    assert before - ago <= found <= datetime.now(UTC) - ago


@pytest.mark.parametrize("text", ["", "soon", "5", "5w", "99999999999999d", "2026-13-01"])
def test_anything_else_is_refused_with_what_to_write(text):
    with pytest.raises(BadRequest, match="90s, 15m, 2h, 7d"):
        read_moment(text)


def test_what_is_known_by_its_times_takes_only_those_that_stay_the_same():
    assert read_fixed_moment("2026-07-01") == datetime(2026, 7, 1, tzinfo=UTC)
    with pytest.raises(BadRequest, match="depends on when the command runs"):
        read_fixed_moment("2h")
