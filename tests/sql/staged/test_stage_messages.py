import asyncio
from datetime import timedelta

import asyncpg
import pytest

from skep.db.schema.migrate import migrate
from tests.sql.support.enqueued import names, read, stage, staged, transactions
from tests.sql.support.log import NOON, Log


async def test_messages_are_staged_in_order_under_their_names(log):
    assert await stage(log, "x", "y", "z") == ["x", "y", "z"]

    assert names(await read(log)) == ["x", "y", "z"]


async def test_messages_without_a_name_get_one(log):
    one, two = await stage(log, None, "")

    assert await staged(log) == [one, two]
    assert one != two


async def test_nothing_to_stage_is_nothing_to_do(log):
    assert await stage(log) == []
    assert await transactions(log) == 0


async def test_a_transaction_draws_one_number_however_often_it_stages(log):
    async with log.connection.transaction():
        await stage(log, "x")
        await stage(log, "y", "z")

    rows = await read(log)
    assert names(rows) == ["x", "y", "z"]
    assert len({row.commit_number for row in rows}) == 1


async def test_numbers_are_drawn_when_transactions_commit(log, open_log):
    early = await open_log()
    transaction = early.connection.transaction()
    await transaction.start()
    await stage(early, "began first")
    await stage(log, "committed first")
    await transaction.commit()

    assert names(await read(log)) == ["committed first", "began first"]


async def test_a_savepoint_rolled_back_before_anything_else_was_staged_costs_nothing(log):
    async with log.connection.transaction():
        savepoint = log.connection.transaction()
        await savepoint.start()
        await stage(log, "undone")
        await savepoint.rollback()
        await stage(log, "done")

    assert names(await read(log)) == ["done"]


async def test_a_savepoint_rolled_back_later_keeps_what_was_staged_before(log):
    async with log.connection.transaction():
        await stage(log, "before")
        savepoint = log.connection.transaction()
        await savepoint.start()
        await stage(log, "undone")
        await savepoint.rollback()
        await stage(log, "after")

    assert names(await read(log)) == ["before", "after"]


async def test_a_rollback_leaves_nothing(log):
    transaction = log.connection.transaction()
    await transaction.start()
    await stage(log, "x")
    await transaction.rollback()

    assert await staged(log) == []
    assert await transactions(log) == 0


async def test_a_session_that_switches_triggers_off_is_not_forgotten(log):
    async with log.connection.transaction():
        await log.execute("set local session_replication_role = replica")
        await stage(log, "x")

    assert names(await read(log)) == ["x"]


async def test_serializable_transactions_that_stage_do_not_abort_each_other(open_log):
    sessions = [await open_log() for _ in range(4)]
    transactions = [each.connection.transaction(isolation="serializable") for each in sessions]
    for session, transaction in zip(sessions, transactions, strict=True):
        await transaction.start()
        await stage(session, "x")
    for session in sessions:
        await stage(session, "y")

    for transaction in transactions:
        await transaction.commit()


async def test_brokers_hear_of_it_once_when_it_commits(log, open_log):
    heard = asyncio.Queue()
    listening = await open_log()
    await listening.connection.add_listener("skep_staged", lambda *said: heard.put_nowait(said[3]))
    async with log.connection.transaction():
        await stage(log, "x")
        await stage(log, "y")
    await log.execute("notify skep_staged, 'end'")

    async with asyncio.timeout(30):
        assert [await heard.get(), await heard.get()] == ["", "end"]


async def test_who_switches_it_off_tells_nobody(log, open_log):
    heard = asyncio.Queue()
    listening = await open_log()
    await listening.connection.add_listener("skep_staged", lambda *said: heard.put_nowait(said[3]))
    async with log.connection.transaction():
        await log.execute("set local skep.stage_notify = off")
        await stage(log, "x")
    await log.execute("notify skep_staged, 'end'")

    async with asyncio.timeout(30):
        assert await heard.get() == "end"


async def test_a_time_too_far_ahead_is_refused(log):
    await stage(log, "x", at=NOON + timedelta(days=366))

    with pytest.raises(asyncpg.PostgresError, match="a year ahead") as refusal:
        await stage(log, "y", at=NOON + timedelta(days=367))

    assert refusal.value.sqlstate == "SK400"


async def test_one_bad_message_refuses_all(log):
    with pytest.raises(asyncpg.PostgresError, match="queue is longer"):
        await stage(log, "x", queue="q" * 256)

    assert await staged(log) == []


@pytest.mark.slow
async def test_a_transaction_in_two_phases_is_moved_when_it_is_committed(durable_postgres):
    server = durable_postgres(max_prepared_transactions="2")
    server.start()
    await migrate(server.dsn)

    async def connect(**options):
        return await asyncpg.connect(server.dsn, **options)

    log = await Log.open(connect)
    await log.execute("set skep.stage_notify = off")
    await log.execute("begin")
    await stage(log, "x")
    await log.execute("prepare transaction 'two'")
    before = await read(log)
    await log.execute("commit prepared 'two'")

    assert [row.id for row in before] == [None]
    assert names(await read(log)) == ["x"]
    await log.connection.close()
