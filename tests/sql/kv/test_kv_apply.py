"""Calls on keys: the broker's plans and the SQL function against a dictionary."""

import json
from datetime import timedelta
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep.broker.kv.accept import KvCall
from skep.broker.kv.answer import render
from skep.broker.kv.execute import KvExecutor
from skep.broker.kv.operations import planned, read_operations
from tests.sql.support.kv_model import KvModel
from tests.sql.support.log import NOON, Session

NS = "model"
KEYS = ["a", "a/b", "b", "ä", "Z"]

keys = st.sampled_from(KEYS)
values = st.sampled_from([None, 0, 7, "text", [1, {"x": None}], True])
expiry = st.sampled_from([{"forever": True}, {"ttlSeconds": 1}, {"ttlSeconds": 3}])


def operation(op, **members):
    required = st.sampled_from([{}, {}, {}, {"required": True}])
    whole = st.fixed_dictionaries({"op": st.just(op), **members})
    return st.builds(lambda one, two: {**one, **two}, whole, required)


def with_expiry(op, **members):
    return st.builds(lambda one, two: {**one, **two}, operation(op, key=keys, **members), expiry)


expect = st.integers(-1, 3)
"""Which of the versions seen last: 0 is none, a number counts back, -1 leaves it out."""

reads = st.one_of(
    st.fixed_dictionaries({"op": st.just("get"), "key": keys}),
    st.fixed_dictionaries({"op": st.just("getMany"), "keys": st.lists(keys, min_size=1)}),
    st.fixed_dictionaries(
        {
            "op": st.just("getPrefix"),
            "prefix": st.sampled_from(["a", "b", "Z", "ä"]),
            "after": st.none() | keys,
            "limit": st.integers(1, 3),
        }
    ),
)
writes = st.one_of(
    with_expiry("put", value=values, expect=expect),
    with_expiry("putIfAbsent", value=values),
    with_expiry("incr", delta=st.integers(-3, 3), min=st.just(-4), max=st.just(4)),
    operation("delete", key=keys, expect=expect),
    operation("check", key=keys, expect=st.integers(0, 3)),
)
calls = st.lists(st.one_of(reads, writes), min_size=1, max_size=5)
rounds = st.lists(
    st.tuples(st.lists(calls, min_size=1, max_size=4), st.sampled_from([0, 1, 2])),
    min_size=1,
    max_size=8,
)


def sent(call, versions):
    """Return a call as a client sends it: one write per key, and versions that were seen."""
    written, operations = set(), []
    for each in call:
        if each["op"] in ("put", "putIfAbsent", "incr", "delete"):
            if each["key"] in written:
                continue
            written.add(each["key"])
        back = each.get("expect")
        members = {name: value for name, value in each.items() if name != "expect"}
        if back is not None and back >= 0:
            seen = versions.get(each["key"], [])
            members["expect"] = 0 if back == 0 else (seen[-back:] or [999])[0]
        operations.append({"ns": NS, **members})
    return operations


def plan_of(operations):
    return planned(read_operations(json.dumps(operations).encode()))


def fail(error):
    pytest.fail(str(error))


async def carry_out(log, calls):
    """Carry out calls together, those that read apart as the engine does; return their answers."""
    outcomes = {}
    plans = [plan_of(operations) for operations in calls]
    units = [KvCall(plan, partial(outcomes.__setitem__, at), fail) for at, plan in enumerate(plans)]
    executor = KvExecutor(Session(log))
    if writing := [unit for unit in units if unit.plan.writes]:
        await executor.write(writing, is_repeated=False)
    if reading := [unit for unit in units if not unit.plan.writes]:
        await executor.read(reading, is_repeated=False)
    return [json.loads(render(plan, outcomes[at])) for at, plan in enumerate(plans)]


def order_of(calls):
    """Return the places of calls in the order in which they are carried out."""
    plans = [plan_of(operations) for operations in calls]
    return sorted(
        range(len(calls)),
        key=lambda at: (not plans[at].writes, plans[at].writes and bool(plans[at].listings), at),
    )


def agrees(expected, answer, operations):
    if isinstance(expected, dict):
        return answer["ok"] is False and expected.items() <= answer.items()
    for want, got, each in zip(expected, answer["results"], operations, strict=True):
        shown = {name: got[name] for name in want if name in got}
        if "rows" in shown:
            members = ("key", "value", "version")
            shown["rows"] = [{name: row[name] for name in members} for row in shown["rows"]]
        if (shown, got["op"]) != (want, each["op"]):
            return False
    return True


@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(rounds=rounds)
def test_calls_do_what_a_dictionary_does(arun, log, rounds):
    async def play():
        await log.execute("delete from skep.kv_entry")
        await log.set_clock(NOON)
        model, versions = KvModel(), {}
        for together, pause in rounds:
            calls = [sent(call, versions) for call in together]
            answers = await carry_out(log, calls)
            for at in order_of(calls):
                results = answers[at].get("results") or [{}] * len(calls[at])
                expected = model.call(calls[at], results)
                assert agrees(expected, answers[at], calls[at]), (expected, answers[at])
            for key, entry in model.entries.items():
                versions.setdefault(key, []).append(entry.version)
            stored = await log.rows("select key, version from skep.kv where ns = $1", NS)
            live = {key: entry.version for key, entry in model.entries.items() if model.live(key)}
            assert dict(map(tuple, stored)) == live
            model.now += pause
            await log.set_clock(NOON + timedelta(seconds=model.now))

    arun(play())
