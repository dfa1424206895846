import asyncpg
import pytest

from tests.sql.model.test_races import waiting


@pytest.fixture(autouse=True)
def nothing_removed(arun, log):
    arun(log.execute("delete from skep.removed_queue"))


@pytest.fixture
def other(arun, open_log):
    return arun(open_log())


@pytest.fixture
def observer(arun, open_log):
    return arun(open_log())


async def remove(log, name="hive"):
    return await log.value("select skep.remove_queue($1)", name)


async def test_queue_and_groups_are_gone_at_once(log):
    queue_id = await log.value("select skep.ensure_queue('hive')")
    await log.subscribe("hive", "bees")

    assert await remove(log) == queue_id
    assert await log.value("select count(*) from skep.queue") == 0
    assert await log.value("select count(*) from skep.consumer_group") == 0
    assert tuple(await log.row("select queue_id, name from skep.removed_queue")) == (
        queue_id,
        "hive",
    )


async def test_a_reader_that_is_behind_keeps_the_queue_until_its_hold_is_released_or_over(log):
    partition, _ = await log.partition("hive")
    hold = "select * from skep.place_hold('hive', 'lake', null, 60)"
    await log.rows(hold)
    await log.push(partition, "a")

    with pytest.raises(asyncpg.PostgresError, match="for the reader lake: release it") as refused:
        await remove(log)
    assert refused.value.sqlstate == "SK411"
    await log.advance(60)
    assert await remove(log)


async def test_a_reader_that_has_read_everything_does_not_keep_the_queue(log):
    partition, _ = await log.partition("hive")
    await log.push(partition, "a")
    await log.rows("select * from skep.place_hold('hive', 'lake', null, 60)")

    assert await remove(log)


async def test_what_does_not_exist_is_not_removed(log):
    assert await remove(log) is None
    assert await log.value("select count(*) from skep.removed_queue") == 0


async def test_a_push_stores_nothing_in_a_partition_whose_queue_is_gone(log):
    gone, living = await log.provision("hive", "a") + await log.provision("wax", "a")
    await remove(log)

    stored = await log.push_writes({gone: ["x"], living: ["y"]})

    assert [(row.partition_id, row.first) for row in stored] == [(living, 1)]
    assert await log.value("select count(*) from skep.segment") == 1


async def test_a_push_into_nothing_but_such_partitions_stores_nothing(log):
    [gone] = await log.provision("hive", "a")
    await remove(log)

    assert await log.push_writes({gone: ["x"]}) == []


async def test_a_push_on_the_word_of_the_broker_stores_nothing_in_such_a_partition_either(log):
    gone, living = await log.provision("hive", "a") + await log.provision("wax", "a")
    versions = await log.versions([gone, living])
    await remove(log)

    stored = await log.push_guaranteed(
        {gone: "x", living: "y"}, {gone: 0, living: 0}, versions=versions
    )

    assert stored == {}  # the broker sends them through push_segments
    assert await log.value("select count(*) from skep.segment") == 0


async def test_a_poll_of_a_group_of_it_is_told_so(log):
    _, group = await log.partition()
    await remove(log)

    with pytest.raises(asyncpg.PostgresError) as refused:
        await log.pop(group)
    assert refused.value.sqlstate == "SK404"


async def test_the_name_begins_anew_with_nothing_inherited(log):
    await log.configure("hive", lease_time_s=7)
    [before] = await log.provision("hive", "a")
    await log.subscribe("hive", "bees", "new")
    await remove(log)

    [after] = await log.provision("hive", "a")

    assert after != before
    assert await log.value("select lease_time_s from skep.queue") == 300
    assert await log.value("select count(*) from skep.consumer_group") == 1


async def test_partitions_that_are_being_created_are_waited_for(log, other, observer):
    await log.provision("hive", "a")
    async with other.connection.transaction():
        [late] = await other.provision("hive", "b")
        removing = waiting(observer, log, remove(log))
        async with removing as task:
            await other.execute("commit; begin")

    queue_id = await task
    assert await log.value("select queue_id from skep.partition where id = $1", late) == queue_id


async def test_partitions_wished_for_during_the_removal_are_not_left_without_a_queue(
    log, other, observer
):
    await log.provision("hive", "a")
    async with other.connection.transaction():
        await remove(other)
        creating = log.rows("select * from skep.provision_partitions('{hive}', '{b}')")
        async with waiting(observer, log, creating) as task:
            await other.execute("commit; begin")

    assert await task == []  # the broker asks again
    orphans = "select count(*) from skep.partition p where name = 'b'"
    assert await log.value(orphans) == 0
