"""Staged messages: when a process looks for them."""

import asyncio
import logging
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.broker.staged.move import Moved
from skep.broker.staged.sequence import (
    IDLE_S,
    PAUSE_S,
    RECOVERY_S,
    START_OVER_S,
    UNNOTIFIED_S,
    YIELD_S,
    StagedPlan,
    StagedSequencer,
)
from skep.db.access.errors import NotExecuted
from tests.support.virtual_time import VirtualTimeLoop

NOTHING = Moved(0, has_more=False, is_whole=True)
SOME = Moved(3, has_more=False, is_whole=True)
CUT = Moved(3, has_more=True, is_whole=True)
CONTESTED = Moved(3, has_more=False, is_whole=False)


@pytest.fixture
def arun():
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        yield runner.run


def after(plan, now, moved):
    """Let the plan look once; return when it looks next."""
    plan.begin(now)
    plan.polled(now, moved)
    return plan.next_poll_at()


def test_the_first_look_is_at_once():
    assert StagedPlan(7).next_poll_at() == 7


def test_nothing_found_is_looked_for_again_after_a_while():
    assert after(StagedPlan(0), 0, NOTHING) == IDLE_S


def test_who_is_told_looks_at_once_but_not_without_end():
    plan = StagedPlan(0)
    after(plan, 0, NOTHING)

    assert plan.hear() is True
    assert plan.next_poll_at() == PAUSE_S


def test_what_is_told_during_a_look_is_looked_for_again():
    plan = StagedPlan(0)
    plan.begin(0)
    plan.hear()
    plan.polled(1, NOTHING)

    assert plan.next_poll_at() == 1 + PAUSE_S


def test_what_nobody_told_of_is_looked_for_more_often_until_there_is_no_more():
    plan = StagedPlan(0)
    moments = [after(plan, 0, SOME)]
    while moments[-1] < 100:
        moments.append(after(plan, moments[-1], NOTHING))
    pauses = [later - earlier for earlier, later in pairwise(moments)]

    assert moments[0] == UNNOTIFIED_S
    assert pauses[:4] == pytest.approx([UNNOTIFIED_S * 2**n for n in (1, 2, 3, 4)])
    assert max(pauses) == pytest.approx(IDLE_S)


def test_what_was_told_of_makes_nobody_look_more_often():
    plan = StagedPlan(0)
    after(plan, 0, NOTHING)
    plan.hear()

    assert after(plan, 1, SOME) == 1 + IDLE_S


def test_what_one_look_could_not_carry_is_looked_for_at_once():
    assert after(StagedPlan(0), 5, CUT) == 5


def test_another_process_that_is_at_it_is_left_alone_for_a_moment():
    assert after(StagedPlan(0), 5, CONTESTED) == 5 + YIELD_S


def test_after_a_failure_everything_is_looked_at_again_but_later():
    plan = StagedPlan(0)
    assert plan.begin(1) is False
    plan.failed(1)

    assert plan.next_poll_at() == 1 + RECOVERY_S
    assert plan.begin(2) is True


def test_now_and_then_everything_is_looked_at():
    plan = StagedPlan(0)
    whole = [plan.begin(now) for now in (0, START_OVER_S - 1, START_OVER_S, START_OVER_S + 1)]

    assert whole == [False, False, True, False]


@given(events=st.lists(st.sampled_from(["hear", NOTHING, SOME, CUT, CONTESTED, "fail"])))
def test_nobody_who_was_told_waits_long_and_nobody_else_for_ever(events):
    plan, now, is_told = StagedPlan(0), 0.0, False
    for event in events:
        if event == "hear":
            plan.hear()
            is_told = True
            continue
        now = max(now, plan.next_poll_at())
        plan.begin(now)
        if event == "fail":
            plan.failed(now)
        else:
            plan.polled(now, event)
        is_told = False
        assert now <= plan.next_poll_at() <= now + IDLE_S
    if is_told:
        assert plan.next_poll_at() <= now + RECOVERY_S


class Mover:
    def __init__(self, *answers):
        self.answers = list(answers)
        self.looks = []
        self.starts_over = 0

    def start_over(self):
        self.starts_over += 1

    async def move(self):
        self.looks.append(asyncio.get_running_loop().time())
        answer = self.answers.pop(0) if self.answers else NOTHING
        if isinstance(answer, Exception):
            raise answer
        return answer


class NeverLeader:
    is_leader = False

    async def wait_until_leader(self):
        await asyncio.Event().wait()


class Announced:
    def __init__(self):
        self.said = []

    def announce(self, queue_id, partition_count):
        self.said.append((queue_id, partition_count))


def sequencer(mover, announcer=None):
    return StagedSequencer(mover, announcer or Announced(), NeverLeader(), "postgresql://nowhere")


async def test_a_sequencer_looks_when_it_hears_something():
    mover = Mover()
    began = asyncio.get_running_loop().time()
    looking = sequencer(mover)
    looking.start()
    await asyncio.sleep(1)
    looking.hear()
    await asyncio.sleep(1)
    await looking.stop()

    assert [moment - began for moment in mover.looks] == pytest.approx([0, 1], abs=0.001)


async def test_a_failed_look_is_told_and_repeated(caplog):
    mover = Mover(NotExecuted("away"))
    looking = sequencer(mover)
    looking.start()
    with caplog.at_level(logging.WARNING):
        await asyncio.sleep(RECOVERY_S + 1)
    await looking.stop()

    assert len(mover.looks) == 2
    assert mover.starts_over == 1
    assert "away" in caplog.text


async def test_an_idle_sequencer_asks_less_than_once_in_two_seconds():
    mover = Mover(SOME)
    looking = sequencer(mover)
    looking.start()
    await asyncio.sleep(100)
    await looking.stop()

    assert len(mover.looks) < 30


async def test_a_sequencer_that_never_started_can_be_stopped():
    await sequencer(Mover()).stop()


@pytest.mark.parametrize(
    ("payload", "said"),
    [("7", [(7, 1)]), ("", []), ("x", []), ("-1", []), ("9" * 50, []), ("٣", []), ("1.5", [])],
)
async def test_a_push_by_sql_is_announced_if_it_names_a_queue(payload, said):
    announced = Announced()
    sequencer(Mover(), announced)._hear_of_push(payload)

    assert announced.said == said
