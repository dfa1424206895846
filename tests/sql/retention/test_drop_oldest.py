import asyncio

import pytest

from tests.sql.support.log import Ack, Poll
from tests.sql.support.scheduling import stored
from tests.support.broker import until_blocked_by

LEASE = Poll().lease_id


async def drop(log, count, queue="hive"):
    query = "select d.* from skep.queue q, skep.drop_oldest(q.id, $2) d where q.name = $1"
    return tuple(await log.row(query, queue, count))


async def push_each(log, partition, *names):
    for name in names:
        await log.push(partition, name)


async def test_the_oldest_go_until_enough_are_gone(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push(a, "oldest")
    await log.push(b, "older")
    await log.push(a, "newer")

    assert await drop(log, 2) == (2, 2)

    assert await stored(log) == ["newer"]
    assert await stored(log, "b") == []


async def test_segments_go_whole(log):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "x", "y", "z")
    await log.push(partition, "new")

    assert await drop(log, 1) == (3, 3)
    assert await stored(log) == ["new"]


async def test_the_tail_follows_and_readers_go_on_behind_it(log):
    partition, group = await log.partition()
    await push_each(log, partition, "x", "y", "z")

    await drop(log, 2)

    assert await log.value("select tail from skep.partition") == 3
    assert [message.transaction_id for message in (await log.pop(group)).messages] == ["z"]


async def test_what_everybody_has_read_goes_along_but_does_not_count(log):
    partition, group = await log.partition()
    await push_each(log, partition, "read", "unread", "kept")
    await log.pop(group, Poll(batch=1, auto_ack=True))

    assert await drop(log, 1) == (2, 1)
    assert await stored(log) == ["kept"]


async def test_a_queue_with_nothing_left_says_so(log):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "x")

    assert await drop(log, 5) == (1, 1)
    assert await drop(log, 5) == (0, 0)


async def test_other_queues_keep_theirs(log):
    [other] = await log.provision("nest", "a")
    await log.push(other, "older")
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "x")

    await drop(log, 5)

    assert await stored(log) == ["older"]


async def test_messages_deleted_before_are_forgotten_with_their_segment(log):
    [partition] = await log.provision("hive", "a")
    await push_each(log, partition, "x", "y")
    await log.execute(
        "insert into skep.deleted_message (partition_id, message_offset) values ($1, 1), ($1, 2)",
        partition,
    )

    await drop(log, 1)

    assert await log.value("select array_agg(message_offset) from skep.deleted_message") == [2]


async def test_a_consumer_may_still_acknowledge_what_was_dropped_under_its_lease(log):
    partition, group = await log.partition()
    await push_each(log, partition, "x", "y")
    await log.pop(group, Poll(batch=1, lease_id=LEASE))

    await drop(log, 1)

    assert await log.outcomes(Ack(partition, 1, LEASE)) == ["acked"]
    assert [message.transaction_id for message in (await log.pop(group)).messages] == ["y"]


async def test_two_sessions_do_not_drop_the_same_twice_or_wait_in_a_circle(log, open_log):
    partitions = await log.provision("hive", *"abcd")
    for number in range(20):
        await log.push_writes({partition: [f"n{number}"] for partition in partitions})
    rival = await open_log()

    results = await asyncio.gather(drop(log, 20), drop(rival, 20))

    left = await log.value("select sum(head - tail + 1)::integer from skep.partition")
    assert left == 80 - sum(dropped for dropped, _ in results)
    assert left == await log.value("select count(*) from skep.segment")


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_push_under_way_is_waited_for_and_never_lost(log, open_log, is_kept):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "x")
    pusher = await open_log()
    transaction = pusher.connection.transaction()
    await transaction.start()
    await pusher.push(partition, "y")

    dropping = asyncio.create_task(drop(log, 1))
    await until_blocked_by(pusher.connection)
    await (transaction.commit() if is_kept else transaction.rollback())

    assert await dropping == (1, 1)
    assert await stored(log) == (["y"] if is_kept else [])


async def test_what_a_reader_outside_still_needs_is_kept(log):
    [partition] = await log.provision("hive", "a")
    await push_each(log, partition, "seen")
    await log.row("select * from skep.place_hold('hive', 'spark', null, 60)")
    await push_each(log, partition, "unseen", "newest")

    assert await drop(log, 2) == (1, 1)
    assert await stored(log) == ["unseen", "newest"]
    assert await drop(log, 1) == (0, 0)

    await log.advance(61)
    assert await drop(log, 1) == (1, 1)


async def test_what_follows_a_held_segment_in_its_partition_is_kept_as_well(log, open_log):
    a, b = await log.provision("hive", "a", "b")
    early = await open_log()
    async with early.connection.transaction():
        await early.push(b, "early")  # its transaction is older than all the others ...
        await log.push(a, "seen")
        await log.row("select * from skep.place_hold('hive', 'spark', null, 60)")
        await early.push(a, "late")  # ... and still running when the hold is placed
    await log.push(a, "newest")

    assert await drop(log, 4) == (0, 0)

    await log.row("select * from skep.place_hold('hive', 'spark', null, 60)")
    assert await drop(log, 4) == (4, 4)
