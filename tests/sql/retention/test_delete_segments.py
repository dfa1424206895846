import asyncio

import pytest

from tests.sql.model.test_races import until_it_waits, waiting
from tests.sql.support.housekeeping import Keeper
from tests.sql.support.log import Poll

DELETE = "select * from skep.delete_segments($1, $2, $3, $4::text::xid8, $5)"
END_OF_TIME = str(2**64 - 1)


@pytest.fixture
def keeper(arun, log):
    return arun(Keeper.appoint(log))


@pytest.fixture
def other(arun, open_log):
    return arun(open_log())


@pytest.fixture
def observer(arun, open_log):
    return arun(open_log())


async def delete(log, partitions, *, held_from=END_OF_TIME, completed_only=False):
    ids = sorted(partitions)
    firsts = [partitions[id_] for id_ in ids]
    return tuple(await log.row(DELETE, ids, firsts, log.now, held_from, completed_only))


async def test_each_partition_loses_its_segments_up_to_the_one_named(log, keeper):
    a, b = await log.provision("hive", "a", "b")
    for number in range(3):
        await log.push_writes({a: [f"{number}", f"{number}'"], b: [f"{number}"]})
    await log.advance()

    assert await delete(log, {a: 3, b: 1}) == (5, 3, 2)
    assert await keeper.kept(a) == (5, 6)
    assert await keeper.kept(b) == (2, 3)


async def test_deleted_messages_are_not_counted_again_and_forgotten(log, keeper):
    partition, _ = await log.partition()
    await log.push(partition, "a", "b", "c")
    await log.push(partition, "d")
    for offset in (2, 4):
        await log.execute(
            "insert into skep.deleted_message (partition_id, message_offset) values ($1, $2)",
            partition,
            offset,
        )
    await log.advance()

    assert await delete(log, {partition: 1}) == (2, 1, 1)
    left = await log.rows("select message_offset from skep.deleted_message")
    assert [row[0] for row in left] == [4]


async def test_messages_before_the_tail_are_not_counted_again(log, keeper):
    partition, _ = await log.partition()
    await log.push(partition, "a", "b", "c")
    await log.execute("update skep.partition set tail = 3 where id = $1", partition)
    await log.advance()

    assert await delete(log, {partition: 1}) == (1, 1, 1)


async def test_a_segment_in_the_middle_that_is_held_protects_those_behind_it(log, keeper):
    # A push gets its transaction id with its first partition and may have to wait for its second,
    # so offsets and transaction ids of a partition can disagree.
    partition, _ = await log.partition()
    for name in "abc":
        await log.push(partition, name)
    await log.execute("update skep.segment set xid = '99999999999' where first = 2")
    await log.advance()

    assert await delete(log, {partition: 3}, held_from="99999999999") == (1, 1, 1)
    assert await keeper.kept(partition) == (2, 3)


async def test_transaction_ids_of_a_partition_can_disagree_with_its_offsets(log, other, observer):
    a, b = await log.provision("hive", "a", "b")

    async with other.connection.transaction():
        # The first partition of a push of two; the transaction has its id from now on.
        await other.push(a, "first")
        async with log.connection.transaction():
            await log.push(b, "early")
            second = asyncio.get_running_loop().create_task(other.push(b, "late"))
            await until_it_waits(observer, second, other)
        await second

    rows = await log.rows("select xid::text::bigint from skep.segment where partition_id = $1", b)
    early, late = (row[0] for row in rows)
    assert early > late


async def test_a_partition_that_is_gone_is_passed_over(log, keeper):
    assert await delete(log, {999_999_999: 1}) == (0, 0, 0)


async def test_a_push_waits_for_the_deletion_and_finds_the_partition_whole(
    log, other, observer, keeper
):
    partition, group = await log.partition()
    await log.push(partition, "old")
    await log.advance()

    async with log.connection.transaction():
        await delete(log, {partition: 1})
        pushing = waiting(observer, other, other.push(partition, "new"))
        task = await pushing.__aenter__()
    await pushing.__aexit__(None, None, None)

    assert (await task).first == 2
    assert await keeper.kept(partition) == (2, 2)
    assert (await other.pop(group)).offsets == [2]


async def test_the_deletion_waits_for_a_claim_so_that_it_gets_what_it_claimed(
    log, other, observer, keeper
):
    partition, group = await log.partition()
    await log.push(partition, "old")
    await log.advance()
    await other.advance()

    async with other.connection.transaction():
        claim = "select 1 from skep.cursor where group_id = $1 for no key update"
        await other.value(claim, group)
        deleting = waiting(observer, log, delete(log, {partition: 1}))
        await deleting.__aenter__()
        taken = await other.pop(group, Poll(auto_ack=True))
        assert taken.offsets == [1]
    await deleting.__aexit__(None, None, None)

    assert await keeper.kept(partition) == (2, 1)


async def test_a_partition_that_is_being_emptied_is_not_claimed_for_nothing(log, other, keeper):
    partition, group = await log.partition()
    await log.push(partition, "old")
    await log.advance()
    await other.advance()

    async with log.connection.transaction():
        await delete(log, {partition: 1})
        async with asyncio.timeout(30):
            assert await other.pop(group) == []

    assert await other.pop(group) == []
    cursor = await log.cursor(partition, group)
    assert (cursor["acked"], cursor["leased"]) == (1, None)


async def test_cursors_that_lag_are_moved_and_the_others_are_not_written(log):
    a, b = await log.provision("hive", "a", "b")
    slow, fast = await log.subscribe("hive", "slow"), await log.subscribe("hive", "fast")
    for number in range(2):
        await log.push_writes({a: [f"{number}", f"{number}'"], b: [f"{number}"]})
    await log.execute("update skep.cursor set acked = 9 where group_id = $1", fast)
    await log.advance()
    places = "select partition_id, group_id, ctid from skep.cursor where group_id = $1 order by 1"
    before = await log.rows(places, fast)

    await delete(log, {a: 3, b: 1})

    assert [(await log.cursor(partition, slow))["acked"] for partition in (a, b)] == [4, 1]
    assert await log.rows(places, fast) == before
