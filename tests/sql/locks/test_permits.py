"""Permits of two sessions that meet, and against a model of a semaphore."""

import asyncio
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep.broker.kv.accept import KvCall
from skep.broker.kv.execute import KvExecutor
from skep.broker.locks.hold import Permits
from skep.broker.locks.operations import LockOperation
from skep.broker.once import answered
from tests.sql.support.log import NOON, Session

TTL_S = 3


class DirectKv:
    """Keys and values in the session of a test, each call in an execution of its own."""

    def __init__(self, log):
        self._executor = KvExecutor(Session(log))

    async def carry_out(self, plan, busy=None):
        del busy
        calls = []
        task = asyncio.create_task(
            answered(lambda answer, refuse: calls.append(KvCall(plan, answer, refuse)))
        )
        await asyncio.sleep(0)
        execute = self._executor.write if plan.writes else self._executor.read
        await execute(calls, is_repeated=False)
        return await task


def permits_of(log, released=None):
    return Permits(DirectKv(log), ([] if released is None else released).append)


def asking(op, **members):
    return LockOperation(op=op, name="lock", ttl_seconds=TTL_S, **members)


@pytest.fixture(autouse=True)
def no_keys(arun, log):
    arun(log.execute("delete from skep.kv_entry"))


async def test_of_two_sessions_that_acquire_at_once_one_gets_each_permit(log, open_log):
    other = await open_log()
    for round_ in range(10):
        asked = [asking("acquire", owner=f"{round_} {who}", limit=1) for who in "ab"]
        both = [permits_of(session) for session in (log, other)]
        found = await asyncio.gather(
            *(permits.acquire(each) for permits, each in zip(both, asked, strict=True))
        )
        [held] = [result for result, _ in found if result["acquired"]]
        released = await both[0].release(asking("release", token=held["token"]))
        assert released["released"]


async def test_a_release_is_announced_and_a_stale_one_is_not(log):
    announced = []
    permits = permits_of(log, announced)
    result, _ = await permits.acquire(asking("acquire"))
    renewed = await permits.renew(asking("renew", token=result["token"]))

    await permits.release(asking("release", token=result["token"]))
    assert announced == []
    await permits.release(asking("release", token=renewed["token"]))
    assert announced == ["lock"]


steps = st.lists(
    st.tuples(
        st.sampled_from(["acquire", "acquire", "renew", "release", "wait"]),
        st.sampled_from(["a", "b", "c"]),
    ),
    max_size=25,
)


@settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(steps=steps, limit=st.integers(1, 2))
def test_permits_do_what_a_dictionary_does(arun, log, steps, limit):
    async def play():
        await log.execute("delete from skep.kv_entry")
        await log.set_clock(NOON)
        permits, now, last_token = permits_of(log), 0, {}
        held = {}
        """By owner: slot, token and end of the lease."""
        known = {}
        """By owner: the last slot and token that it was told."""
        for op, owner in steps:
            held = {each: permit for each, permit in held.items() if permit[2] > now}
            if op == "wait":
                now += 1
                await log.set_clock(NOON + timedelta(seconds=now))
                continue
            if op == "acquire":
                result, _ = await permits.acquire(asking("acquire", owner=owner, limit=limit))
                assert result["acquired"] == (owner in held or len(held) < limit)
                if owner in held:
                    assert (result["slot"], result["token"]) == held[owner][:2]
                    continue
            elif owner not in known:
                continue
            else:
                slot, token = known[owner]
                asked = asking(op, owner=owner, slot=slot, token=token)
                result = await getattr(permits, op)(asked)
                assert result[{"renew": "renewed", "release": "released"}[op]] == (owner in held)
                if op == "release":
                    held.pop(owner, None)
                    continue
            if result.get("acquired") or result.get("renewed"):
                slot, token = known[owner] = result["slot"], result["token"]
                assert token > last_token.get(slot, 0), "a token fell"
                last_token[slot] = token
                held[owner] = (slot, token, now + TTL_S)
                assert len({slot for slot, _, _ in held.values()}) == len(held)

    arun(play())
