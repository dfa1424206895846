import asyncio
import logging
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.broker.cluster.housekeeping import (
    BACKOFF_S_MAX,
    BACKOFF_S_MIN,
    GIVE_WAY_MAX,
    GIVE_WAY_S,
    JITTER,
    REST_PER_WORK,
    REST_S_MIN,
    STOP_S,
    Housekeeper,
    Pace,
)
from skep.broker.cluster.leadership import Leadership
from skep.db.access.errors import LeadershipLost
from skep.model.errors import Unavailable
from tests.support.virtual_time import run_virtually

HOUR_S = 3600.0


class TestPace:
    @given(st.floats(0.001, HOUR_S), st.floats(0, 100), st.integers())
    def test_work_in_bulk_takes_a_third_of_the_time(self, interval_s, spent_s, seed):
        pace = Pace(interval_s, random.Random(seed))

        rest_s = pace.after_success(spent_s, has_more=True)

        assert rest_s == max(REST_S_MIN, spent_s * REST_PER_WORK)

    @given(st.floats(0.001, HOUR_S), st.integers())
    def test_a_duty_that_is_done_comes_back_after_about_its_interval(self, interval_s, seed):
        pace = Pace(interval_s, random.Random(seed))

        rest_s = pace.after_success(5, has_more=False)

        assert interval_s * (1 - JITTER) <= rest_s <= interval_s * (1 + JITTER) * (1 + 1e-9)

    @given(st.floats(0.001, HOUR_S), st.integers())
    def test_a_new_leader_begins_soon_but_not_with_everything_at_once(self, interval_s, seed):
        assert 0 <= Pace(interval_s, random.Random(seed)).at_first() <= min(interval_s, 5)

    @given(st.floats(0.001, HOUR_S), st.integers(), st.integers(1, 60))
    def test_failures_wait_longer_and_longer_up_to_a_bound(self, interval_s, seed, failures):
        pace = Pace(interval_s, random.Random(seed))

        waits = [pace.after_failure() for _ in range(failures)]

        longest = max(BACKOFF_S_MIN, min(interval_s, BACKOFF_S_MAX))
        assert all(BACKOFF_S_MIN * 0.9 <= wait <= longest * 1.11 for wait in waits)
        if interval_s >= 8 and failures >= 4:
            assert waits[3] > waits[0] * 4

    def test_a_success_ends_the_growth(self):
        pace = Pace(HOUR_S, random.Random(1))
        for _ in range(10):
            pace.after_failure()
        pace.after_success(0, has_more=False)

        assert pace.after_failure() <= BACKOFF_S_MIN * (1 + JITTER)

    def test_a_step_gives_way_so_often_and_then_does_not(self):
        pace = Pace(HOUR_S, random.Random(1))

        rests = [pace.give_way() for _ in range(GIVE_WAY_MAX + 1)]

        assert rests == [GIVE_WAY_S] * GIVE_WAY_MAX + [None]
        pace.after_success(0, has_more=False)
        assert pace.give_way() == GIVE_WAY_S


class Office:
    """Grants the lease to whoever asks, or to nobody."""

    def __init__(self, *, is_granting=True):
        self.is_granting = is_granting

    async def call(self, statement, *arguments):
        await asyncio.sleep(0)
        return [(self.is_granting,)]


class Chore:
    """A duty that does what its script says: True, False or an exception, then False for ever."""

    def __init__(self, *script, name="chore", interval_s=100.0, takes_s=0.0):
        self.name = name
        self.interval_s = interval_s
        self._script = list(script)
        self._takes_s = takes_s
        self.began_at = []
        self.ended = 0

    async def run(self):
        self.began_at.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self._takes_s)
        self.ended += 1
        outcome = self._script.pop(0) if self._script else False
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def keep_house(*duties, office=None, seconds, gives_way=lambda: False):
    """Run a housekeeper for so long."""

    async def scene():
        housekeeper = Housekeeper(
            Leadership(office or Office(), "work"),
            duties,
            chance=random.Random(1),
            gives_way=gives_way,
        )
        housekeeper.start()
        await asyncio.sleep(seconds)
        await housekeeper.stop()

    run_virtually(scene())


def test_a_duty_runs_at_its_interval():
    chore = Chore(interval_s=100)

    keep_house(chore, seconds=1000)

    assert 9 <= len(chore.began_at) <= 12


def test_a_duty_with_more_to_do_rests_in_proportion_to_its_work():
    chore = Chore(True, True, takes_s=1)

    keep_house(chore, seconds=50)

    first, second, third = chore.began_at
    assert second - first == pytest.approx(1 + REST_PER_WORK)
    assert third - second == pytest.approx(1 + REST_PER_WORK)


def test_whoever_does_not_lead_does_nothing():
    chore = Chore(interval_s=1)

    keep_house(chore, office=Office(is_granting=False), seconds=100)

    assert chore.began_at == []


def test_duties_pause_while_another_process_leads_and_go_on_afterwards():
    chore, office = Chore(interval_s=1), Office()

    async def scene():
        housekeeper = Housekeeper(Leadership(office, "work"), [chore])
        housekeeper.start()
        await asyncio.sleep(30)
        office.is_granting = False
        await asyncio.sleep(20)
        count = len(chore.began_at)
        assert count > 20
        await asyncio.sleep(100)
        assert len(chore.began_at) == count
        office.is_granting = True
        await asyncio.sleep(30)
        assert len(chore.began_at) > count + 20
        await housekeeper.stop()

    run_virtually(scene())


@pytest.mark.parametrize("failure", [Unavailable(), KeyError("a bug"), LeadershipLost()], ids=str)
def test_whatever_a_duty_raises_ends_neither_it_nor_the_others(failure, caplog):
    caplog.set_level(logging.INFO)
    broken, whole = Chore(failure, interval_s=2, name="broken"), Chore(interval_s=2)

    keep_house(broken, whole, seconds=60)

    assert len(broken.began_at) > 20
    assert len(whole.began_at) > 20
    assert "broken" in caplog.text


def test_defect_57_a_slow_duty_does_not_hold_up_the_others():
    slow, quick = Chore(takes_s=50), Chore(interval_s=1)

    keep_house(slow, quick, seconds=45)

    assert len(quick.began_at) > 30


def test_a_stop_lets_a_step_under_way_end_and_begins_no_other():
    chore = Chore(True, True, True, takes_s=1, interval_s=1)

    keep_house(chore, seconds=1)

    assert len(chore.began_at) == chore.ended == 1


def test_a_stop_does_not_wait_for_ever():
    chore = Chore(takes_s=1000, interval_s=1)

    async def scene():
        loop = asyncio.get_running_loop()
        housekeeper = Housekeeper(Leadership(Office(), "work"), [chore])
        housekeeper.start()
        await asyncio.sleep(10)
        began = loop.time()
        await housekeeper.stop()
        assert loop.time() - began == pytest.approx(STOP_S)

    run_virtually(scene())
    assert chore.ended == 0


def test_duties_give_way_to_messages_but_not_for_ever():
    chore = Chore(interval_s=10.0)

    keep_house(chore, seconds=3 * GIVE_WAY_MAX * GIVE_WAY_S, gives_way=lambda: True)

    assert len(chore.began_at) == 2
    assert chore.began_at[0] >= GIVE_WAY_MAX * GIVE_WAY_S
