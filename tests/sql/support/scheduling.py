"""Scheduled messages as a test sees them: the SQL functions with Python arguments, and timers."""

import json
from base64 import b64encode
from functools import partial
from typing import NamedTuple

import pytest

from skep.broker.push.rules import RuleBook
from skep.broker.timers.accept import TimerCall
from skep.broker.timers.execute import TimerExecutor
from skep.broker.timers.operations import read_steps
from tests.sql.support.log import Session, envelope, key_of

ANY_NUMBER = 1_000_000


class Scheduled(NamedTuple):
    item: int
    outcome: str
    scheduled_id: int | None
    deliver_at: object
    seconds: float | None
    partition_id: int | None
    message_offset: int | None


class Sequenced(NamedTuple):
    queue_id: list[int] | None
    partitions: list[int] | None
    moved: int
    is_busy: bool
    next_s: float | None


async def queue_id_of(log, queue="hive"):
    return await log.value("select skep.ensure_queue($1)", queue)


async def schedule(
    log,
    *names,
    delay_s=60.0,
    at=None,
    partition="a",
    queue="hive",
    most=ANY_NUMBER,
    resolve=False,
    nonces=None,
):
    """Schedule messages named by their transaction ids; return the answers in their order."""
    queue_id = await queue_id_of(log, queue)
    found = await log.rows(
        "select * from skep.schedule_messages($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        [queue_id] * len(names),
        [partition] * len(names),
        [key_of(name) for name in names],
        list(names),
        [envelope(name).encode() for name in names],
        [at] * len(names),
        [delay_s] * len(names),
        most,
        resolve,
        nonces,
    )
    return sorted(Scheduled(*row) for row in found)


async def sequence(log, limit=1000, size=1 << 23):
    return Sequenced(*await log.row("select * from skep.sequence_due($1, $2)", limit, size))


async def waiting(log):
    """Return the names of the messages that wait, in the order of their times."""
    rows = await log.rows("select transaction_id from skep.scheduled order by deliver_at, id")
    return [row[0] for row in rows]


async def stored(log, partition="a"):
    """Return the names of the messages in a partition, in order."""
    rows = await log.rows(
        'select transaction_id from skep.message where partition = $1 order by "offset"', partition
    )
    return [row[0] for row in rows]


class Listener:
    """Hears when timers are due."""

    def __init__(self):
        self.heard = []

    def hear_of_due(self, seconds):
        self.heard.append(seconds)


def scheduling(timer_key, txn, delay_ms=60_000, **members):
    """Return an operation that schedules a timer."""
    payload = b64encode(json.dumps(txn).encode()).decode()
    operation = {"op": "schedule", "queue": "hive", "timerKey": timer_key, "partition": "a"}
    return {**operation, "payload": payload, "delayMs": delay_ms, "txn": txn, **members}


def cancelling(timer_key, **members):
    return {"op": "cancel", "queue": "hive", "timerKey": timer_key, **members}


def steps_of(*operations):
    return read_steps(json.dumps(operations).encode())


def executor_of(caller, listener=None):
    rule_book = RuleBook(caller, seal=bytes)
    return TimerExecutor(caller, rule_book, listener or Listener(), hash_seed=0)


def fail(error):
    pytest.fail(str(error))


def units(calls, outcomes):
    """Return calls whose outcomes are noted by their places."""
    return [
        TimerCall(steps_of(*operations), partial(outcomes.__setitem__, at), fail)
        for at, operations in enumerate(calls)
    ]


async def carry_out(log, *calls, listener=None):
    """Carry out calls in one execution; return the states of their timers, call by call."""
    outcomes = {}
    executor = executor_of(Session(log), listener)
    await executor.write(units(calls, outcomes), is_repeated=False)
    return [outcomes[at] for at in range(len(calls))]


async def statuses(log, *calls):
    """Carry out calls in one execution; return the statuses of each."""
    return [[state.status for state in states] for states in await carry_out(log, *calls)]


async def keys_waiting(log):
    rows = await log.rows(
        "select timer_key from skep.scheduled where timer_key is not null order by timer_key"
    )
    return [row[0] for row in rows]
