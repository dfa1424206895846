"""When an outage begins, whom it cuts short, and when it is over."""

import asyncio

import pytest

from skep.broker.failover.outage import Outage
from skep.model.errors import BadRequest, Unavailable
from tests.support.virtual_time import run_virtually


class SlowExecutor:
    """Takes as long as it is told, and remembers how it ended."""

    def __init__(self, seconds=0.0, error=None):
        self._seconds = seconds
        self._error = error
        self.ending = None

    async def execute(self, batch, *, is_repeated):
        try:
            await asyncio.sleep(self._seconds)
        except asyncio.CancelledError:
            self.ending = "cut"
            raise
        if self._error is not None:
            raise self._error
        self.ending = (batch, is_repeated)


def test_an_outage_begins_only_when_the_connections_stay_away():
    async def story():
        outage = Outage(after_s=1)
        outage.hear(False)
        await asyncio.sleep(0.9)
        seen = [outage.is_on]
        outage.hear(True)
        await asyncio.sleep(5)
        seen.append(outage.is_on)
        outage.hear(False)
        await asyncio.sleep(1.1)
        seen.append(outage.is_on)
        outage.hear(True)
        return [*seen, outage.is_on]

    assert run_virtually(story()) == [False, False, True, False]


def test_a_call_under_way_is_cut_when_the_outage_begins():
    async def story():
        outage, slow = Outage(after_s=1), SlowExecutor(100)
        outage.hear(False)
        with pytest.raises(Unavailable):
            await outage.cut_short(slow.execute)([1], is_repeated=False)
        return slow.ending, asyncio.get_running_loop().time()

    assert run_virtually(story()) == ("cut", 1)


def test_a_call_during_the_outage_is_not_tried():
    async def story():
        outage, slow = Outage(after_s=1), SlowExecutor()
        outage.begin()
        with pytest.raises(Unavailable):
            await outage.cut_short(slow.execute)([1], is_repeated=False)
        return slow.ending

    assert run_virtually(story()) is None


def test_otherwise_calls_run_as_they_would():
    async def story():
        outage, slow = Outage(after_s=1), SlowExecutor(30)
        await outage.cut_short(slow.execute)([1, 2], is_repeated=True)
        failing = SlowExecutor(error=BadRequest())
        with pytest.raises(BadRequest):
            await outage.cut_short(failing.execute)([], is_repeated=False)
        return slow.ending

    assert run_virtually(story()) == ([1, 2], True)
