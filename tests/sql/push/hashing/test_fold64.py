"""A product, its halves joined."""

import pytest


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [(3, 5, 15), (-1, -1, -1), (2**62, 4, 1), (-1, 2, -1)],
)
async def test_the_upper_half_falls_onto_the_lower(log, one, other, expected):
    assert await log.value("select skep.fold64($1, $2)", one, other) == expected
