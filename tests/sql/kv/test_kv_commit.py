"""What is on record of a call, so that a lost answer is found and nothing is done twice."""

import json

import pytest

from skep.broker.kv.accept import KvCall
from skep.broker.kv.execute import KvExecutor
from tests.sql.kv.test_kv_apply import plan_of
from tests.sql.support.log import LosesItsAnswer, Session

ADD = {"op": "incr", "ns": "n", "key": "k", "delta": 1, "forever": True}


@pytest.fixture(autouse=True)
def no_keys(arun, log):
    arun(log.execute("delete from skep.kv_entry"))
    arun(log.execute("delete from skep.settled_transaction"))


def unit(operations, outcomes):
    return KvCall(plan_of(operations), outcomes.append, outcomes.append)


async def lose(log, *units):
    with pytest.raises(ConnectionError):
        await KvExecutor(LosesItsAnswer(log, "kv_commit")).write(units, is_repeated=False)


async def test_a_repeated_call_is_answered_from_the_record(log):
    first, second = [], []
    units = [unit([ADD], first), unit([ADD, {**ADD, "key": "other"}], second)]
    await lose(log, *units)

    await KvExecutor(Session(log)).write(units, is_repeated=True)

    [[one]], [[two, other]] = [each[0].states for each in (first,)], [second[0].states]
    assert (one.value, two.value, other.value) == ("1", "2", "1")
    assert await log.value("select value from skep.kv where key = 'k'") == "2"


async def test_a_call_that_was_never_carried_out_is(log):
    outcomes = []

    await KvExecutor(Session(log)).write([unit([ADD], outcomes)], is_repeated=True)

    assert outcomes[0].states[0].value == "1"


async def test_a_repeated_call_keeps_its_answer_though_the_key_changed_since(log):
    outcomes = []
    put = {"op": "putIfAbsent", "ns": "n", "key": "k", "value": "mine", "ttlSeconds": 60}
    listing = {"op": "getPrefix", "ns": "n", "prefix": "k"}
    units = [unit([put, listing], outcomes)]
    await lose(log, *units)
    await log.value("""select skep.kv_put('n', 'k', '"theirs"')""")

    await KvExecutor(Session(log)).write(units, is_repeated=True)

    [outcome] = outcomes
    assert outcome.states[0].is_applied
    assert [json.loads(row.value) for row in outcome.listed[0]] == ["mine"]
    assert await log.value("select value from skep.kv") == '"theirs"'


async def test_a_call_that_changed_nothing_leaves_no_record(log):
    outcomes = []
    lost = {"op": "delete", "ns": "n", "key": "k"}

    await KvExecutor(Session(log)).write([unit([lost], outcomes)], is_repeated=False)

    assert outcomes[0].states[0].reason == "absent"
    assert await log.value("select count(*) from skep.settled_transaction") == 0
    assert await log.value("select count(*) from skep.kv_entry") == 0


async def test_a_call_of_which_a_required_operation_failed_is_undone_among_others(log):
    undone, kept = [], []
    refused = {"op": "check", "ns": "n", "key": "z", "expect": 9, "required": True}

    await KvExecutor(Session(log)).write(
        [unit([ADD, refused], undone), unit([ADD], kept)], is_repeated=False
    )

    assert (undone[0].is_undone, kept[0].is_undone) == (True, False)
    assert kept[0].states[0].value == "1"
