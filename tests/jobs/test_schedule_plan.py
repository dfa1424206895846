from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.jobs import Schedule, Scheduler
from skep.jobs.errors import ScheduleNotFound
from skep.jobs.schedules import next_tick, plan
from skep.model.errors import BadRequest
from tests.jobs.support.shop import new_stage, price
from tests.sql.support.waiting import eventually

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOURLY = {"cron": "0 * * * *", "timezone": "UTC"}


def run_at(ticks):
    return [tick.at for tick in ticks if tick.is_run]


@pytest.mark.parametrize(("missed", "runs"), [("skip", []), ("once", [0]), ("all", [0, 1, 2, 3])])
def test_case_20_what_was_missed_is_skipped_run_once_or_run_through(missed, runs):
    now = NOON + timedelta(hours=3, minutes=30)

    ticks = plan(**HOURLY, missed=missed, next_at=NOON, now=now)

    assert run_at(ticks) == [NOON + timedelta(hours=hours) for hours in runs]
    assert ticks[-1].next_at == NOON + timedelta(hours=4)


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_a_tick_in_time_runs_whatever_the_policy(missed):
    ticks = plan(**HOURLY, missed=missed, next_at=NOON, now=NOON + timedelta(seconds=5))

    assert run_at(ticks) == [NOON]


def test_a_schedule_that_is_not_due_has_no_ticks():
    assert plan(**HOURLY, missed="all", next_at=NOON, now=NOON - timedelta(seconds=1)) == []


@given(missed=st.sampled_from(["skip", "once", "all"]), late_s=st.integers(0, 400_000))
def test_ticks_follow_each_other_without_gaps(missed, late_s):
    now = NOON + timedelta(seconds=late_s)

    ticks = plan(**HOURLY, missed=missed, next_at=NOON, now=now)

    assert ticks[0].at == NOON
    assert all(one.next_at == two.at for one, two in pairwise(ticks))
    assert ticks[-1].next_at > now or len(ticks) == 100


def test_a_time_zone_decides_when_the_day_begins():
    midnight = next_tick("0 0 * * *", "America/New_York", NOON)

    assert midnight == datetime(2026, 3, 2, 5, tzinfo=UTC)


def test_an_hour_that_comes_twice_in_autumn_runs_once():
    first = next_tick("30 2 * * *", "Europe/Berlin", datetime(2026, 10, 24, 22, tzinfo=UTC))
    second = next_tick("30 2 * * *", "Europe/Berlin", first)

    assert second - first > timedelta(hours=23)


def test_an_hour_that_the_clock_skips_in_spring_still_runs_that_day():
    tick = next_tick("30 2 * * *", "Europe/Berlin", datetime(2026, 3, 28, 23, tzinfo=UTC))

    assert tick.date() == datetime(2026, 3, 29, tzinfo=UTC).date()


@pytest.mark.parametrize(
    "wrong", [{"cron": "often"}, {"cron": "0 0 31 2 *"}, {"timezone": "Mars/Olympus"}]
)
def test_a_schedule_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(BadRequest):
        Schedule("x", price, 1, **{"cron": "* * * * *", **wrong})


async def test_case_20_a_due_schedule_starts_its_chain_and_is_listed(client, start_worker, sql):
    stage = new_stage()
    scheduler = Scheduler(client.slots)
    await scheduler.put(Schedule("hourly", price, 7, cron="0 * * * *"))
    (row,) = await scheduler.page()
    assert (row.name, bytes(row.input), row.last_at) == ("hourly", b"7", None)
    await sql.execute("update skep.job_schedule set next_at = next_at - interval '1 hour'")

    (chain_id,) = await scheduler.run_due()
    await start_worker()

    assert await client.chain(price, chain_id).result(timeout=20) == 7
    assert stage.seen == [7]
    assert await scheduler.run_due() == []
    assert await scheduler.delete("hourly")


async def test_a_worker_runs_the_schedules_it_was_declared_with(client, start_worker):
    new_stage()
    schedule = Schedule("every second", price, 3, cron="* * * * * *")

    await start_worker(schedules=[schedule])

    async def has_run():
        (row,) = await Scheduler(client.slots).page()
        return row.last_chain_id

    chain_id = await eventually(has_run)
    assert await client.chain(price, chain_id).result(timeout=20) == 3


@pytest.fixture
def deploy(start_worker):
    """Start a worker that declares daily schedules of these names, and stop it."""

    async def deploy(*names, **options):
        schedules = [Schedule(name, price, 1, cron="0 0 * * *") for name in names]
        worker = await start_worker(schedules=schedules, **options)
        await worker.stop()

    return deploy


async def running(client):
    return [row.name for row in await Scheduler(client.slots).page() if row.is_enabled]


async def test_a_deploy_does_not_switch_on_what_an_operator_switched_off(client, deploy):
    scheduler = Scheduler(client.slots)
    await deploy("a", "b", "c")
    await scheduler.pause("a")
    await scheduler.put(Schedule("b", price, 1, cron="0 0 * * *", is_enabled=False))

    await deploy("a", "b", "c")

    assert await running(client) == ["c"]
    await scheduler.resume("a")
    await scheduler.put(Schedule("b", price, 1, cron="0 0 * * *"))
    assert await running(client) == ["a", "b", "c"]


async def test_a_schedule_that_is_not_declared_any_more_ends(client, deploy):
    await deploy("a", "b")

    await deploy("b")

    assert await running(client) == ["b"]
    gone = await Scheduler(client.slots).find("a")
    assert (gone.owner, gone.removed_at is None) == ("shop", False)
    await deploy("a", "b")
    assert await running(client) == ["a", "b"]


async def test_what_an_operator_switched_off_stays_off_when_it_is_declared_again(client, deploy):
    await deploy("a")
    await Scheduler(client.slots).pause("a")

    await deploy()
    await deploy("a")

    assert await running(client) == []


async def test_schedules_of_others_do_not_end_with_a_deploy(client, deploy, start_worker):
    await Scheduler(client.slots).put(Schedule("by hand", price, 1, cron="0 0 * * *"))
    await deploy("a", schedule_owner="other application")
    await deploy("b")

    await deploy()
    await start_worker(schedule_owner="other application")  # it says nothing of schedules

    assert await running(client) == ["a", "by hand"]


async def test_a_schedule_that_is_not_there_cannot_be_paused(client):
    for change in (Scheduler(client.slots).pause, Scheduler(client.slots).resume):
        with pytest.raises(ScheduleNotFound):
            await change("missing")
