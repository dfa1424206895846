from uuid import uuid4

import asyncpg
import pytest

from tests.sql.model.test_races import waiting
from tests.sql.support.housekeeping import DAY_S, SERVICE, Keeper
from tests.sql.support.log import Ack, Poll

REMOVE = "select * from skep.remove_idle_partitions($1, $2, $3, $4, $5, $6)"


@pytest.fixture
def keeper(arun, log):
    return arun(Keeper.appoint(log))


@pytest.fixture
def other(arun, open_log):
    return arun(open_log())


@pytest.fixture
def observer(arun, open_log):
    return arun(open_log())


async def remove(log, keeper, *, after=0, look=1000, idle_s=30 * DAY_S):
    row = await log.row(REMOVE, SERVICE, keeper.holder, uuid4(), after, look, idle_s)
    return row["partitions"]


async def emptied_partition(log, keeper, name="a"):
    """Return a partition that held a message until retention deleted it, and its group."""
    partition, group = await log.partition("hive", name)
    await log.execute("update skep.partition set created_at = $1", log.now)
    await log.configure("hive", ttl_s=1)
    await log.push(partition, "gone")
    await log.pop(group, Poll(auto_ack=True))
    await log.advance(10)
    await keeper.retain()
    return partition, group


async def exists(log, partition):
    return await log.value("select exists (select from skep.partition where id = $1)", partition)


async def test_a_partition_without_messages_and_pushes_goes_with_its_cursors(log, keeper):
    partition, group = await emptied_partition(log, keeper)
    await log.advance(31 * DAY_S)

    assert await remove(log, keeper) == 1
    assert not await exists(log, partition)
    assert await log.cursor(partition, group) is None


async def test_a_partition_that_was_pushed_to_lately_stays(log, keeper):
    partition, _ = await emptied_partition(log, keeper)
    await log.advance(29 * DAY_S)

    assert await remove(log, keeper) == 0
    assert await exists(log, partition)


async def test_a_partition_that_holds_messages_stays_however_old(log, keeper):
    partition, _ = await log.partition()
    await log.push(partition, "kept")
    await log.advance(400 * DAY_S)

    assert await remove(log, keeper) == 0


async def test_a_partition_that_was_never_used_counts_from_its_creation(log, keeper):
    partition, _ = await log.partition()
    await log.execute("update skep.partition set created_at = $1", log.now)
    await log.advance(29 * DAY_S)
    assert await remove(log, keeper) == 0
    await log.advance(2 * DAY_S)
    assert await remove(log, keeper) == 1
    assert not await exists(log, partition)


async def test_a_partition_whose_dead_letters_name_it_stays(log, keeper):
    partition, group = await log.partition()
    await log.configure("hive", ttl_s=5)
    await log.push(partition, "dead")
    poll = Poll()
    await log.pop(group, poll)
    await log.ack(Ack(partition, 1, poll.lease_id, "dlq"))
    await log.advance(31 * DAY_S)
    await keeper.retain()

    assert await remove(log, keeper) == 0


async def test_the_partition_that_a_queue_is_born_with_stays(log, keeper):
    await emptied_partition(log, keeper, "Default")
    await log.advance(31 * DAY_S)

    assert await remove(log, keeper) == 0


async def test_the_walk_looks_at_so_many_partitions_and_goes_on_from_there(log, keeper):
    partitions = await log.provision("hive", *"abcde")
    await log.execute("update skep.partition set created_at = $1", log.now)
    await log.advance(31 * DAY_S)
    removed, reached, is_done = [], 0, False

    while not is_done:
        row = await log.row(REMOVE, SERVICE, keeper.holder, keeper.run_id, reached, 2, DAY_S)
        removed.append(row["partitions"])
        reached, is_done = row["reached"], row["is_done"]

    assert removed == [2, 2, 1]
    assert reached == partitions[-1]
    [row] = await keeper.history()
    assert (row["kind"], row["partitions"]) == ("partition", 5)


async def test_defect_44_a_push_under_way_keeps_its_partition(log, other, keeper):
    partition, group = await emptied_partition(log, keeper)
    await log.advance(31 * DAY_S)
    await other.set_clock(log.now)

    async with other.connection.transaction():
        await other.push(partition, "new")
        assert await remove(log, keeper) == 0

    assert await remove(log, keeper) == 0
    assert (await log.pop(group)).offsets == [2]


async def test_defect_44_a_push_that_comes_too_late_finds_the_partition_gone_and_loses_nothing(
    log, other, observer, keeper
):
    partition, group = await emptied_partition(log, keeper)
    await log.advance(31 * DAY_S)

    async with log.connection.transaction():
        await remove(log, keeper)
        late = other.push_writes({partition: ["new"]})
        pushing = waiting(observer, other, late)
        task = await pushing.__aenter__()
    await pushing.__aexit__(None, None, None)

    assert await task == [], "the broker is told that the partition is gone, and makes a new one"
    [reborn] = await log.provision("hive", "a")
    await log.push(reborn, "new")
    assert [(m.partition_id, m.offset) for m in (await log.pop(group)).messages] == [(reborn, 1)]


async def test_defect_44_groups_get_everything_of_a_partition_that_comes_back_and_nothing_twice(
    log, keeper
):
    _, group = await emptied_partition(log, keeper)
    await log.subscribe("hive", "newest", mode="new")
    newest = await log.subscribe("hive", "newest")
    await log.advance(31 * DAY_S)
    await remove(log, keeper)

    [reborn] = await log.provision("hive", "a")
    await log.push(reborn, "again")

    for each in (group, newest):
        assert (await log.pop(each, Poll(auto_ack=True))).offsets == [1]
        assert await log.pop(each) == []


async def test_a_group_that_subscribes_meanwhile_leaves_no_cursor_behind(
    log, other, observer, keeper
):
    partition, _ = await emptied_partition(log, keeper)
    await log.advance(31 * DAY_S)

    async with log.connection.transaction():
        await remove(log, keeper)
        subscribing = waiting(observer, other, other.subscribe("hive", "newcomer"))
        task = await subscribing.__aenter__()
    await subscribing.__aexit__(None, None, None)

    assert await log.cursor(partition, await task) is None


async def test_whoever_does_not_lead_removes_nothing(log, keeper):
    with pytest.raises(asyncpg.PostgresError, match="is not held by"):
        await remove(log, Keeper(log))
