import pytest


@pytest.mark.parametrize(
    ("offsets", "after", "to", "found"),
    [
        ("{[2,4),[6,8)}", 0, 10, [2, 3, 6, 7]),
        ("{[2,4),[6,8)}", 2, 6, [3, 6]),
        ("{[2,4)}", 3, 10, None),
        ("{}", 0, 10, None),
        (None, 0, 10, None),
    ],
)
async def test_the_offsets_of_a_set_that_lie_in_a_range_are_listed(log, offsets, after, to, found):
    query = "select skep.offsets_in($1::text::int8multirange, $2, $3)"

    assert await log.value(query, offsets, after, to) == found
