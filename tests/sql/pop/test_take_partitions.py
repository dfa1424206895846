"""What a claim does to its partitions. The two pops are asked, which lock the cursors first."""

from datetime import timedelta

import pytest

from tests.sql.support.log import MICROSECOND, NOON, Ack, Poll

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("asked_s", "queue_s", "lease_s"), [(30, 300, 30), (0, 300, 300), (0, 0, 60), (30, 0, 30)]
)
async def test_a_lease_lasts_as_asked_or_as_the_queue_says_or_a_minute(
    log, asked_s, queue_s, lease_s
):
    partition, group = await log.partition()
    await log.configure("hive", lease_time_s=queue_s)
    await log.push(partition, "a")

    await log.pop(group, Poll(lease_s=asked_s))

    cursor = await log.cursor(partition, group)
    assert cursor["available_at"] == NOON + lease_s * SECOND


async def test_leased_messages_are_not_done(log):
    partition, group = await log.partition()
    await log.push(partition, *"abc")
    poll = Poll(batch=2)

    await log.pop(group, poll)

    cursor = await log.cursor(partition, group)
    assert (cursor["acked"], cursor["leased_from"], cursor["leased"]) == (0, 0, 2)
    assert cursor["lease_id"] == poll.lease_id


async def test_a_leased_partition_is_served_to_nobody_until_the_lease_is_over(log):
    partition, group = await log.partition()
    await log.push(partition, "a")
    await log.pop(group, Poll(lease_s=30))

    await log.set_clock(NOON + 30 * SECOND - MICROSECOND)
    assert await log.pop(group) == []
    await log.set_clock(NOON + 30 * SECOND)
    assert (await log.pop(group)).offsets == [1]


async def test_every_delivery_after_an_expired_lease_is_counted(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b")

    deliveries = []
    for _ in range(3):
        [row] = await log.pop(group, Poll(lease_s=30))
        deliveries.append(row.delivery)
        await log.advance(30)

    assert deliveries == [1, 2, 3]


async def test_a_message_acknowledged_at_once_tells_its_earlier_deliveries(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b")
    await log.pop(group, Poll(lease_s=30))
    await log.advance(30)

    [first] = await log.pop(group, Poll(auto_ack=True, batch=1))
    await log.advance()
    [second] = await log.pop(group, Poll(auto_ack=True, batch=1))

    assert (first.delivery, second.delivery) == (2, 2)


async def deliver_newest(log, group, *, times=1):
    """Deliver to a consumer that dies, again and again; the offsets and their deliveries."""
    polls = []
    for _ in range(times):
        [message] = (await log.pop(group, Poll(lease_s=10))).messages
        polls.append((message.offset, message.delivery))
        await log.advance(10)
    return polls


async def test_a_message_that_a_newer_one_stood_for_was_not_delivered(log):
    partition, _ = await log.partition()
    group = await log.subscribe("hive", "bees", conflation=True)
    await log.push(partition, *"abc")
    assert await deliver_newest(log, group, times=2) == [(3, 1), (3, 2)]
    query = "select deliveries from skep.message_deliveries($1, $2) where group_name = 'bees'"
    assert [await log.value(query, partition, at) for at in (1, 2, 3)] == [0, 0, 2]

    await log.value("select skep.delete_message($1, 3)", partition)

    assert await deliver_newest(log, group, times=2) == [(2, 1), (2, 2)]
    await log.push(partition, "d")
    assert await deliver_newest(log, group, times=2) == [(4, 1), (4, 2)]
    assert [m.delivery for m in (await log.pop(group, Poll(auto_ack=True))).messages] == [3]


async def test_the_newest_message_taken_back_leaves_those_it_stood_for_as_they_were(log):
    partition, _ = await log.partition()
    group = await log.subscribe("hive", "bees", conflation=True)
    await log.push(partition, *"abc")
    await deliver_newest(log, group, times=2)
    poll = Poll()
    await log.pop(group, poll)

    await log.release(partition, group, poll.lease_id)

    assert await deliver_newest(log, group) == [(3, 3)]
    await log.value("select skep.delete_message($1, 3)", partition)
    assert await deliver_newest(log, group) == [(2, 1)]


async def test_a_new_message_behind_a_completed_one_starts_at_its_first_delivery(log):
    partition, group = await log.partition()
    await log.push(partition, "a")
    for _ in range(2):
        poll = Poll(lease_s=30)
        await log.pop(group, poll)
        await log.advance(29)
    await log.advance(1)
    await log.pop(group, poll := Poll(lease_s=30))
    await log.ack(Ack(partition, 1, poll.lease_id))
    await log.push(partition, "b")

    [row] = await log.pop(group)

    assert (row.first, row.delivery) == (2, 1)


async def test_messages_acknowledged_at_once_are_done(log):
    partition, group = await log.partition()
    await log.push(partition, *"abc")

    taken = await log.pop(group, Poll(auto_ack=True))

    assert taken.offsets == [1, 2, 3]
    cursor = await log.cursor(partition, group)
    assert (cursor["acked"], cursor["leased"]) == (3, None)
    assert cursor["available_at"] is None


async def test_a_partition_with_messages_left_goes_behind_those_that_were_ready_before(log):
    partition, group = await log.partition()
    await log.push(partition, *"abc")
    await log.advance()

    await log.pop(group, Poll(auto_ack=True, batch=2))

    assert (await log.cursor(partition, group))["available_at"] == NOON + SECOND + MICROSECOND


async def test_segments_are_told_whole_with_the_bounds_of_what_was_taken(log):
    partition, group = await log.partition()
    for names in ("abc", "def", "ghi"):
        await log.push(partition, *names)

    taken = [await log.pop(group, Poll(auto_ack=True, batch=4))]
    await log.advance()
    taken.append(await log.pop(group, Poll(auto_ack=True, batch=4)))

    assert [[(row.first, row.taken_from, row.taken_to) for row in rows] for rows in taken] == [
        [(1, 0, 4), (4, 0, 4)],
        [(4, 4, 8), (7, 4, 8)],
    ]
    assert [[m.transaction_id for m in rows.messages] for rows in taken] == [
        list("abcd"), list("efgh")
    ]  # fmt: skip


async def test_segments_come_with_their_own_time_and_in_order(log):
    partition, group = await log.partition("hive", "comb")
    await log.push(partition, "a")
    await log.advance()
    await log.push(partition, "b")

    rows = await log.pop(group)

    assert [(row.first, row.created_at) for row in rows] == [(1, NOON), (2, NOON + SECOND)]
    assert {row.partition_name for row in rows} == {"comb"}


async def test_what_lies_before_the_tail_is_passed_over(log):
    partition, group = await log.partition()
    for names in ("abc", "def"):
        await log.push(partition, *names)
    await log.execute("update skep.partition set tail = 4")
    await log.execute("delete from skep.segment where first = 1")
    poll = Poll(batch=2)

    taken = await log.pop(group, poll)

    assert taken.offsets == [4, 5]
    cursor = await log.cursor(partition, group)
    assert (cursor["acked"], cursor["leased"]) == (3, 5)
    assert await log.outcomes(Ack(partition, 5, poll.lease_id)) == ["acked"]


async def test_a_partition_of_which_everything_was_deleted_is_put_to_rest(log):
    partition, group = await log.partition()
    await log.push(partition, *"abc")
    await log.execute("update skep.partition set tail = 4")
    await log.execute("delete from skep.segment")

    assert await log.pop(group) == []

    cursor = await log.cursor(partition, group)
    assert (cursor["acked"], cursor["available_at"]) == (3, None)


async def test_deleted_messages_are_taken_with_the_others(log):
    partition, group = await log.partition()
    await log.push(partition, *"abc")
    await log.execute(
        "update skep.segment set body = convert_to(replace(convert_from(body, 'UTF8'), $1, $2), "
        "'UTF8')",
        '{"transactionId":"b","traceId":null,"producerSub":null,"data":{}}',
        "null",
    )

    taken = await log.pop(group, Poll(auto_ack=True))

    assert taken.offsets == [1, 3]
    assert (await log.cursor(partition, group))["acked"] == 3


async def take_one(log, partition, group, upto, *, auto_ack=False):
    """Take a partition as a pop would that planned to take up to this offset."""
    return await log.rows(
        """
        select t.* from skep.consumer_group g
        join skep.queue q on q.id = g.queue_id
        join skep.cursor c on c.group_id = g.id and c.partition_id = $1
        cross join lateral skep.take_partitions(
          g, q, skep.now(), array[1], array[c.partition_id], array[c.ctid], array[c.acked],
          array[$3::bigint], null, null, array[gen_random_uuid()], array[$4::boolean],
          array[0], true) t
        where g.id = $2
        """,
        partition,
        group,
        upto,
        auto_ack,
    )


@pytest.mark.parametrize("auto_ack", [False, True])
async def test_what_retention_took_after_the_partition_was_chosen_is_not_leased(log, auto_ack):
    partition, group = await log.partition()
    for names in ("abc", "def"):
        await log.push(partition, *names)
    await log.execute("update skep.partition set tail = 4")
    await log.execute("delete from skep.segment where first = 1")

    assert await take_one(log, partition, group, 3, auto_ack=auto_ack) == []

    cursor = await log.cursor(partition, group)
    assert (cursor["acked"], cursor["leased"]) == (3, None)
    assert cursor["available_at"] == NOON + MICROSECOND


async def test_a_partition_that_retention_emptied_after_it_was_chosen_is_put_to_rest(log):
    partition, group = await log.partition()
    await log.push(partition, *"abc")
    await log.execute("update skep.partition set tail = 4")
    await log.execute("delete from skep.segment")

    assert await take_one(log, partition, group, 2) == []

    assert (await log.cursor(partition, group))["acked"] == 3
    assert await log.next_available(group) is None


async def test_offsets_that_are_not_to_be_delivered_are_told(log):
    partition, group = await log.partition()
    await log.push(partition, *"abcdef")
    await log.set_done(partition, group, "{[3,4),[6,7)}")

    [row] = await log.pop(group, Poll(batch=3))

    assert (row.taken_to, row.passed_over) == (4, [3])


async def test_a_partition_with_nothing_done_ahead_tells_nothing_to_leave_out(log):
    partition, group = await log.partition()
    await log.push(partition, "a")

    [row] = await log.pop(group)

    assert row.passed_over is None


@pytest.mark.parametrize("mode", ["cumulative", "individual"])
async def test_how_acks_will_count_is_told(log, mode):
    partition, group = await log.partition()
    await log.set_options("hive", ack_mode=mode)
    await log.push(partition, "a")

    [row] = await log.pop(group)

    assert row.is_individual == (mode == "individual")


async def test_a_look_at_a_partition_that_is_held_back_is_neither_delivery_nor_answer(log):
    partition, group = await log.partition()
    await log.configure("hive", window_buffer_s=5, max_deliveries=2)
    await log.push(partition, "a")
    await log.advance(5)
    await log.pop(group, Poll(lease_s=10))
    await log.advance(10)
    await log.push(partition, "b")

    assert (await log.pop(group)).offsets == []

    cursor = await log.cursor(partition, group)
    assert (cursor["deliveries"], cursor["unanswered"]) == (1, 1)
    await log.advance(5)
    assert (await log.pop(group)).messages[0].delivery == 2
