import asyncpg
import pytest

from tests.sql.support.log import Poll


async def two_partitions(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push_writes({a: ["a1", "a2", "a3"], b: ["b1", "b2"]})
    return a, b, await log.subscribe("hive")


def names(taken):
    return [message.transaction_id for message in taken.messages]


async def test_a_poll_gets_the_partition_it_named(log):
    _, b, group = await two_partitions(log)

    assert names(await log.pop_partitions(group, Poll(partition_id=b))) == ["b1", "b2"]


async def test_polls_for_different_partitions_are_served_in_one_call(log):
    a, b, group = await two_partitions(log)
    polls = [Poll(partition_id=b, batch=1), Poll(partition_id=a, batch=2, auto_ack=True)]

    taken = await log.pop_partitions(group, *polls)

    assert [names(taken.of_poll(number)) for number in (1, 2)] == [["b1"], ["a1", "a2"]]
    assert (await log.cursor(b, group))["lease_id"] == polls[0].lease_id
    assert (await log.cursor(a, group))["acked"] == 2


async def test_of_several_polls_for_one_partition_the_first_gets_it(log):
    a, b, group = await two_partitions(log)
    polls = [Poll(partition_id=n, batch=1) for n in (b, a, b, a, a)]

    taken = await log.pop_partitions(group, *polls)

    assert sorted((row.poll, row.partition_id) for row in taken) == [(1, b), (2, a)]


async def test_a_partition_that_is_leased_is_served_to_nobody(log):
    a, _, group = await two_partitions(log)
    await log.pop_partitions(group, Poll(partition_id=a, lease_s=30))

    assert await log.pop_partitions(group, Poll(partition_id=a)) == []

    await log.advance(30)
    taken = await log.pop_partitions(group, Poll(partition_id=a))
    assert (taken.messages[0].transaction_id, taken.messages[0].delivery) == ("a1", 2)


async def test_a_partition_that_turns_out_empty_is_put_to_rest(log):
    a, _, _ = await two_partitions(log)
    group = await log.subscribe("hive", "bees", "new")

    assert await log.pop_partitions(group, Poll(partition_id=a)) == []
    assert await log.next_available(group, a) is None


async def test_polls_are_told_of_partitions_that_do_not_exist_in_their_queue(log):
    a, b, group = await two_partitions(log)
    [stranger] = await log.provision("wax", "a")
    await log.push(stranger, "x")
    await log.pop_partitions(group, Poll(partition_id=b))

    taken = await log.pop_partitions(
        group,
        Poll(partition_id=1 << 40),
        Poll(partition_id=a),
        Poll(partition_id=b),
        Poll(partition_id=stranger),
    )

    assert {row.poll: row.partition_id for row in taken if row.first is None} == {
        1: 1 << 40,
        4: stranger,
    }
    assert names(taken.of_poll(2)) == ["a1", "a2", "a3"]
    assert taken.of_poll(3) == []


async def test_what_lies_before_the_tail_is_passed_over(log):
    a, _, group = await two_partitions(log)
    await log.execute("update skep.partition set tail = 3 where id = $1", a)

    assert names(await log.pop_partitions(group, Poll(partition_id=a))) == ["a3"]


async def test_a_group_that_was_deleted_is_refused(log):
    a, _, group = await two_partitions(log)
    await log.execute("delete from skep.consumer_group")

    with pytest.raises(asyncpg.PostgresError) as refusal:
        await log.pop_partitions(group, Poll(partition_id=a))

    assert refusal.value.sqlstate == "SK404"


@pytest.mark.parametrize("table", ["queue", "consumer_group"])
async def test_what_is_paused_delivers_nothing_and_goes_on_where_it_was(log, table):
    partition, group = await log.partition()
    await log.push(partition, "a")
    before = await log.cursor(partition, group)
    await log.execute(f"update skep.{table} set is_paused = true")

    assert await log.pop_partitions(group, Poll(partition_id=partition)) == []
    assert await log.cursor(partition, group) == before

    await log.execute(f"update skep.{table} set is_paused = false")
    assert (await log.pop_partitions(group, Poll(partition_id=partition))).offsets == [1]
