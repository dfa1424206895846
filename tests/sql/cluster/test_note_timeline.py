import asyncio

NOTE = "select skep.note_timeline()"
NOTED = "select number, xid::text::bigint from skep.timeline"
PRESENT = "select pg_current_xact_id()::text::bigint"


async def test_the_newest_transaction_on_record_is_kept_for_each_timeline(log):
    await log.execute("insert into skep.timeline values (7, '5')")
    for _ in range(2):
        async with log.connection.transaction():
            xid = await log.value(PRESENT)
            await log.value(NOTE)

    assert sorted(map(tuple, await log.rows(NOTED))) == [(1, xid), (7, 5)]


async def test_sessions_do_not_wait_for_each_other(log, open_log):
    await log.value(NOTE)
    other = await open_log()

    async with log.connection.transaction():
        await log.value(NOTE)
        async with asyncio.timeout(30):
            await other.value(NOTE)
