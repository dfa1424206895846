async def namespaces_of(log, *queues):
    rows = await log.rows("select * from skep.namespaces_of_queues($1)", list(queues))
    return {row["queue"]: row["namespace"] for row in rows}


async def test_a_queue_tells_its_namespace_and_one_without_an_empty_one(log):
    await log.execute("select skep.ensure_queue('orders')")
    await log.execute("select skep.ensure_queue('mails')")
    await log.set_options("orders", namespace="shop")
    await log.set_options("mails", namespace="")

    assert await namespaces_of(log, "orders", "mails") == {"orders": "shop", "mails": ""}


async def test_a_queue_that_does_not_exist_is_left_out(log):
    assert await namespaces_of(log, "nobody's") == {}
