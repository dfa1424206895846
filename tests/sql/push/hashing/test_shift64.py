"""Shift without a sign."""

import pytest


@pytest.mark.parametrize(
    ("bits", "by", "expected"), [(8, 1, 4), (-1, 1, 2**63 - 1), (-1, 63, 1), (-(2**63), 32, 2**31)]
)
async def test_zeros_come_from_the_left(log, bits, by, expected):
    assert await log.value("select skep.shift64($1, $2)", bits, by) == expected
