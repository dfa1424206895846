import pytest

from tests.sql.support.log import QUEUE_MODE, Ack, Poll

QUERY = "select group_name from skep.give_up_message($1, $2, $3, 'by hand')"


async def give_up(log, partition, offset, group=None):
    return [row[0] for row in await log.rows(QUERY, partition, offset, group)]


@pytest.fixture
def partition(log, arun):
    return arun(log.partition())


async def test_one_group_gives_up_and_goes_on_with_the_next_message(log, partition):
    partition, queue_mode = partition
    group = await log.subscribe(group="g")
    await log.push(partition, "a", "b")

    assert await give_up(log, partition, 1, "g") == ["g"]

    [letter] = await log.dead_letters()
    assert (letter["group_id"], letter["transaction_id"]) == (group, "a")
    assert (letter["error"], letter["failures"]) == ("by hand", 0)
    assert (await log.pop(group)).offsets == [2]
    assert (await log.pop(queue_mode)).offsets == [1, 2]


async def test_queue_mode_gives_up_when_it_is_the_only_one_or_was_polled(log, partition):
    partition, queue_mode = partition
    await log.execute("update skep.consumer_group set first_polled_at = null")
    await log.push(partition, "a", "b")
    assert await give_up(log, partition, 1) == [QUEUE_MODE]

    await log.subscribe(group="g")
    assert await give_up(log, partition, 2) == ["g"]
    await log.subscribe()
    assert await give_up(log, partition, 2) == [QUEUE_MODE]
    assert (await log.cursor(partition, queue_mode))["acked"] == 2


async def test_who_is_done_with_it_does_not_give_it_up(log, partition):
    partition, group = partition
    await log.push(partition, "a", "b")
    await log.pop(group, Poll(batch=1, auto_ack=True))

    assert await give_up(log, partition, 1) == []
    assert await give_up(log, partition, 2) == [QUEUE_MODE]
    assert await give_up(log, partition, 2) == []
    assert await give_up(log, partition, 2, "nobody") == []


async def test_failures_so_far_are_kept(log, partition):
    partition, group = partition
    await log.push(partition, "a")
    poll = Poll()
    await log.pop(group, poll)
    await log.ack(Ack(partition, 1, poll.lease_id, "failed"))

    await give_up(log, partition, 1)

    [letter] = await log.dead_letters()
    assert letter["failures"] == 1


async def test_a_consumer_that_holds_it_finds_it_done(log, partition):
    partition, group = partition
    await log.push(partition, "a")
    poll = Poll()
    await log.pop(group, poll)

    assert await give_up(log, partition, 1) == [QUEUE_MODE]

    assert await log.outcomes(Ack(partition, 1, poll.lease_id)) == ["noop"]
