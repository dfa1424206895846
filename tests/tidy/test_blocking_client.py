"""The blocking client is what the generator makes of the one on asyncio."""

import pytest

from tests.tidy.tree import short
from tools.generate_blocking_client import convert, outdated


def test_the_blocking_client_is_current():
    late = [short(path) for path in outdated()]

    assert late == [], "run `python tools/generate_blocking_client.py`"


@pytest.mark.parametrize(
    ("source", "twin"),
    [
        ("async def f():\n    await g()\n", "def f():\n    g()\n"),
        ("async with a as b:\n    pass\n", "with a as b:\n    pass\n"),
        ("def f(x: AsyncIterable[A]): ...\n", "def f(x: Iterable[A]): ...\n"),
        ("from skep.client.aio.a import b\n", "from skep.client.blocking.a import b\n"),
        (
            '"""Use `async for` on asyncio,\nand `await` it."""\n',
            '"""Use `for` that blocks,\nand `await` it."""\n',
        ),
        ("if a:\n    b()\n# why\nc()\n", "if a:\n    b()\n# why\nc()\n"),
    ],
)
def test_a_module_is_converted_word_by_word(source, twin):
    assert convert(source) == twin
