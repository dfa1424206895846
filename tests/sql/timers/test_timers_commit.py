"""Timers are scheduled, replaced, cancelled and fired as a dictionary says, once each."""

import asyncio
from dataclasses import dataclass, field
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sql.model.test_plans import MeteredLog
from tests.sql.model.test_races import waiting
from tests.sql.support.log import NOON, LosesItsAnswer, Session
from tests.sql.support.scheduling import (
    Listener,
    cancelling,
    carry_out,
    executor_of,
    keys_waiting,
    schedule,
    scheduling,
    sequence,
    statuses,
    stored,
    units,
)


@pytest.fixture
def other(arun, open_log):
    return arun(open_log())


@pytest.fixture
def observer(arun, open_log):
    return arun(open_log())


async def test_a_timer_becomes_a_message_when_its_time_has_come(log):
    listener = Listener()
    [[state]] = await carry_out(log, [scheduling("k", "x", 10_000)], listener=listener)

    assert (state.status, state.transaction_id, state.seconds) == ("scheduled", "x", 10)
    assert listener.heard == [10]
    assert (await sequence(log)).moved == 0
    await log.advance(10)
    assert (await sequence(log)).moved == 1
    assert await stored(log) == ["x"]
    assert await keys_waiting(log) == []


async def test_a_timer_under_a_key_that_waits_replaces_the_other(log):
    await carry_out(log, [scheduling("k", "x", 1_000)])
    assert await statuses(log, [scheduling("k", "y", 5_000, partition="b")]) == [["rescheduled"]]

    await log.advance(4)
    assert (await sequence(log)).moved == 0
    await log.advance(1)
    await sequence(log)

    assert (await stored(log), await stored(log, "b")) == ([], ["y"])


async def test_a_key_is_free_once_its_timer_fired(log):
    await carry_out(log, [scheduling("k", "x", 0)])
    await sequence(log)

    assert await statuses(log, [cancelling("k")]) == [["absent"]]
    assert await statuses(log, [scheduling("k", "y", 0)]) == [["scheduled"]]


async def test_calls_of_one_execution_follow_each_other_on_the_same_key(log):
    calls = [
        [scheduling("b", "one"), scheduling("a", "two")],
        [cancelling("a"), cancelling("b")],
        [scheduling("b", "three")],
        [cancelling("none", queue="nowhere")],
    ]

    assert await statuses(log, *calls) == [
        ["scheduled", "scheduled"],
        ["cancelled", "cancelled"],
        ["scheduled"],
        ["absent"],
    ]
    assert await keys_waiting(log) == ["b"]
    assert await log.value("select count(*) from skep.queue where name = 'nowhere'") == 0


async def test_keys_belong_to_their_queue_and_not_to_other_scheduled_messages(log):
    await schedule(log, "x")
    await carry_out(log, [scheduling("k", "x")], [scheduling("k", "x", queue="other")])

    assert await statuses(log, [cancelling("k")]) == [["cancelled"]]
    assert await keys_waiting(log) == ["k"]
    assert await log.value("select count(*) from skep.scheduled") == 2


async def test_of_two_timers_with_one_transaction_id_one_is_stored(log):
    await carry_out(log, [scheduling("a", "x", 0), scheduling("b", "x", 0)])

    assert (await sequence(log)).moved == 2
    assert await stored(log) == ["x"]


# Two sessions.


async def test_a_cancel_waits_for_the_fire_and_finds_nothing(log, other, observer):
    await carry_out(log, [scheduling("k", "x", 0)])
    transaction = log.connection.transaction()
    await transaction.start()
    await sequence(log)

    async with waiting(observer, other, statuses(other, [cancelling("k")])) as cancelled:
        await transaction.commit()

    assert cancelled.result() == [["absent"]]
    assert await stored(log) == ["x"]


async def test_a_cancel_whose_fire_is_rolled_back_cancels(log, other, observer):
    await carry_out(log, [scheduling("k", "x", 0)])
    transaction = log.connection.transaction()
    await transaction.start()
    await sequence(log)

    async with waiting(observer, other, statuses(other, [cancelling("k")])) as cancelled:
        await transaction.rollback()

    assert cancelled.result() == [["cancelled"]]
    assert (await sequence(log)).moved == 0


async def test_a_timer_that_is_replaced_while_it_fires_is_a_new_one(log, other, observer):
    await carry_out(log, [scheduling("k", "x", 0)])
    transaction = log.connection.transaction()
    await transaction.start()
    await sequence(log)

    replaced = statuses(other, [scheduling("k", "y", 60_000)])
    async with waiting(observer, other, replaced) as outcome:
        await transaction.commit()

    assert outcome.result() == [["scheduled"]]
    assert (await stored(log), await keys_waiting(log)) == (["x"], ["k"])


@pytest.mark.parametrize("change", [cancelling("k"), scheduling("k", "y", 60_000)])
async def test_a_timer_that_is_being_changed_does_not_fire(log, other, change):
    await carry_out(log, [scheduling("k", "x", 0)])
    transaction = log.connection.transaction()
    await transaction.start()
    await carry_out(log, [change])

    moved = (await sequence(other)).moved
    await transaction.commit()

    assert (moved, (await sequence(other)).moved) == (0, 0)
    assert await stored(log) == []


async def test_calls_over_the_same_timers_in_any_order_do_not_deadlock(log, other):
    async def churn(session, keys):
        for _ in range(20):
            await carry_out(session, [scheduling(key, key) for key in keys])
            await carry_out(session, [cancelling(key) for key in keys])

    await asyncio.gather(churn(log, "abc"), churn(other, "cba"))

    assert await keys_waiting(log) == []


@pytest.mark.parametrize("deleted", ["before it is found", "before it is locked"])
async def test_a_schedule_whose_queue_is_deleted_meanwhile_does_nothing_of_its_call(
    log, other, deleted
):
    class Deletes:
        async def call(self, statement, *arguments):
            if "timers_commit" in statement:
                await other.value("select skep.remove_queue('hive')")
            rows = await log.rows(statement, *arguments)
            if "timer_queues" in statement and deleted == "before it is found":
                return [row for row in rows if row[0] != "hive"]
            return rows

    refused = []
    [unit] = units([[scheduling("a", "x"), scheduling("b", "y", queue="other")]], {})
    unit.refuse = refused.append
    await executor_of(Deletes()).write([unit], is_repeated=False)

    assert "the queue was deleted meanwhile" in str(refused[0])
    assert await keys_waiting(log) == []


# What is on record.


async def repeated(log, *calls, meanwhile):
    """Lose the answer of an execution, let something happen, and repeat it; return the statuses."""
    outcomes = {}
    sent = units(calls, outcomes)
    with pytest.raises(ConnectionError):
        await executor_of(LosesItsAnswer(log, "timers_commit")).write(sent, is_repeated=False)
    await meanwhile
    await executor_of(Session(log)).write(sent, is_repeated=True)
    return [[state.status for state in outcomes[at]] for at in range(len(calls))]


async def test_a_repeated_cancel_still_says_that_it_cancelled(log):
    await carry_out(log, [scheduling("k", "x")])

    found = await repeated(log, [cancelling("k")], meanwhile=asyncio.sleep(0))

    assert found == [["cancelled"]]


async def test_a_repeated_schedule_does_not_bring_back_what_fired_meanwhile(log):
    await log.configure("hive", dedup_window_s=0)

    found = await repeated(log, [scheduling("k", "x", 0)], meanwhile=sequence(log))

    assert found == [["scheduled"]]
    assert (await keys_waiting(log), await stored(log)) == ([], ["x"])


async def test_what_found_nothing_leaves_no_record(log):
    await log.execute("delete from skep.settled_transaction")
    await carry_out(log, [cancelling("none")])

    assert await log.value("select count(*) from skep.settled_transaction") == 0


# Against a model.

KEYS = ["a", "a/b", "ä", "Z"]
operations = st.one_of(
    st.tuples(st.just("schedule"), st.sampled_from(KEYS), st.integers(0, 4)),
    st.tuples(st.just("cancel"), st.sampled_from(KEYS), st.just(0)),
)
calls = st.lists(operations, min_size=1, max_size=3, unique_by=lambda each: each[1])
rounds = st.lists(
    st.tuples(st.lists(calls, min_size=1, max_size=3), st.integers(0, 3)), min_size=1, max_size=8
)


@dataclass
class TimerModel:
    """Timers as a dictionary: what waits under which key, and what fired."""

    now: int = 0
    pending: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    """When, which came first of those of one time, and the transaction id."""
    fired: list[str] = field(default_factory=list)
    count: int = 0

    def step(self, op, key, delay_s, txn):
        is_there = key in self.pending
        if op == "cancel":
            self.pending.pop(key, None)
            return "cancelled" if is_there else "absent"
        self.count += 1
        first = self.pending[key][1] if is_there else self.count
        self.pending[key] = (self.now + delay_s, first, txn)
        return "rescheduled" if is_there else "scheduled"

    def fire(self):
        due = sorted(key for key, (at, _, _) in self.pending.items() if at <= self.now)
        for key in sorted(due, key=lambda key: self.pending[key][:2]):
            self.fired.append(self.pending.pop(key)[2])


@settings(
    max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(rounds=rounds)
def test_timers_do_what_a_dictionary_does(arun, log, rounds):
    async def play():
        await log.clear()
        await log.set_clock(NOON)
        model, number = TimerModel(), 0
        for together, pause_s in rounds:
            sent, expected = [], []
            for call in together:
                number += 1
                sent.append(
                    [
                        scheduling(key, f"{key} {number}", delay_s * 1000)
                        if op == "schedule"
                        else cancelling(key)
                        for op, key, delay_s in call
                    ]
                )
                expected.append([None] * len(call))
            in_order = sorted(
                (key, at, place)
                for at, call in enumerate(together)
                for place, (_, key, _) in enumerate(call)
            )
            for key, at, place in in_order:
                op, _, delay_s = together[at][place]
                txn = sent[at][place].get("txn")
                expected[at][place] = model.step(op, key, delay_s, txn)
            assert await statuses(log, *sent) == expected
            await log.advance(pause_s)
            model.now += pause_s
            await sequence(log)
            model.fire()
            assert await keys_waiting(log) == sorted(model.pending)
            assert await stored(log) == model.fired

    arun(play())


async def test_scheduling_among_many_timers_reads_no_others(arun, connect):
    log = await MeteredLog.open(connect)
    queue_id = await log.connection.fetchval("select skep.ensure_queue('hive')")
    await log.connection.execute(
        """
        insert into skep.scheduled (queue_id, partition, key, nonce, transaction_id, envelope,
                                    deliver_at, created_at, timer_key)
        select $1, 'a', decode(md5(n::text), 'hex'), -n, n::text, '', now() + '1 day', now(),
               n::text
        from generate_series(1, 20000) n
        """,
        queue_id,
    )
    await log.connection.execute("vacuum analyze skep.scheduled")
    query = "select * from skep.timers_commit($1, null, $2, $3, $4, $5, $6, $7, $8, $9, $10)"

    async def change(key, *values):
        arguments = [[value] for value in (1, 1, queue_id, key, *values)]
        await log.rows(query, uuid4(), *arguments)
        return log.cost

    await change("first", "a", b"k" * 16, "t", b"{}", 1000)  # reads the catalog as well
    new = await change("new", "a", b"k" * 16, "t", b"{}", 1000)
    replaced = await change("500", "a", b"k" * 16, "t", b"{}", 1000)
    cancelled = await change("501", None, None, None, None, None)
    for cost in (new, replaced, cancelled):
        assert cost.is_small, cost
