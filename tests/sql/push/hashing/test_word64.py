"""Bytes as a number, the lowest first."""

import pytest


@pytest.mark.parametrize(
    ("at", "size", "expected"),
    [
        (0, 8, 0x0807060504030201),
        (1, 4, 0x05040302),
        (8, 1, 0xFF),
        (1, 8, 0xFF08070605040302 - 2**64),
    ],
)
async def test_the_lowest_byte_comes_first(log, at, size, expected):
    assert (
        await log.value("select skep.word64('\\x0102030405060708ff', $1, $2)", at, size) == expected
    )
