import asyncpg
import pytest

from tests.sql.support.log import QUEUE_MODE, Ack, Poll, envelope

QUERY = "select * from skep.peek_messages($1, $2, $3, $4)"


async def peek(log, *, queue="hive", partition=None, group=QUEUE_MODE, limit=100):
    rows = await log.rows(QUERY, queue, partition, group, limit)
    return [(row["partition_name"], row["message_offset"]) for row in rows]


async def test_the_next_messages_come_in_order_and_nothing_is_claimed(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b")
    await log.push(partition, "c")
    before = await log.cursor(partition, group)

    assert await peek(log, limit=2) == [("a", 1), ("a", 2)]
    assert await peek(log) == [("a", 1), ("a", 2), ("a", 3)]
    assert await log.cursor(partition, group) == before
    [row] = await log.rows(QUERY, "hive", "a", QUEUE_MODE, 1)
    assert (row["envelope"], row["created_at"]) == (envelope("a"), log.now)


async def test_the_partition_that_waited_longest_comes_first(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push(b, "x")
    await log.advance()
    await log.push(a, "y")

    assert await peek(log) == [("b", 1), ("a", 1)]
    assert await peek(log, limit=1) == [("b", 1)]
    assert await peek(log, partition="a") == [("a", 1)]
    assert await peek(log, partition="none") == []


async def test_what_is_under_lease_done_or_deleted_does_not_come_next(log):
    partition, group = await log.partition()
    await log.push(partition, *"abcdef")
    await log.pop(group, Poll(batch=2))
    await log.value("select skep.delete_message($1, 4)", partition)
    await log.execute("update skep.cursor set done = done + '{[6,7)}'")

    assert await peek(log) == [("a", 3), ("a", 5)]


async def test_a_back_off_is_not_waited_for(log):
    partition, group = await log.partition()
    await log.push(partition, "a")
    poll = Poll()
    await log.pop(group, poll)
    await log.ack(Ack(partition, 1, poll.lease_id, "failed"))

    assert await peek(log) == [("a", 1)]


async def test_an_idle_queue_has_nothing(log):
    _, group = await log.partition()
    await log.pop(group)

    assert await peek(log) == []


@pytest.mark.parametrize(("queue", "group"), [("none", QUEUE_MODE), ("hive", "nobody")])
async def test_a_group_that_does_not_exist_is_refused(log, queue, group):
    await log.partition()

    with pytest.raises(asyncpg.PostgresError) as refusal:
        await peek(log, queue=queue, group=group)
    assert refusal.value.sqlstate == "SK404"
