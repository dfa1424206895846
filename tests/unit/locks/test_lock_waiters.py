"""Waiters of a process in virtual time, over keys in memory that take their time."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from itertools import count
from math import inf
from typing import NamedTuple

import pytest

from skep.broker.kv.accept import KeyState, Kv, Outcome
from skep.broker.locks.hold import LINES, Permits
from skep.broker.locks.operations import NAMESPACE, LockOperation
from skep.broker.locks.wait import LINE_MAX, Locks
from skep.engine.driver import Engine
from skep.engine.fusion import FusionCore
from skep.engine.limiter import StaticLimiter
from skep.engine.policy import BatchPolicy
from skep.model.errors import KvUnavailable, Overloaded
from tests.support.virtual_time import run_virtually

NOON = datetime(2026, 11, 19, 12, tzinfo=UTC)
TRIP_S = 0.01
LINE = (LINES, "lock")


def utc_now():
    return NOON + timedelta(seconds=asyncio.get_running_loop().time())


class Key(NamedTuple):
    value: str
    version: int
    ends_at: float


class Keys:
    """Keys as the database has them; a call is carried out though its client hangs up."""

    def __init__(self):
        self.found = {}
        self.broken = {}
        """By key, the error of every call that writes it."""
        self._versions = count(1)

    @property
    def alive(self):
        now = asyncio.get_running_loop().time()
        return {name: key for name, key in self.found.items() if key.ends_at > now}

    def put(self, name, value, ttl_s):
        ends_at = asyncio.get_running_loop().time() + (inf if ttl_s is None else ttl_s)
        self.found[name] = Key(value, next(self._versions), ends_at)

    async def carry_out(self, plan, busy=None):
        del busy
        return await asyncio.shield(asyncio.ensure_future(self._carried_out(plan)))

    async def _carried_out(self, plan):
        await asyncio.sleep(TRIP_S)
        for step in plan.steps:
            if plan.writes and step.key in self.broken:
                raise self.broken[step.key]
        before = self.found = self.alive
        self.found = dict(before)
        steps = [(step, self._apply(step)) for step in plan.steps]
        is_undone = any(step.is_required and not state.is_applied for step, state in steps)
        if is_undone:
            self.found = before
        await asyncio.sleep(TRIP_S)
        return Outcome([state for _, state in steps], (), is_undone)

    def _apply(self, step):
        key = self.found.get(step.key, Key(None, 0, 0))
        if step.expect not in (None, key.version) or (step.op == "get" and not key.version):
            return KeyState(False, "version", key.value, key.version, None, NOON)
        if step.op == "put":
            self.put(step.key, step.value, step.ttl_s)
            return KeyState(True, None, None, self.found[step.key].version, None, NOON)
        if step.op == "delete":
            self.found.pop(step.key, None)
        ends = None if key.ends_at == inf else NOON + timedelta(seconds=key.ends_at)
        return KeyState(True, None, key.value, key.version, ends, NOON)


class Process(Locks):
    """A process that hears of what it announces itself."""

    def __init__(self, keys):
        super().__init__(keys, self, utc_now=utc_now)

    def announce(self, announced, _count):
        self.wake(announced)


def acquiring(name="lock", **members):
    return LockOperation(op="acquire", name=name, **{"ttl_seconds": 600, **members})


async def one(process, operation):
    [result] = await process.carry_out([operation])
    return result


async def release(process, result, name="lock"):
    return await one(process, LockOperation(op="release", name=name, token=result["token"]))


def ghosts(number):
    tickets = [[f"ghost {each}", "dead"] for each in range(number)]
    return json.dumps({"tickets": tickets, "beats": {"dead": 7}})


@pytest.mark.parametrize("wait_ms", [500, 2_500, 60_000])
def test_tickets_of_a_dead_process_are_removed_however_briefly_others_wait(wait_ms):
    async def play():
        keys = Keys()
        keys.put(LINE, ghosts(1), 60)
        process = Process(keys)
        for _ in range(12):
            if (await one(process, acquiring(wait_ms=wait_ms)))["acquired"]:
                break
        return asyncio.get_running_loop().time()

    assert run_virtually(play()) < 5


def test_waiters_of_a_line_that_was_lost_are_served_in_the_order_of_the_new_one():
    async def play():
        keys, served = Keys(), []
        process = Process(keys)
        holder = await one(process, acquiring())

        async def take_turn(name):
            result = await one(process, acquiring(wait_ms=60_000))
            served.append(name)
            await release(process, result)

        async with asyncio.TaskGroup() as group:
            for name in "ab":
                group.create_task(take_turn(name))
                await asyncio.sleep(0.5)
            del keys.found[LINE]
            await asyncio.sleep(1.5)
            group.create_task(take_turn("c"))
            await asyncio.sleep(0.5)
            await release(process, holder)
        return served, asyncio.get_running_loop().time(), keys.alive

    served, at, alive = run_virtually(play())

    assert sorted(served) == ["a", "b", "c"]
    assert at < 10
    assert alive == {}


@pytest.mark.parametrize("owner", [None, "me"])
@pytest.mark.parametrize("is_held", [False, True])
def test_who_hangs_up_at_any_moment_leaves_neither_a_ticket_nor_a_nameless_permit(owner, is_held):
    async def play(moment):
        keys = Keys()
        process = Process(keys)
        asked = [acquiring("other", owner=owner), acquiring(owner=owner, wait_ms=60_000)]
        if is_held:
            holder = await one(process, acquiring())
        waiting = asyncio.create_task(process.carry_out(asked))
        await asyncio.sleep(min(moment, 0.15))
        if is_held and moment > 0.15:
            releasing = asyncio.create_task(release(process, holder))
            await asyncio.sleep(moment - 0.15)
        waiting.cancel()
        await asyncio.wait([waiting])
        if is_held and moment > 0.15:
            await releasing
        elif is_held:
            await release(process, holder)
        await asyncio.sleep(1)
        return waiting.cancelled(), keys.alive

    for step in range(80):
        was_cancelled, alive = run_virtually(play(step * 0.004))
        assert LINE not in alive, step
        if was_cancelled and owner is None:
            assert alive == {}, step


def test_a_call_that_fails_waits_for_no_lock_and_holds_none():
    async def play():
        keys = Keys()
        keys.broken[NAMESPACE, "broken#0"] = KvUnavailable()
        process = Process(keys)
        holder = await one(process, acquiring())
        asked = [acquiring(wait_ms=60_000), acquiring("free"), acquiring("broken")]
        with pytest.raises(KvUnavailable):
            await process.carry_out(asked)
        waiting = process.waiting_count
        await release(process, holder)
        await asyncio.sleep(1)
        return waiting, keys.alive

    waiting, alive = run_virtually(play())

    assert waiting == 0
    assert alive == {}


def test_who_waited_in_vain_is_told_so_though_there_is_no_room_to_leave_the_line():
    async def play():
        keys = Keys()
        process = Process(keys)
        await one(process, acquiring())
        break_it = (keys.broken.__setitem__, LINE, Overloaded())
        asyncio.get_running_loop().call_later(0.3, *break_it)
        return (await one(process, acquiring(wait_ms=500)))["reason"]

    assert run_virtually(play()) == "held"


def test_a_line_that_is_full_is_not_entered():
    async def play():
        keys = Keys()
        process = Process(keys)
        await one(process, acquiring())
        keys.put(LINE, ghosts(LINE_MAX), 60)
        before = keys.found[LINE]
        result = await one(process, acquiring(wait_ms=60_000))
        return result["reason"], keys.found[LINE] == before, asyncio.get_running_loop().time()

    reason, is_same, at = run_virtually(play())

    assert (reason, is_same) == ("held", True)
    assert at < 1


def test_acquirers_of_a_permit_that_an_application_keeps_take_one_call_of_the_engine():
    async def play():
        policy = BatchPolicy(
            preferred_weight=1, hold_s_max=0.01, weight_max=1 << 20, concurrency_max=4
        )
        operations = {"kv": (policy, StaticLimiter(4))}
        engine = Engine(FusionCore(operations, slots=4, weight_capacity=1 << 20), patience_s=5)
        calls = []

        async def wait_for_the_row(batch, *, is_repeated):
            del is_repeated
            calls.append(len(batch))
            await asyncio.Event().wait()

        engine.serve("kv", wait_for_the_row)
        permits = Permits(Kv(engine), lambda _: None)
        tasks = []
        for _ in range(6):
            tasks.append(asyncio.create_task(permits.acquire(acquiring())))
            await asyncio.sleep(1)
        return list(calls)

    assert run_virtually(play()) == [1]
