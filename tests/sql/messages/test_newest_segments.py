async def page(log, limit, offset=0):
    queue_id = await log.value("select id from skep.queue where name = 'hive'")
    return await log.rows("select * from skep.newest_segments($1, $2, $3)", queue_id, limit, offset)


async def test_the_latest_write_comes_first_whatever_its_partition(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push(b, "1", "2")
    await log.push(a, "3")
    await log.push(b, "4", "5")

    found = await page(log, 9)

    assert [(row["partition_id"], row["first"], row["rank"]) for row in found] == [
        (b, 3, 0),
        (a, 1, 2),
        (b, 1, 3),
    ]


async def test_only_segments_with_messages_of_the_page_are_read(log):
    partition, _ = await log.partition()
    for names in ("ab", "c", "de"):
        await log.push(partition, *names)

    assert [row["first"] for row in await page(log, 2)] == [4]
    assert [row["first"] for row in await page(log, 2, 1)] == [4, 3]
    assert [row["first"] for row in await page(log, 9, 4)] == [1]
    assert await page(log, 9, 5) == []


async def test_messages_of_other_queues_are_left_out(log):
    await log.push(*(await log.provision("hive", "a")), "x")
    await log.push(*(await log.provision("wax", "a")), "y")

    assert len(await page(log, 9)) == 1
