from tests.sql.support.operating import carry_out, claim, defer

CALL = "select * from skep.list_operations($1, $2, $3, $4)"


async def listed(log, status=None, queue=None, before=None, limit=10):
    return await log.rows(CALL, status, queue, before, limit)


async def test_the_newest_come_first_page_by_page(log):
    [a] = await log.provision("hive", "a")
    ids = [await defer(log, a) for _ in range(5)]

    first = await listed(log, limit=3)
    rest = await listed(log, limit=3, before=first[-1]["number"])

    assert [row["id"] for row in [*first, *rest]] == ids[::-1]


async def test_statuses_and_queues_can_be_chosen(log):
    [a] = await log.provision("hive", "a")
    [b] = await log.provision("nest", "b")
    done = await defer(log, a, "x")
    await carry_out(log)
    working = await defer(log, a, "y")
    await claim(log)
    waiting = await defer(log, b, "z")

    assert [row["id"] for row in await listed(log)] == [waiting, working, done]
    assert [row["id"] for row in await listed(log, status="completed")] == [done]
    assert [row["id"] for row in await listed(log, status="processing")] == [working]
    assert [row["id"] for row in await listed(log, queue="nest")] == [waiting]
    assert await listed(log, status="failed") == []
