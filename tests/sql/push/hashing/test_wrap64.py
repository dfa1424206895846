"""The lowest 64 bits of a number."""

from decimal import Decimal

import pytest


@pytest.mark.parametrize(
    ("number", "bits"),
    [
        (0, 0),
        (-1, -1),
        (2**63 - 1, 2**63 - 1),
        (2**63, -(2**63)),
        (2**64 - 1, -1),
        (2**64, 0),
        (-(2**63) - 1, 2**63 - 1),
        (3 * 2**64 + 5, 5),
        (2**128 - 2, -2),
        (-(2**100) - 7, -7),
    ],
)
async def test_numbers_wrap_round(log, number, bits):
    assert await log.value("select skep.wrap64($1)", Decimal(number)) == bits
