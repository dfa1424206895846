from datetime import timedelta

DELETE = "select skep.delete_before('instance', 'o.seen_at < $1 order by o.seen_at', $1, $2)"


async def report(log, *ages_s):
    await log.execute("delete from skep.instance")
    for age_s in ages_s:
        await log.execute(
            "insert into skep.instance (id, host, port, version, worker_count, started_at, seen_at)"
            " values (gen_random_uuid(), 'h', 1, '1', 1, $1, $1)",
            log.now - timedelta(seconds=age_s),
        )


async def ages(log):
    rows = await log.rows("select seen_at from skep.instance order by 1")
    return [(log.now - row[0]).total_seconds() for row in rows]


async def test_the_oldest_go_first_and_the_young_stay(log):
    await report(log, 5, 30, 10, 20)
    border = log.now - timedelta(seconds=7)

    assert [await log.value(DELETE, border, 2) for _ in range(3)] == [2, 1, 0]
    assert await ages(log) == [5]


async def test_rows_that_others_hold_are_skipped(log, open_log):
    await report(log, 10, 20)
    other = await open_log()
    holds = other.connection.transaction()
    await holds.start()
    await other.rows("select from skep.instance order by seen_at limit 1 for update")

    assert await log.value(DELETE, log.now, 10) == 1

    await holds.rollback()
    assert await ages(log) == [20]
