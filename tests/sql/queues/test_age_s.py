from datetime import timedelta

import pytest

from tests.sql.support.log import NOON


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0, 0), (0.9, 0), (61.5, 61), (-5, 0), (86_400 * 400, 86_400 * 400)]
)
async def test_whole_seconds_that_have_passed(log, seconds, expected):
    moment = NOON - timedelta(seconds=seconds)

    assert await log.value("select skep.age_s($1, $2)", moment, NOON) == expected


async def test_no_moment_has_no_age(log):
    assert await log.value("select skep.age_s(null, $1)", NOON) == 0
