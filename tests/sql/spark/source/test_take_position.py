TAKE = "select * from skep.take_position($1)"


async def queue_id(log, queue="hive"):
    return await log.value("select id from skep.queue where name = $1", queue)


async def test_it_names_the_database_the_present_and_the_newest_transaction(log):
    partition, _ = await log.partition()
    await log.push(partition, "a")
    await log.push(partition, "b")

    taken = await log.row(TAKE, [await queue_id(log)])

    system, _, database = taken["system"].partition(":")
    assert int(system) == await log.value("select system_identifier from pg_control_system()")
    assert int(database) == await log.value(
        "select oid from pg_database where datname = current_database()"
    )
    assert taken["snapshot"] == await log.value("select pg_current_snapshot()::text")
    assert taken["newest"] == await log.value("select max(xid::text::bigint) from skep.segment")
    assert (taken["timeline"], taken["newest_us"]) == (1, log.now.timestamp() * 1_000_000)
    assert taken["taken_us"] == log.now.timestamp() * 1_000_000


async def test_the_newest_transaction_is_that_of_the_queues_asked_for(log):
    partition, _ = await log.partition("hive")
    other, _ = await log.partition("other")
    await log.push(partition, "a")
    await log.push(other, "b")

    one = await log.row(TAKE, [await queue_id(log)])
    both = await log.row(TAKE, [await queue_id(log), await queue_id(log, "other")])

    assert one["newest"] < both["newest"]


async def test_queues_without_messages_have_no_newest_transaction(log):
    await log.partition()

    taken = await log.row(TAKE, [await queue_id(log)])

    assert (taken["newest"], taken["newest_us"]) == (None, None)
    assert (await log.row(TAKE, []))["newest"] is None


async def test_an_open_transaction_is_neither_newest_nor_over(log, open_log):
    partition, _ = await log.partition()
    slow = await open_log()
    await log.push(partition, "a")
    async with slow.connection.transaction():
        other = (await slow.provision("hive", "b"))[0]
        await slow.push(other, "late")
        xid = await slow.value("select pg_current_xact_id()::text::bigint")

        taken = await log.row(TAKE, [await queue_id(log)])

    assert taken["newest"] < xid
    assert not await log.value(
        "select pg_visible_in_snapshot($1::text::xid8, $2::text::pg_snapshot)",
        str(xid),
        taken["snapshot"],
    )


async def test_a_plain_role_may_take_a_position(log):
    await log.partition()
    await log.execute(
        "create role plain_reader; grant usage on schema skep to plain_reader;"
        "grant select on all tables in schema skep to plain_reader"
    )
    try:
        await log.execute("set role plain_reader")
        assert await log.row(TAKE, [])
    finally:
        await log.execute("reset role; drop owned by plain_reader; drop role plain_reader")
