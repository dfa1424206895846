"""The driver: what leaves together, and what becomes of a call that fails."""

import asyncio
import logging
from dataclasses import replace
from itertools import pairwise
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.db.access.errors import NotExecuted, OutcomeUnknown, RejectedData
from skep.engine.driver import RETRY_PAUSE_S, RETRY_PAUSE_S_MAX, Engine, Work
from skep.engine.fusion import FusionCore
from skep.engine.limiter import StaticLimiter
from skep.engine.policy import BatchPolicy
from skep.model.errors import Defect, Overloaded, Unavailable
from tests.support.virtual_time import VirtualTimeLoop, run_virtually

PATIENCE_S = 5.0
POLICY = BatchPolicy(preferred_weight=1_000, hold_s_max=1.0, weight_max=100, concurrency_max=2)


@pytest.fixture
def arun():
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        yield runner.run


class Parcel(Work):
    """What one client sends; it remembers what it was told."""

    def __init__(self, name):
        super().__init__()
        self.name = name
        self.answers = []

    def answer(self):
        self.is_settled = True
        self.answers.append("done")

    def fail(self, error):
        self.is_settled = True
        self.answers.append(error)


class Crate(Work):
    """What several clients send together."""

    def __init__(self, *parcels):
        super().__init__()
        self.parcels = parcels

    @property
    def name(self):
        return "+".join(parcel.name for parcel in self.parcels)

    def answer(self):
        self.is_settled = True
        for parcel in self.parcels:
            parcel.answer()

    def fail(self, error):
        self.is_settled = True
        for parcel in self.parcels:
            parcel.fail(error)

    def split(self):
        return [Crate(parcel) for parcel in self.parcels] if len(self.parcels) > 1 else []


class Executor:
    """Answers every work, unless the test says that something happens first.

    Args:
        happen: Gets the names of the batch and the number of the call, from 0, and may raise.
    """

    def __init__(self, happen=lambda names, number: None):
        self._happen = happen
        self.calls = []
        self.times = []

    @property
    def names(self):
        return [names for names, _ in self.calls]

    @property
    def repeated(self):
        return [is_repeated for _, is_repeated in self.calls]

    async def execute(self, batch, *, is_repeated):
        names = [work.name for work in batch]
        self.calls.append((names, is_repeated))
        self.times.append(asyncio.get_running_loop().time())
        outcome = self._happen(names, len(self.calls) - 1)
        if outcome is not None:
            await outcome
        for work in batch:
            work.answer()


def raise_in_turn(*errors):
    """Let the first calls fail with these errors, one each."""

    def happen(names, number):
        if number < len(errors):
            raise errors[number]

    return happen


def refuse(*guilty, error=None):
    """Let a call fail while it carries one of these."""

    def happen(names, number):
        found = sorted(guilty_name for guilty_name in guilty if guilty_name in "+".join(names))
        if found:
            raise error or RejectedData(found[0])

    return happen


def start(executor, *, policy=POLICY, slots=2, weight_capacity=1_000, limiter=None):
    limiter = limiter or StaticLimiter(policy.concurrency_max)
    core = FusionCore({"push": (policy, limiter)}, slots=slots, weight_capacity=weight_capacity)
    engine = Engine(core, patience_s=PATIENCE_S)
    engine.serve("push", executor.execute)
    return engine


async def run_together(executor, *batch):
    """Submit these in one turn and return when all of them were dealt with."""
    engine = start(executor)
    for work in batch:
        engine.submit("push", None, 1, work)
    await engine.drain()


def parcels(names):
    return [Parcel(name) for name in names]


# What leaves when


async def test_everything_submitted_in_one_turn_leaves_in_one_call():
    executor = Executor()

    await run_together(executor, *parcels("abc"))

    assert executor.calls == [(["a", "b", "c"], False)]


async def test_nothing_leaves_before_the_turn_ends():
    executor = Executor()
    engine = start(executor)

    engine.submit("push", None, 1, Parcel("a"))

    assert executor.calls == []
    await engine.drain()
    assert executor.names == [["a"]]


async def test_what_arrives_for_a_partition_in_flight_leaves_together_when_the_partition_is_free():
    gate = asyncio.Event()
    executor = Executor(lambda names, number: gate.wait() if number == 0 else None)
    engine = start(executor)
    engine.submit("push", "partition", 1, Parcel("a"))
    await asyncio.sleep(0)

    engine.submit("push", "partition", 1, Parcel("b"))
    await asyncio.sleep(0)
    engine.submit("push", "partition", 1, Parcel("c"))
    await asyncio.sleep(POLICY.hold_s_max * 2)
    flown_meanwhile = executor.names
    gate.set()
    await engine.drain()

    assert flown_meanwhile == [["a"]]
    assert executor.names == [["a"], ["b", "c"]]


async def test_a_second_call_leaves_when_its_oldest_unit_was_held_long_enough():
    gate = asyncio.Event()
    executor = Executor(lambda names, number: gate.wait() if number == 0 else None)
    engine = start(executor)
    engine.submit("push", 1, 1, Parcel("a"))
    await asyncio.sleep(0.25)
    engine.submit("push", 2, 1, Parcel("b"))
    await asyncio.sleep(0.5)
    engine.submit("push", 3, 1, Parcel("c"))

    await asyncio.sleep(10)
    gate.set()
    await engine.drain()

    assert executor.names == [["a"], ["b", "c"]]
    assert executor.times == pytest.approx([0.0, 0.25 + POLICY.hold_s_max])


async def test_drain_waits_for_what_flies_and_for_what_waits_behind_it():
    gate = asyncio.Event()
    executor = Executor(lambda names, number: gate.wait() if number == 0 else None)
    engine = start(executor)
    first, second = parcels("ab")
    engine.submit("push", "partition", 1, first)
    engine.submit("push", "partition", POLICY.weight_max, second)
    draining = asyncio.ensure_future(engine.drain())

    await asyncio.sleep(60)
    was_draining = not draining.done()
    gate.set()
    await draining

    assert was_draining
    assert executor.names == [["a"], ["b"]]
    assert [first.answers, second.answers] == [["done"], ["done"]]


async def test_drain_waits_for_what_a_timer_holds_back():
    executor = Executor(lambda names, number: asyncio.sleep(1) if number == 0 else None)
    engine = start(executor, policy=replace(POLICY, gather_share=0.5))
    engine.submit("push", "partition", 10, Parcel("a"))
    await asyncio.sleep(1.25)  # it came back, and the next call waits for what its client sends
    held = Parcel("b")
    engine.submit("push", "partition", 1, held)
    await asyncio.sleep(0)

    await engine.drain()

    assert held.answers == ["done"]
    assert executor.times == pytest.approx([0.0, 1.5])


async def test_drain_returns_at_once_when_there_is_nothing_to_do():
    await start(Executor()).drain()

    assert asyncio.get_running_loop().time() == 0.0


async def test_a_unit_that_waits_can_be_enlarged_and_one_that_left_cannot():
    gate = asyncio.Event()
    executor = Executor(lambda names, number: gate.wait())
    engine = start(executor)
    unit = engine.submit("push", "partition", 1, Parcel("a"))

    is_enlarged_while_waiting = engine.enlarge(unit, 5)
    await asyncio.sleep(0.1)
    is_enlarged_in_flight = engine.enlarge(unit, 5)
    gate.set()
    await engine.drain()

    assert is_enlarged_while_waiting
    assert not is_enlarged_in_flight
    assert unit.weight == 6


async def test_a_unit_is_not_enlarged_beyond_what_a_call_carries():
    engine = start(Executor())
    unit = engine.submit("push", "partition", 1, Parcel("a"))

    assert not engine.enlarge(unit, POLICY.weight_max)
    await engine.drain()


async def test_a_unit_withdrawn_in_time_never_runs():
    gate = asyncio.Event()
    executor = Executor(lambda names, number: gate.wait())
    engine = start(executor)
    flying = engine.submit("push", "partition", 1, Parcel("a"))
    await asyncio.sleep(0)
    waiting = engine.submit("push", "partition", 1, Parcel("b"))

    outcomes = [engine.withdraw(waiting), engine.withdraw(flying)]
    gate.set()
    await engine.drain()

    assert outcomes == [True, False]
    assert executor.names == [["a"]]


async def test_at_capacity_nothing_more_is_accepted_until_a_call_comes_back():
    gate = asyncio.Event()
    executor = Executor(lambda names, number: gate.wait())
    engine = start(executor, weight_capacity=10)
    engine.submit("push", "partition", 8, Parcel("a"))

    with pytest.raises(Overloaded):
        engine.submit("push", "partition", 3, Parcel("b"))
    with pytest.raises(Overloaded):
        engine.admit("push", 3)
    gate.set()
    await engine.drain()
    engine.submit("push", "partition", 3, Parcel("c"))
    await engine.drain()

    assert executor.names == [["a"], ["c"]]


async def test_a_call_that_failed_frees_its_slot_its_partition_and_its_weight():
    executor = Executor(raise_in_turn(RejectedData()))
    engine = start(executor, slots=1, weight_capacity=10)
    engine.submit("push", "partition", 10, Parcel("a"))
    await engine.drain()

    engine.submit("push", "partition", 10, Parcel("b"))
    await engine.drain()

    assert executor.names == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("errors", "verdicts"),
    [([], [True]), ([NotExecuted()], [False]), ([RejectedData()], [False])],
    ids=["at once", "repeated", "refused"],
)
async def test_the_limiter_hears_whether_the_first_try_worked(errors, verdicts):
    heard = []

    class Listener(StaticLimiter):
        def record(self, rtt_s, in_flight, now, succeeded, *, weight=1):
            heard.append(succeeded)

    engine = start(Executor(raise_in_turn(*errors)), limiter=Listener(1))

    engine.submit("push", None, 1, Parcel("a"))
    await engine.drain()

    assert heard == verdicts


# Refused data


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_of_a_refused_call_only_the_guilty_fail_and_all_others_are_answered_once(drawn):
    count, guilty = drawn
    batch = [Parcel(f"<{number}>") for number in range(count)]
    executor = Executor(refuse(*(f"<{number}>" for number in guilty)))

    run_virtually(run_together(executor, *batch))

    for number, work in enumerate(batch):
        if number in guilty:
            (error,) = work.answers
            assert isinstance(error, RejectedData)
            assert error.message == f"<{number}>"
        else:
            assert work.answers == ["done"]
    # Halving: each of the guilty is met once per level, with its other half beside it.
    assert len(executor.calls) <= 1 + 2 * len(guilty) * ceil(log2(count) if count > 1 else 1)


async def test_a_work_of_several_clients_fails_only_for_the_guilty_one():
    first, guilty, third = parcels("abc")

    await run_together(Executor(refuse("b")), Crate(first, guilty, third))

    assert first.answers == third.answers == ["done"]
    (error,) = guilty.answers
    assert isinstance(error, RejectedData)


async def test_a_shared_work_is_opened_only_when_it_is_the_guilty_one():
    executor = Executor(refuse("c"))
    innocents = parcels("ab")
    guilty = Parcel("c")

    await run_together(executor, Crate(*innocents), Crate(guilty))

    assert executor.names == [["a+b", "c"], ["a+b"], ["c"]]
    assert [parcel.answers for parcel in innocents] == [["done"], ["done"]]
    assert len(guilty.answers) == 1


async def test_a_bug_is_isolated_like_refused_data_and_logged_with_its_stack(caplog):
    innocent, guilty = parcels("ab")

    await run_together(Executor(refuse("b", error=ZeroDivisionError("oops"))), innocent, guilty)

    assert innocent.answers == ["done"]
    (error,) = guilty.answers
    assert isinstance(error, Defect)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert isinstance(record.exc_info[1], ZeroDivisionError)


async def test_the_client_of_a_bug_learns_nothing_of_its_inside():
    guilty = Parcel("a")

    await run_together(Executor(raise_in_turn(ZeroDivisionError("secret"))), guilty)

    assert "secret" not in guilty.answers[0].message


async def test_refused_data_is_the_clients_affair_and_not_logged(caplog):
    await run_together(Executor(refuse("b")), *parcels("ab"))

    assert caplog.records == []


async def test_halves_of_a_call_whose_first_outcome_is_unknown_are_repetitions_too():
    batch = parcels("abcd")
    executor = Executor(raise_in_turn(OutcomeUnknown(), Defect()))

    await run_together(executor, *batch)

    assert executor.calls == [
        (["a", "b", "c", "d"], False),
        (["a", "b", "c", "d"], True),
        (["a", "b"], True),
        (["c", "d"], True),
    ]


async def test_halves_of_a_call_that_met_a_bug_are_repetitions_because_it_may_have_committed():
    executor = Executor(raise_in_turn(ZeroDivisionError()))

    await run_together(executor, *parcels("ab"))

    assert executor.calls == [(["a", "b"], False), (["a"], True), (["b"], True)]


async def test_halves_of_a_refused_call_are_no_repetitions_because_nothing_was_done():
    executor = Executor(raise_in_turn(RejectedData()))

    await run_together(executor, *parcels("ab"))

    assert executor.repeated == [False, False, False]


async def test_parts_of_a_shared_work_are_repetitions_if_the_whole_was():
    executor = Executor(raise_in_turn(OutcomeUnknown(), Defect()))

    await run_together(executor, Crate(*parcels("ab")))

    assert executor.calls[2:] == [(["a"], True), (["b"], True)]


# Repeating


async def test_a_call_that_was_not_executed_is_repeated_as_it_was():
    executor = Executor(raise_in_turn(NotExecuted(), NotExecuted()))
    (work,) = parcels("a")

    await run_together(executor, work)

    assert executor.calls == [(["a"], False)] * 3
    assert work.answers == ["done"]


async def test_a_call_of_unknown_outcome_is_repeated_as_a_repetition():
    executor = Executor(raise_in_turn(OutcomeUnknown()))
    (work,) = parcels("a")

    await run_together(executor, work)

    assert executor.calls == [(["a"], False), (["a"], True)]
    assert work.answers == ["done"]


async def test_once_an_outcome_is_unknown_every_further_try_is_a_repetition():
    executor = Executor(raise_in_turn(NotExecuted(), OutcomeUnknown(), NotExecuted()))

    await run_together(executor, Parcel("a"))

    assert executor.repeated == [False, False, True, True]


@pytest.mark.parametrize("error", [NotExecuted(), OutcomeUnknown(), RejectedData(), Defect()])
async def test_works_that_were_answered_are_not_run_again(error):
    batch = parcels("abc")

    def happen(names, number):
        if number == 0:
            batch[1].answer()
            raise error

    executor = Executor(happen)

    await run_together(executor, *batch)

    assert all("b" not in names for names in executor.names[1:])
    assert [work.answers for work in batch] == [["done"]] * 3


async def test_a_call_whose_works_were_all_answered_is_not_repeated():
    (work,) = parcels("a")

    def happen(names, number):
        work.answer()
        raise NotExecuted

    executor = Executor(happen)

    await run_together(executor, work)

    assert len(executor.calls) == 1
    assert work.answers == ["done"]


async def test_pauses_between_tries_double_up_to_a_bound():
    executor = Executor(raise_in_turn(*[NotExecuted()] * 8))

    await run_together(executor, Parcel("a"))

    pauses = [later - earlier for earlier, later in pairwise(executor.times)]
    expected = [min(RETRY_PAUSE_S * 2**number, RETRY_PAUSE_S_MAX) for number in range(8)]
    assert pauses == pytest.approx(expected)


@pytest.mark.parametrize("kind", [NotExecuted, OutcomeUnknown])
async def test_patience_ends_as_unavailable(kind):
    executor = Executor(raise_in_turn(*[kind("the inside of the database")] * 1_000))
    batch = parcels("ab")

    await run_together(executor, *batch)

    ended_at = asyncio.get_running_loop().time()
    assert PATIENCE_S - RETRY_PAUSE_S_MAX <= ended_at <= PATIENCE_S
    for work in batch:
        (error,) = work.answers
        assert type(error) is Unavailable
        assert "inside" not in error.message


async def test_an_answer_that_fails_by_a_bug_keeps_no_other_from_its_own(caplog):
    executor = Executor(raise_in_turn(Unavailable()))
    first, second = parcels("ab")
    first.fail = lambda error: [].pop()

    with caplog.at_level(logging.ERROR):
        await run_together(executor, first, second)

    assert [type(error) for error in second.answers] == [Unavailable]
    assert "a defect failed a request" in caplog.text


class PatientParcel(Parcel):
    may_go_on = True


async def test_what_a_call_forgets_to_answer_is_answered_unless_it_may_go_on(caplog):
    answered, forgotten, parked = Parcel("a"), Parcel("b"), PatientParcel("c")

    async def execute(batch, *, is_repeated):
        batch[0].answer()

    engine = start(Executor())
    engine.serve("push", execute)
    for work in (answered, forgotten, parked):
        engine.submit("push", None, 1, work)
    await engine.drain()

    assert (answered.answers, parked.answers) == (["done"], [])
    assert [type(answer) for answer in forgotten.answers] == [Defect]
    assert "without an answer" in caplog.text


async def test_a_call_of_which_nothing_can_be_found_out_is_given_up_at_once():
    executor = Executor(raise_in_turn(Unavailable()))
    batch = parcels("ab")

    await run_together(executor, *batch)

    assert len(executor.calls) == 1
    assert [type(work.answers[0]) for work in batch] == [Unavailable, Unavailable]
    assert asyncio.get_running_loop().time() == 0.0


async def test_a_partition_whose_call_is_repeated_keeps_its_order():
    executor = Executor(raise_in_turn(NotExecuted()))
    engine = start(executor)
    engine.submit("push", "partition", 1, Parcel("a"))
    await asyncio.sleep(RETRY_PAUSE_S / 2)
    engine.submit("push", "partition", 1, Parcel("b"))

    await engine.drain()

    assert executor.names == [["a"], ["a"], ["b"]]
