from tests.sql.support.log import QUEUE_MODE


async def provision(log, *partitions):
    rows = await log.rows(
        "select * from skep.provision_partitions($1, $2)",
        [queue for queue, _ in partitions],
        [partition for _, partition in partitions],
    )
    return {(row["queue_name"], row["partition_name"]): row for row in rows}


async def test_partitions_that_do_not_exist_are_created_together_with_their_queues(log):
    rows = await provision(log, ("hive", "a"), ("hive", "b"), ("wax", "a"))

    assert set(rows) == {("hive", "a"), ("hive", "b"), ("wax", "a")}
    assert all(row["created"] for row in rows.values())
    assert len({row["partition_id"] for row in rows.values()}) == 3
    assert len({row["queue_id"] for row in rows.values()}) == 2


async def test_a_partition_that_exists_is_found_and_only_the_others_are_created(log):
    before = await provision(log, ("hive", "b"))

    rows = await provision(log, ("hive", "c"), ("hive", "b"), ("hive", "a"))

    created = {name for (_, name), row in rows.items() if row["created"]}
    assert created == {"a", "c"}
    assert rows["hive", "b"]["partition_id"] == before["hive", "b"]["partition_id"]


async def test_a_new_partition_is_empty(log):
    await provision(log, ("hive", "a"))

    assert tuple(await log.row("select head, tail from skep.partition")) == (0, 1)


async def test_a_new_partition_gets_an_idle_cursor_for_every_group_of_its_queue(log):
    bees = await log.subscribe("hive", "bees")
    drones = await log.subscribe("hive", "drones", "new")
    await log.subscribe("wax", "strangers")
    queue_mode = await log.subscribe("hive", QUEUE_MODE)

    await provision(log, ("hive", "a"), ("hive", "b"))

    cursors = await log.rows(
        """
        select p.name, c.group_id, c.queue_id = p.queue_id, c.acked, c.available_at
        from skep.cursor c join skep.partition p on p.id = c.partition_id
        """
    )
    assert sorted(map(tuple, cursors)) == [
        (name, group, True, 0, None)
        for name in "ab"
        for group in sorted([queue_mode, bees, drones])
    ]


async def test_a_repeated_call_adds_no_second_cursor(log):
    await provision(log, ("hive", "a"))

    await provision(log, ("hive", "a"))

    assert await log.value("select count(*) from skep.cursor") == 1


async def test_only_existing_partitions_are_found_when_none_is_to_be_created(log):
    await provision(log, ("hive", "a"))

    rows = await log.rows(
        "select * from skep.provision_partitions($1, $2, false)",
        ["hive", "hive", "typo"],
        ["a", "b", "a"],
    )

    assert [(row["queue_name"], row["partition_name"], row["created"]) for row in rows] == [
        ("hive", "a", False)
    ]
    assert await log.value("select count(*) from skep.partition") == 1
    assert await log.value("select count(*) from skep.queue where name = 'typo'") == 0
