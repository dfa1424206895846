FIND = "select * from skep.find_group($1, $2)"


async def test_a_group_is_found_by_its_names(log):
    group = await log.subscribe("hive", "bees")

    found = await log.row(FIND, "hive", "bees")

    assert found["group_id"] == group
    assert found["queue_id"] == await log.value("select id from skep.queue where name = 'hive'")


async def test_a_queue_without_the_group_is_told_apart_from_no_queue(log):
    await log.provision("hive", "a")

    assert (await log.row(FIND, "hive", "wasps"))["group_id"] is None
    assert await log.row(FIND, "nest", "wasps") is None


async def test_nothing_is_created(log):
    await log.row(FIND, "nest", "wasps")

    assert await log.value("select count(*) from skep.queue") == 0
