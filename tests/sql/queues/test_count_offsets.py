import pytest


@pytest.mark.parametrize(("ranges", "expected"), [("{}", 0), ("{[3,4)}", 1), ("{[1,4),[9,11)}", 5)])
async def test_the_offsets_of_all_ranges_are_counted(log, ranges, expected):
    count = "select skep.count_offsets($1::text::int8multirange)"

    assert await log.value(count, ranges) == expected
