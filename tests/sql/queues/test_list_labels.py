async def page(log, kind, limit=9, offset=0):
    rows = await log.rows("select * from skep.list_labels($1, $2, $3)", kind, limit, offset)
    (total,) = {row["total"] for row in rows}
    labels = {row["label"]: len(row["queue_id"]) for row in rows if row["label"] is not None}
    return labels, total


async def queues(log, *names):
    for name in names:
        await log.value("select skep.ensure_queue($1)", name)


async def test_namespaces_and_tasks_are_grouped_apart(log):
    await queues(log, "shop.bill", "shop.pack", "bees.pack")

    assert await page(log, "namespace") == ({"bees": 1, "shop": 2}, 2)
    assert await page(log, "task") == ({"bill": 1, "pack": 2}, 2)


async def test_queues_without_a_label_share_the_empty_one(log):
    await queues(log, "shop", "bees")

    assert await page(log, "task") == ({"": 2}, 1)


async def test_pages_tell_how_many_labels_there_are(log):
    await queues(log, "a.x", "b.x", "c.x")

    assert await page(log, "namespace", limit=2, offset=1) == ({"b": 1, "c": 1}, 3)
    assert await page(log, "namespace", limit=2, offset=3) == ({}, 3)


async def test_nothing_is_an_empty_page(log):
    assert await page(log, "namespace") == ({}, 0)
