"""The drain of the spill, as far as no message is needed: when it checks, and that it ends."""

import asyncio
from types import SimpleNamespace
from unittest.mock import Mock

from skep.broker.failover.drain import SpillDrain

EMPTY = SimpleNamespace(board=SimpleNamespace(has_backlog=False))


def drain_of(spill):
    parts = "caller directory partitions rule_book open_envelope announcer due"
    return SpillDrain(
        spill, **{name: Mock() for name in parts.split()}, hash_seed=0, may_drain=lambda: True
    )


async def test_it_ends_also_if_it_is_woken_in_the_same_moment():
    drain = drain_of(EMPTY)
    drain.start()
    await asyncio.sleep(0)  # it has checked, and waits to be woken

    drain.wake()
    stopping = asyncio.ensure_future(drain.stop())
    ended, _ = await asyncio.wait([stopping], timeout=5)

    assert ended == {stopping}
