import asyncio
from datetime import timedelta

from skep.jobs.identifiers import new_id

PUT = "select skep.job_schedule_put($1, 'work', '1', $2, 'UTC', 'once', 0::smallint, 3, $3, $4, $5)"
TICK = "select skep.job_schedule_tick($1, $2, $3, $4)"
LIST = "select * from skep.job_schedule_list($1, null, null, 10)"
HOUR = timedelta(hours=1)


async def put(
    chains, name="hourly", *, cron="0 * * * *", is_enabled=True, next_at=None, owner=None
):
    await chains.rows(PUT, name, cron, is_enabled, next_at or chains.now, owner)


async def test_a_tick_starts_one_chain_and_moves_the_schedule_on(chains):
    await put(chains)
    chain_id = new_id()

    assert await chains.value(TICK, "hourly", chains.now, chains.now + HOUR, chain_id)

    assert await chains.chain_state(chain_id) == "open"
    (row,) = await chains.rows(LIST, False)
    assert (row["next_at"], row["last_at"], row["last_chain_id"]) == (
        chains.now + HOUR,
        chains.now,
        chain_id,
    )


async def test_case_20_five_schedulers_run_a_tick_once(chains, open_chains):
    await put(chains)
    sessions = [await open_chains() for _ in range(5)]

    ours = await asyncio.gather(
        *(
            session.value(TICK, "hourly", chains.now, chains.now + HOUR, new_id())
            for session in sessions
        )
    )

    assert sorted(ours) == [False] * 4 + [True]
    assert await chains.value("select count(*) from skep.chain") == 1


async def test_a_tick_can_pass_without_a_chain(chains):
    await put(chains)

    assert await chains.value(TICK, "hourly", chains.now, chains.now + HOUR, None)

    assert await chains.value("select count(*) from skep.chain") == 0


async def test_putting_it_again_with_the_same_times_keeps_its_place(chains):
    await put(chains, next_at=chains.now)
    await put(chains, next_at=chains.now + HOUR)
    (row,) = await chains.rows(LIST, False)
    assert row["next_at"] == chains.now

    await put(chains, cron="5 * * * *", next_at=chains.now + HOUR)
    (row,) = await chains.rows(LIST, False)
    assert row["next_at"] == chains.now + HOUR


async def test_only_enabled_schedules_are_due(chains):
    await put(chains, "off", is_enabled=False)
    await put(chains, "later", next_at=chains.now + HOUR)
    await put(chains, "due")

    assert [row["name"] for row in await chains.rows(LIST, True)] == ["due"]
    assert not await chains.value(TICK, "off", chains.now, chains.now + HOUR, new_id())


async def test_a_schedule_can_be_forgotten(chains):
    await put(chains)

    assert await chains.value("select skep.job_schedule_delete('hourly')")
    assert not await chains.value("select skep.job_schedule_delete('hourly')")


async def test_a_pause_outlasts_declarations_and_ends_with_the_next_time(chains):
    await put(chains, owner="shop")
    assert await chains.value("select skep.job_schedule_pause('hourly', true, null)")

    await put(chains, owner="shop")

    (row,) = await chains.rows(LIST, False)
    assert (row["is_enabled"], row["is_paused"], row["owner"]) == (False, True, "shop")
    assert await chains.rows(LIST, True) == []
    assert not await chains.value(TICK, "hourly", chains.now, chains.now + HOUR, new_id())
    resume = "select skep.job_schedule_pause($1, false, $2)"
    assert await chains.value(resume, "hourly", chains.now + HOUR)
    (row,) = await chains.rows(LIST, False)
    assert (row["is_enabled"], row["next_at"]) == (True, chains.now + HOUR)
    assert not await chains.value(resume, "missing", chains.now)


async def test_an_owner_ends_only_its_own_schedules(chains):
    for name, owner in (("a", "shop"), ("b", "shop"), ("c", "other"), ("d", None)):
        await put(chains, name, owner=owner)
    retire = "select skep.job_schedule_retire($1, $2)"

    assert await chains.rows(retire, "shop", ["b"]) == [("a",)]
    assert await chains.rows(retire, "shop", ["b"]) == []

    assert [row["name"] for row in await chains.rows(LIST, True)] == ["b", "c", "d"]


async def test_a_removed_schedule_that_is_put_by_hand_has_no_owner(chains):
    await put(chains, "a", owner="shop")
    await chains.rows("select skep.job_schedule_retire('shop', '{}')")

    await put(chains, "a")
    await chains.rows("select skep.job_schedule_retire('shop', '{}')")

    (row,) = await chains.rows(LIST, True)
    assert (row["owner"], row["removed_at"]) == (None, None)
