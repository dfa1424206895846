"""64 bits as a number without a sign."""

import pytest


@pytest.mark.parametrize(
    ("bits", "number"), [(0, 0), (5, 5), (2**63 - 1, 2**63 - 1), (-1, 2**64 - 1), (-(2**63), 2**63)]
)
async def test_the_sign_is_a_bit_like_the_others(log, bits, number):
    assert await log.value("select skep.unsigned64($1)", bits) == number
