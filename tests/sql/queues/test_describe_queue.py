import json


async def describe(log, name="hive"):
    return await log.row("select * from skep.describe_queue($1)", name)


async def test_a_queue_is_told_with_its_options_and_groups(log):
    await log.configure("hive", lease_time_s=7)
    await log.subscribe("hive", "bees", "timestamp", log.now)
    await log.provision("hive", "a", "b")

    found = await describe(log)

    assert json.loads(found["queue"])["lease_time_s"] == 7
    assert found["group_name"] == ["__QUEUE_MODE__", "bees"]
    assert found["group_mode"] == ["all", "timestamp"]
    assert found["group_from"] == [None, log.now]
    assert found["group_is_paused"] == [False, False]
    assert found["partitions"] == 3


async def test_the_default_partition_is_named_if_there_is_one(log):
    await log.provision("hive", "a")
    before = await describe(log)
    [default] = await log.provision("hive", "Default")

    assert before["default_partition_id"] is None
    assert (await describe(log))["default_partition_id"] == default


async def test_a_queue_without_groups_is_told_as_well(log):
    await log.provision("hive", "a")
    await log.execute("delete from skep.consumer_group")

    assert (await describe(log))["group_name"] is None


async def test_what_does_not_exist_has_no_row(log):
    assert await describe(log, "nothing") is None
