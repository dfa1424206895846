from tests.sql.support.log import NOON, timedelta


async def three_names(log, traces):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "x")
    for name in ("first", "second", "third"):
        await traces.record(partition, "x", name)
        await log.advance()
    await traces.record(partition, "x", "first")


async def test_names_come_last_seen_first_with_what_is_counted_of_them(log, traces):
    await three_names(log, traces)

    assert await traces.names() == [
        (3, False, "first", 2, 1, NOON + timedelta(seconds=3)),
        (3, False, "third", 1, 1, NOON + timedelta(seconds=2)),
        (3, False, "second", 1, 1, NOON + timedelta(seconds=1)),
    ]


async def test_pages_are_cut_by_limit_and_offset(log, traces):
    await three_names(log, traces)

    assert [row[2] for row in await traces.names(limit=1, skip=1)] == ["third"]


async def test_a_page_beyond_the_end_still_tells_the_total(log, traces):
    await three_names(log, traces)

    assert await traces.names(skip=3) == [(3, False, None, None, None, None)]
    await traces.clear()
    assert await traces.names() == [(0, False, None, None, None, None)]


async def test_above_a_hundred_thousand_names_the_total_is_an_estimate(log, traces):
    await log.execute("begin")
    await log.execute("""
        insert into skep.trace_name_total (name, trace_count, message_count, last_seen)
        select 'name ' || n, 1, 1, skep.now() from generate_series(1, 100001) n""")

    [row] = await traces.names(limit=1)
    await log.execute("rollback")

    assert row[0] >= 100_001
    assert row[1] is True
