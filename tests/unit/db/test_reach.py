"""Whether the database answers: a slow statement is not silence, and neither is a slow process."""

import asyncio

import pytest

from skep.db.access.reach import LOOK_S, SILENT_LOOKS, Reach
from skep.model.errors import Unavailable
from tests.support.virtual_time import VirtualTimeLoop


@pytest.fixture
def arun():
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        yield runner.run


class Pool:
    """Connections whose calls end when the test says so; questions are answered or not."""

    def __init__(self):
        self.connected_count = 1
        self.busy_count = 0
        self.answer_count = 0
        self.asked_count = 0
        self.answers = asyncio.Event()

    async def call(self, statement):
        del statement
        self.asked_count += 1
        self.busy_count += 1
        try:
            async with asyncio.timeout(10):
                await self.answers.wait()
            self.answer_count += 1
        except TimeoutError:
            raise Unavailable from None
        finally:
            self.busy_count -= 1


@pytest.fixture
def hot(arun):
    return arun(_make(Pool))


@pytest.fixture
def vital(arun):
    return arun(_make(Pool))


@pytest.fixture
def reach(arun, hot, vital):
    reach = arun(_make(lambda: Reach([hot, vital], vital)))
    arun(_make(reach.start))
    yield reach
    arun(_make(reach.stop))


async def _make(kind):
    return kind()


async def test_a_database_that_answers_nothing_is_silent_until_it_answers(reach, hot, vital):
    hot.busy_count = 1
    await asyncio.sleep((SILENT_LOOKS - 1) * LOOK_S)
    was_silent_early = reach.is_silent
    await asyncio.sleep(LOOK_S)
    was_away = reach.is_away(hot)

    vital.answers.set()
    await asyncio.sleep(LOOK_S)

    assert (was_silent_early, was_away) == (False, True)
    assert not reach.is_away(hot)


async def test_one_that_stays_silent_is_asked_again_and_again(reach, hot, vital):
    hot.busy_count = 1
    await asyncio.sleep(60)

    assert vital.asked_count > 3
    assert reach.is_silent


async def test_a_slow_statement_is_no_silence(reach, hot, vital):
    hot.busy_count = 1
    vital.answers.set()
    seen = set()
    for _ in range(100):
        await asyncio.sleep(LOOK_S)
        seen.add(reach.is_silent)

    assert seen == {False}


async def test_a_process_that_did_not_run_takes_that_for_no_silence(reach, hot):
    hot.busy_count = 1
    await asyncio.sleep(LOOK_S)
    asyncio.get_running_loop()._now += 10
    await asyncio.sleep(LOOK_S)

    assert not reach.is_silent


async def test_a_database_that_is_not_asked_is_not_silent(reach, hot, vital):
    await asyncio.sleep(60)

    assert not reach.is_away(hot, vital)
    assert vital.asked_count == 0


async def test_a_pool_without_a_connection_is_away(reach, hot, vital):
    hot.connected_count = 0

    assert reach.is_away(hot, vital)
    assert not reach.is_away(vital)
