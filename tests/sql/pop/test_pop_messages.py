from uuid import uuid4

import asyncpg
import pytest

from tests.sql.support.log import Poll


async def filled_partitions(log, **counts):
    """Push so many messages into these partitions, a second apart; return (partitions, group)."""
    partitions = await log.provision("hive", *counts)
    for partition, (name, count) in zip(partitions, counts.items(), strict=True):
        await log.push(partition, *(f"{name}{number}" for number in range(1, count + 1)))
        await log.advance()
    return partitions, await log.subscribe("hive")


def names(taken):
    """The messages taken; the partitions of one poll come in no certain order."""
    return sorted(message.transaction_id for message in taken.messages)


async def test_a_poll_takes_from_one_partition_unless_it_asks_for_more(log):
    _, group = await filled_partitions(log, a=2, b=2)

    assert names(await log.pop(group, Poll(batch=10))) == ["a1", "a2"]


async def test_the_batch_is_a_budget_over_all_partitions(log):
    _, group = await filled_partitions(log, a=2, b=3, c=3)

    assert names(await log.pop(group, Poll(batch=4, partitions=3))) == ["a1", "a2", "b1", "b2"]


async def test_no_more_partitions_than_asked_for_are_taken(log):
    [_, _, c], group = await filled_partitions(log, a=1, b=1, c=1)

    taken = await log.pop(group, Poll(batch=100, partitions=2))

    assert names(taken) == ["a1", "b1"]
    assert (await log.cursor(c, group))["lease_id"] is None


async def test_the_partition_that_waited_longest_is_served_first(log):
    [a, b, c], group = await filled_partitions(log, a=4, b=2, c=2)

    served = []
    for _ in range(6):
        served += (await log.pop(group, Poll(batch=1, auto_ack=True))).partitions
        await log.advance()

    assert served == [a, b, c, a, b, c]


async def test_a_partition_whose_lease_expired_waits_since_then(log):
    [a, b], group = await filled_partitions(log, a=1, b=1)
    await log.pop_partitions(group, Poll(partition_id=a, lease_s=10))
    await log.advance(20)

    assert (await log.pop(group)).partitions == [b]
    assert (await log.pop(group)).partitions == [a]


async def test_polls_of_one_call_share_the_partitions_without_overlap(log):
    [a, b, c], group = await filled_partitions(log, a=3, b=3, c=3)
    polls = [
        Poll(batch=2, partitions=1),
        Poll(batch=100, partitions=2),
        Poll(batch=5, partitions=1),
    ]

    taken = await log.pop(group, *polls)

    assert [names(taken.of_poll(number)) for number in (1, 2, 3)] == [
        ["a1", "a2"],
        ["b1", "b2", "b3", "c1", "c2", "c3"],
        [],
    ]
    leases = [(await log.cursor(partition, group))["lease_id"] for partition in (a, b, c)]
    assert leases == [polls[0].lease_id, polls[1].lease_id, polls[1].lease_id]


async def test_polls_of_one_call_keep_their_own_ways(log):
    [a, b], group = await filled_partitions(log, a=1, b=1)

    await log.pop(group, Poll(auto_ack=True), Poll(lease_s=30))

    assert await log.next_available(group, a) is None
    assert await log.next_available(group, b) == 30


async def test_a_poll_that_finds_nothing_gets_no_row(log):
    _, group = await log.partition()

    assert await log.pop(group, Poll(), Poll()) == []


async def test_other_groups_are_not_touched(log):
    [a], group = await filled_partitions(log, a=1)
    bees = await log.subscribe("hive", "bees")

    await log.pop(group, Poll(auto_ack=True))

    assert (await log.cursor(a, bees))["acked"] == 0
    assert names(await log.pop(bees)) == ["a1"]


async def test_partitions_that_turn_out_empty_are_put_to_rest(log):
    [partition] = await log.provision("hive", "a")
    group = await log.subscribe("hive", "bees")
    assert await log.next_available(group) == 0, "a new cursor starts ready"

    assert await log.pop(group) == []

    assert await log.next_available(group) is None
    assert (await log.cursor(partition, group))["lease_id"] is None


async def test_empty_partitions_do_not_stand_in_front_of_one_with_work(log):
    await log.execute("select skep.ensure_queue('hive')")
    await log.execute(
        """
        insert into skep.partition (queue_id, name)
        select q.id, n::text from skep.queue q, generate_series(1, 1500) n
        """
    )
    group = await log.subscribe("hive", "bees")
    await log.advance()
    [last] = await log.provision("hive", "last")
    await log.push(last, "message")

    taken = await log.pop(group, Poll(batch=1, auto_ack=True))

    assert names(taken) == ["message"]
    assert await log.next_available(group) is None


async def test_a_call_that_puts_very_many_partitions_to_rest_ends_and_the_next_goes_on(log):
    await log.execute("select skep.ensure_queue('hive')")
    await log.execute(
        """
        insert into skep.partition (queue_id, name)
        select q.id, n::text from skep.queue q, generate_series(1, 11000) n
        """
    )
    group = await log.subscribe("hive", "bees")
    await log.advance()
    [last] = await log.provision("hive", "last")
    await log.push(last, "message")

    assert names(await log.pop(group, Poll(batch=1, auto_ack=True))) == []
    assert names(await log.pop(group, Poll(batch=1, auto_ack=True))) == ["message"]


async def test_a_group_that_was_deleted_is_refused(log):
    _, group = await log.partition()
    await log.execute("delete from skep.consumer_group")

    with pytest.raises(asyncpg.PostgresError) as refusal:
        await log.pop(group)

    assert refusal.value.sqlstate == "SK404"


@pytest.mark.parametrize("table", ["queue", "consumer_group"])
async def test_what_is_paused_delivers_nothing_and_goes_on_where_it_was(log, table):
    partition, group = await log.partition()
    await log.push(partition, "a")
    before = await log.cursor(partition, group)
    await log.execute(f"update skep.{table} set is_paused = true")

    assert await log.pop(group) == []
    assert await log.cursor(partition, group) == before

    await log.execute(f"update skep.{table} set is_paused = false")
    assert (await log.pop(group)).offsets == [1]


@pytest.mark.parametrize("function", ["pop_messages", "pop_partitions"])
async def test_a_broker_of_the_release_before_gets_the_columns_it_knows(log, function):
    partition, group = await log.partition()
    await log.push(partition, "a")
    wanted = [1] if function == "pop_messages" else [partition]
    sizes = [[10], wanted] if function == "pop_messages" else [wanted, [10]]

    [row] = await log.rows(
        f"select * from skep.{function}($1, $2, $3, $4, $5, $6)",
        group,
        [uuid4()],
        *sizes,
        [False],
        [0],
    )

    assert list(row.keys())[-2:] == ["passed_over", "is_individual"]
    assert (row["first"], row["delivery"], len(row)) == (1, 1, 12)
