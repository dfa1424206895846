import asyncio
from datetime import timedelta

import asyncpg
import pytest

from skep.jobs.identifiers import new_id
from tests.sql.support.waiting import eventually


async def outcomes(chains, *items):
    return [row["outcome"] for row in await chains.start_all(*items)]


async def until_it_waits(observer, session):
    query = "select wait_event_type = 'Lock' from pg_stat_activity where pid = $1"
    pid = session.connection.get_server_pid()
    await eventually(lambda: observer.value(query, pid))


async def test_the_first_job_has_the_id_of_its_chain(chains):
    chain_id = await chains.start(input={"n": 1})

    (job,) = await chains.rows("select * from skep.job")
    assert (job["id"], job["chain_id"], job["position"]) == (chain_id, chain_id, 0)
    assert job["input"] == '{"n": 1}'


async def test_case_01_a_start_that_is_rolled_back_leaves_nothing_and_notifies_nobody(
    chains, open_chains
):
    listener = await open_chains()
    heard = asyncio.Queue()
    await listener.connection.add_listener(
        "skep_job_ready", lambda *args: heard.put_nowait(args[3])
    )

    transaction = chains.connection.transaction()
    await transaction.start()
    await chains.start_all({"type": "undone"}, notify=True)
    await transaction.rollback()
    await chains.start_all({"type": "done"}, notify=True)

    assert await asyncio.wait_for(heard.get(), 30) == "done"
    assert await chains.value("select count(*) from skep.chain") == 1
    await listener.connection.reset()


async def test_case_02_a_chain_and_the_users_rows_are_seen_together_or_not_at_all(
    chains, open_chains
):
    reader = await open_chains()
    await chains.connection.execute("create temporary table users_row (id int)")
    async with chains.connection.transaction():
        await chains.connection.execute("insert into users_row values (1)")
        chain_id = await chains.start()
        assert await reader.chain_state(chain_id) is None

    assert await reader.chain_state(chain_id) == "open"
    assert await chains.value("select count(*) from users_row") == 1


async def test_case_03_the_database_refuses_a_second_open_job_of_a_chain(chains):
    chain_id = await chains.start()
    insert = (
        "insert into skep.open_job (job_id, chain_id, type_id, priority, due_at, max_attempts)"
        " values ($1, $2, 1, 0, skep.now(), 1)"
    )

    with pytest.raises(asyncpg.UniqueViolationError):
        await chains.connection.execute(insert, new_id(), chain_id)


async def test_case_09_a_due_time_in_the_past_is_raised_to_now(chains):
    chain_id = await chains.start(due_at=chains.now - timedelta(days=1))

    assert await chains.value("select due_at from skep.open_job where job_id = $1", chain_id) == (
        chains.now
    )


async def test_an_id_that_exists_is_refused_and_nothing_is_written(chains):
    chain_id = await chains.start()

    assert await outcomes(chains, {}, {"id": chain_id}) == ["exists", "exists"]
    assert await chains.value("select count(*) from skep.chain") == 1


async def test_case_16_a_blocker_that_does_not_exist_is_refused_and_nothing_is_written(chains):
    there = await chains.start()

    answer = await outcomes(chains, {}, {"blockers": [there, new_id()]})

    assert answer == ["missing_blocker", "missing_blocker"]
    assert await chains.value("select count(*) from skep.chain") == 1


async def test_case_18_a_key_of_an_open_chain_leads_to_that_chain(chains):
    holder = await chains.start(key="order 1")

    ((_, chain_id, outcome),) = await chains.start_all({"key": "order 1"})

    assert (chain_id, outcome) == (holder, "duplicate")
    assert await chains.value("select count(*) from skep.chain") == 1


async def test_case_18_after_its_chain_has_ended_a_key_is_free(chains, worker):
    await chains.start(key="order 1")
    await chains.run(worker)

    assert await outcomes(chains, {"key": "order 1"}) == ["started"]


async def test_defect_v02_two_transactions_with_one_key_start_one_chain(chains, open_chains):
    other, observer = await open_chains(), await open_chains()
    async with chains.connection.transaction():
        holder = await chains.start(key="order 1")
        second = asyncio.create_task(other.start_all({"key": "order 1"}))
        await until_it_waits(observer, other)

    ((_, chain_id, outcome),) = await second
    assert (chain_id, outcome) == (holder, "duplicate")


async def test_defect_v02_the_second_starts_when_the_first_is_rolled_back(chains, open_chains):
    other, observer = await open_chains(), await open_chains()
    await chains.type_ids("work")
    transaction = chains.connection.transaction()
    await transaction.start()
    await chains.start(key="order 1")
    second = asyncio.create_task(other.start_all({"key": "order 1"}))
    await until_it_waits(observer, other)
    await transaction.rollback()

    ((_, _, outcome),) = await second
    assert outcome == "started"


async def test_defect_v02_of_two_that_find_a_free_key_one_gets_it(chains, open_chains, worker):
    """The key has a row of a chain that ended: both would take it over."""
    other, observer = await open_chains(), await open_chains()
    await chains.start(key="order 1")
    await chains.run(worker)
    async with chains.connection.transaction():
        holder = await chains.start(key="order 1")
        second = asyncio.create_task(other.start_all({"key": "order 1"}))
        await until_it_waits(observer, other)

    ((_, chain_id, outcome),) = await second
    assert (chain_id, outcome) == (holder, "duplicate")


async def test_defect_v03_a_chain_at_its_second_job_still_holds_its_key(chains, worker):
    holder = await chains.start(key="order 1")
    await chains.claim(worker)
    await chains.go_on(worker, holder, "second")

    ((_, chain_id, outcome),) = await chains.start_all({"key": "order 1"})

    assert (chain_id, outcome) == (holder, "duplicate")


async def test_a_duplicate_in_an_open_transaction_does_not_keep_the_holder_from_ending(
    chains, open_chains, worker
):
    other = await open_chains()
    holder = await chains.start(key="order 1")
    await chains.claim(worker)
    async with other.connection.transaction():
        assert await outcomes(other, {"key": "order 1"}) == ["duplicate"]

        await chains.connection.execute("set lock_timeout = '1s'")
        assert await chains.settle(worker, holder) == "settled"


@pytest.mark.parametrize(("age_s", "outcome"), [(59.9, "duplicate"), (60, "started")])
async def test_case_19_a_window_ends_to_the_moment(chains, age_s, outcome):
    await chains.start(key="k")
    await chains.advance(age_s)

    assert await outcomes(chains, {"key": "k", "window_s": 60}) == [outcome]


async def test_case_19_with_scope_any_a_chain_that_ended_still_holds_its_key(chains, worker):
    await chains.start(key="k")
    await chains.run(worker)

    assert await outcomes(chains, {"key": "k", "any": True}) == ["duplicate"]
    assert await outcomes(chains, {"key": "k"}) == ["started"]


async def test_case_19_within_a_batch_the_first_with_a_key_wins(chains):
    rows = await chains.start_all({"key": "k"}, {"key": "other"}, {"key": "k"})

    assert [row["outcome"] for row in rows] == ["started", "started", "duplicate"]
    assert rows[2]["chain_id"] == rows[0]["chain_id"]


async def test_case_19_types_have_keys_of_their_own(chains):
    assert await outcomes(chains, {"key": "k"}, {"key": "k", "type": "b"}) == ["started"] * 2


async def test_case_19_a_chain_may_start_its_own_successor_with_its_own_key(chains, worker):
    running = await chains.start(key="hourly")
    await chains.claim(worker)

    ((_, successor, outcome),) = await chains.start_all({"key": "hourly", "instead_of": running})
    assert outcome == "started"
    await chains.settle(worker, running)

    ((_, holder, outcome),) = await chains.start_all({"key": "hourly"})
    assert (holder, outcome) == (successor, "duplicate"), "the end of the first freed the key"


async def test_a_fatal_blocker_that_failed_before_fails_the_new_chain(chains, worker):
    failed = await chains.start()
    await chains.run(worker, outcome="failed", error="broken")

    waiting, fatal = [
        row["chain_id"]
        for row in await chains.start_all(
            {"blockers": [failed]}, {"blockers": [failed], "on_failure": "fail"}
        )
    ]

    assert await chains.state(waiting) == "blocked"
    assert await chains.chain_state(fatal) == "failed"
