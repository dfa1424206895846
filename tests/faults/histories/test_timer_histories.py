"""Timers fire once, or not at all if they were cancelled, whatever is killed meanwhile."""

import asyncio
import sys
from contextlib import asynccontextmanager
from random import Random

import pytest

from tests.faults.support.instances import fleet_of
from tests.faults.support.storms import kill_brokers, under
from tests.faults.support.timer_histories import TimerLoad, TimerStory, violations
from tests.sql.support.waiting import eventually


def found(steps, fired):
    return list(violations([TimerStory(steps)], fired))


def test_what_the_log_explains_is_accepted():
    assert found([("a", "scheduled")], ["a"]) == []
    assert found([("a", "scheduled"), ("", "cancelled")], []) == []
    assert found([("a", "scheduled"), ("b", "rescheduled")], ["b"]) == []
    assert found([("a", "scheduled"), ("b", "scheduled")], ["a", "b"]) == []
    assert found([("a", "scheduled"), ("", "absent")], ["a"]) == []


@pytest.mark.parametrize("fired", [[], ["a"]])
def test_what_is_unknown_may_have_happened(fired):
    assert found([("a", None)], fired) == []
    assert found([("a", "scheduled"), ("", None)], fired) == []


@pytest.mark.parametrize(
    ("steps", "fired", "said"),
    [
        ([("a", "scheduled")], ["a", "a"], "a fired 2 times"),
        ([("a", "scheduled")], [], "a was scheduled and never fired"),
        ([("a", None)], ["b"], "b fired and was never scheduled"),
        ([("a", "scheduled"), ("", "cancelled")], ["a"], "a fired although it was cancelled"),
        (
            [("a", "scheduled"), ("b", "rescheduled")],
            ["a", "b"],
            "a fired although it was rescheduled",
        ),
        (
            [("a", "scheduled"), ("", "absent")],
            [],
            "a was gone when it was looked for, and never fired",
        ),
    ],
)
def test_what_must_not_be_is_found(steps, fired, said):
    assert found(steps, fired) == [said]


@asynccontextmanager
async def load_on(fleet, queue, seed):
    async with fleet.living()[0].sql() as sql:
        await sql.execute("select skep.ensure_queue($1)", queue)
        await sql.execute("update skep.queue set dedup_window_s = 0 where name = $1", queue)
    load = TimerLoad(fleet, queue, seed)
    async with under(load):
        yield load


async def check(load, fleet, queue):
    async with fleet.living()[0].sql() as sql:

        async def is_all_fired():
            return not await sql.fetchval("select count(*) from skep.scheduled")

        await eventually(is_all_fired)
        rows = await sql.fetch("select transaction_id from skep.message where queue = $1", queue)
    assert list(violations(load.stories, [row[0] for row in rows])) == []
    statuses = {status for story in load.stories for _, status in story.steps}
    assert statuses >= {"scheduled", "rescheduled", "cancelled"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="kills process groups")
async def test_timers_fire_once_while_brokers_are_killed(database_url, queue, seed):
    async with fleet_of(2, database_url, seed, "--workers", "1") as fleet:
        async with load_on(fleet, queue, seed) as load:
            await load.until_answered(100)
            await kill_brokers(fleet, 2, kills=4, pause_s=(0.1, 0.4), random=Random(seed))
            await load.until_answered(load.answered + 300)

        await check(load, fleet, queue)


@pytest.mark.slow
async def test_timers_fire_once_while_postgresql_is_killed(postgres, queue, seed):
    async with fleet_of(1, postgres.dsn, seed, "--workers", "1") as fleet:
        async with load_on(fleet, queue, seed) as load:
            for _ in range(2):
                await load.until_answered(load.answered + 100)
                await asyncio.to_thread(postgres.end)
                await asyncio.to_thread(postgres.start)
            await load.until_answered(load.answered + 100)

        await check(load, fleet, queue)
