import pytest

from tests.sql.support.letters import Filter, bury

QUERY = "select skep.count_dead_letters($1, $2, $3, $4, $5, $6, $7, $8)"


@pytest.mark.parametrize(("bound", "expected"), [(10, 3), (3, 3), (2, 3), (1, 2), (0, 1)])
async def test_the_count_is_exact_up_to_the_bound_and_one_more_beyond_it(log, bound, expected):
    await bury(log, "x", "y", "z")

    assert await log.value(QUERY, *Filter(), bound) == expected


async def test_only_what_matches_is_counted(log):
    await bury(log, "x", "y", error="red")
    await bury(log, "z", error="blue")

    assert await log.value(QUERY, *Filter(error="red"), 10) == 2
