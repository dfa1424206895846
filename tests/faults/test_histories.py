"""Transactions could have happened one after the other, whatever is killed meanwhile."""

import sys
from random import Random

import pytest

from tests.faults.support.histories import (
    ABORTED,
    COMMITTED,
    UNKNOWN,
    History,
    Read,
    Transaction,
    anomalies,
)
from tests.faults.support.instances import fleet_of
from tests.faults.support.relay import relay_on
from tests.faults.support.storms import kill_brokers


def push(name, *messages, at=(0, 100), outcome=COMMITTED, consumed=()):
    sent_at, answered_at = at
    return Transaction(name, sent_at, answered_at, outcome, messages, consumed)


def kinds(history):
    return [anomaly.partition(":")[0] for anomaly in anomalies(history)]


A1, A2, B1, B2 = ("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2")


def test_a_serial_history_is_accepted():
    history = History(
        [push("one", A1, at=(0, 1)), push("two", B1, consumed=[A1], at=(2, 3))],
        [Read("r", 4, 5, "b", ("b1",), is_to_the_end=True)],
        {"a": ["a1"], "b": ["b1"]},
    )

    assert anomalies(history) == []


def test_transactions_that_nobody_heard_of_count_if_they_left_something():
    seen = push("seen", A1, at=(0, None), outcome=UNKNOWN)
    unseen = push("unseen", A2, at=(0, None), outcome=UNKNOWN)

    assert anomalies(History([seen, unseen], [], {"a": ["a1"]})) == []


def test_writes_in_opposite_orders_are_a_cycle():
    history = History([push("one", A1, B1), push("two", A2, B2)], [])
    history.final = {"a": ["a1", "a2"], "b": ["b2", "b1"]}

    (found,) = anomalies(history)

    assert found.startswith("cycle: by ww: ")


def test_transactions_that_consume_what_each_other_pushed_are_a_cycle():
    history = History(
        [push("one", A1, consumed=[B1]), push("two", B1, consumed=[A1])],
        [],
        {"a": ["a1"], "b": ["b1"]},
    )

    (found,) = anomalies(history)

    assert found.startswith("cycle: by ww, wr: ")


def test_a_read_that_missed_what_an_earlier_transaction_pushed_is_a_cycle():
    # It saw b1 of a transaction that follows a2, and read partition a to an end before a2.
    history = History(
        [push("one", A1), push("two", A2, B1)],
        [
            Read("b", 5, 6, "b", ("b1",), is_to_the_end=True),
            Read("a", 7, 8, "a", ("a1",), is_to_the_end=True),
        ],
        {"a": ["a1", "a2"], "b": ["b1"]},
    )
    history.transactions[1] = push("two", A2, B1, at=(0, None), outcome=UNKNOWN)

    (found,) = anomalies(history)

    assert found.startswith("cycle: by ww, wr, rw, rt: ")


def test_an_answer_that_came_before_the_question_of_an_earlier_write_is_a_cycle():
    history = History([push("one", A1, at=(0, 1)), push("two", A2, at=(2, 3))], [])
    history.final = {"a": ["a2", "a1"]}

    (found,) = anomalies(history)

    assert found.startswith("cycle: by ww, wr, rw, rt: ")


def test_a_transaction_that_is_there_in_part_is_fractured():
    for outcome in (COMMITTED, UNKNOWN):
        history = History([push("one", A1, B1, outcome=outcome)], [], {"a": ["a1"], "b": []})

        assert kinds(history) == ["fractured"]


def test_what_was_undone_lost_or_done_twice_is_found():
    undone = History([push("one", A1, outcome=ABORTED)], [], {"a": ["a1"]})
    lost = History([push("one", A1)], [], {"a": []})
    stored_twice = History([push("one", A1)], [], {"a": ["a1", "a1"]})
    consumed_twice = History(
        [push("one", A1), push("two", consumed=[A1]), push("three", consumed=[A1])],
        [],
        {"a": ["a1"]},
    )

    assert kinds(undone) == ["aborted read"]
    assert kinds(lost) == ["lost"]
    assert kinds(stored_twice) == ["stored twice"]
    assert kinds(consumed_twice) == ["consumed twice"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="kills process groups")
async def test_transactions_of_brokers_that_are_killed_could_have_come_one_after_the_other(
    database_url, sql, queue, seed
):
    async with (
        fleet_of(2, database_url, seed, "--workers", "1") as fleet,
        relay_on(fleet, queue, seed) as relay,
    ):
        await relay.until_committed(60)
        await kill_brokers(fleet, 2, kills=2, pause_s=(0.2, 0.5), random=Random(seed))
        await relay.until_committed(200)
        history = await relay.finish(sql)

    outcomes = {each.outcome for each in history.transactions}
    assert anomalies(history) == []
    assert outcomes >= {COMMITTED, ABORTED}
    assert any(read.is_to_the_end for read in history.reads)
