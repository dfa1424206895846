"""What the rules of a queue or group hold back or pass over. The pops are asked, which plan."""

from datetime import timedelta

import pytest

from tests.sql.support.log import MICROSECOND, NOON, Ack, Poll

SECOND = timedelta(seconds=1)


@pytest.fixture(params=["pop", "pop_partitions"])
def take(request, log):
    """Take from a partition, asked for by name or not; the offsets taken."""

    async def take(partition, group, **options):
        poll = Poll(partition_id=partition, **options)
        return (await getattr(log, request.param)(group, poll)).offsets

    return take


async def partition_with(log, *segments, pause_s=10, **options):
    """Push segments ten seconds apart into a partition of a queue with these options."""
    partition, group = await log.partition()
    await log.set_options("hive", **options)
    for names in segments:
        await log.push(partition, *names)
        await log.advance(pause_s)
    return partition, group


# ttl


async def test_messages_older_than_the_ttl_are_passed_over(log, take):
    partition, group = await partition_with(log, "ab", "cd", "ef", ttl_s=25)

    assert await take(partition, group) == [3, 4, 5, 6]

    assert (await log.cursor(partition, group))["acked"] == 2


async def test_a_message_expires_the_moment_after_its_ttl(log, take):
    partition, group = await partition_with(log, "ab", ttl_s=10)

    assert await take(partition, group, lease_s=1) == [1, 2]
    await log.advance(1)
    assert await take(partition, group) == []


async def test_a_partition_of_which_everything_expired_is_put_to_rest(log, take):
    partition, group = await partition_with(log, "ab", "cd", ttl_s=1)

    assert await take(partition, group) == []

    assert await log.next_available(group) is None
    assert (await log.cursor(partition, group))["acked"] == 4


async def test_what_comes_after_expired_messages_was_not_delivered_before(log):
    partition, group = await partition_with(log, "a", ttl_s=15)
    await log.pop(group, Poll(lease_s=1))
    await log.push(partition, "b")
    await log.advance(10)

    [message] = (await log.pop(group)).messages

    assert (message.offset, message.delivery) == (2, 1)


async def test_a_partition_that_expired_stays_ready_while_a_push_is_in_flight_on_it(log, open_log):
    partition, group = await partition_with(log, "ab", ttl_s=1)
    pusher = await open_log()
    await pusher.set_clock(log.now)

    async with pusher.connection.transaction():
        await pusher.push(partition, "c")
        assert await log.pop(group) == []
        assert await log.next_available(group) is not None

    await log.set_clock(log.now + MICROSECOND)
    assert (await log.pop(group)).offsets == [3]


# Subscriptions that start later


async def test_what_is_pushed_before_a_subscription_starts_is_not_delivered(log, take):
    group = await log.subscribe("hive", "bees", "timestamp", NOON + 15 * SECOND)
    [partition] = await log.provision("hive", "a")
    for names in ("ab", "cd", "ef"):
        await log.push(partition, *names)
        await log.advance(10)

    assert await take(partition, group) == [5, 6]


async def test_a_subscription_from_the_past_is_no_bar_to_a_cursor_that_was_moved_back(log, take):
    partition, _ = await partition_with(log, "ab", "cd", "ef")
    group = await log.subscribe("hive", "bees", "timestamp", NOON + 15 * SECOND)
    await log.execute("update skep.cursor set acked = 0 where group_id = $1", group)

    assert await take(partition, group) == [1, 2, 3, 4, 5, 6]


async def test_a_partition_that_is_born_before_the_start_delivers_from_the_start_on(log, take):
    group = await log.subscribe("hive", "bees", "timestamp", NOON + 15 * SECOND)
    await log.advance(5)
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "a")
    await log.advance(10)
    await log.push(partition, "b")

    assert await take(partition, group) == [2]


async def test_a_partition_that_is_born_after_the_start_delivers_everything(log, take):
    group = await log.subscribe("hive", "bees", "timestamp", NOON + 15 * SECOND)
    await log.advance(20)
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "a")

    assert await take(partition, group) == [1]


# delayedProcessing


async def test_messages_younger_than_the_delay_are_held_back(log, take):
    partition, group = await partition_with(log, "ab", "cd", "ef", delayed_processing_s=20)

    assert await take(partition, group) == [1, 2, 3, 4]


async def test_a_partition_with_nothing_old_enough_waits_until_its_first_message_is(log, take):
    partition, group = await partition_with(log, "ab", delayed_processing_s=60)
    await log.push(partition, "c")
    await log.execute("update skep.cursor set available_at = skep.now()")

    assert await take(partition, group) == []

    cursor = await log.cursor(partition, group)
    assert cursor["available_at"] == NOON + 60 * SECOND
    assert (cursor["acked"], cursor["leased"], cursor["lease_id"]) == (0, None, None)
    await log.set_clock(NOON + 60 * SECOND)
    assert await take(partition, group) == [1, 2]


async def test_the_batch_counts_among_the_messages_that_are_old_enough(log, take):
    partition, group = await partition_with(log, "abcd", "ef", delayed_processing_s=15)

    assert await take(partition, group, batch=3) == [1, 2, 3]


async def test_defect_10_a_partition_held_back_does_not_absorb_the_poll(log):
    young, old = await log.provision("hive", "young", "old")
    group = await log.subscribe("hive")
    await log.set_options("hive", delayed_processing_s=60)
    await log.push(old, "a")
    await log.advance(59)
    await log.push(young, "b")
    await log.advance(1)
    # Said to be ready before the other, as a partition is whose queue got the option later.
    await log.execute(
        "update skep.cursor set available_at = $2 where partition_id = $1", young, NOON
    )

    taken = await log.pop(group, Poll(partitions=1))

    assert taken.partitions == [old]
    assert await log.next_available(group, young) == 59


# windowBuffer


async def test_nothing_is_delivered_while_the_window_since_the_newest_message_is_open(log, take):
    partition, group = await partition_with(log, "ab", "cd", window_buffer_s=30)
    await log.execute("update skep.cursor set available_at = skep.now()")

    assert await take(partition, group) == []

    assert (await log.cursor(partition, group))["available_at"] == NOON + 40 * SECOND
    await log.set_clock(NOON + 40 * SECOND)
    assert await take(partition, group) == [1, 2, 3, 4]


async def test_a_push_while_the_window_is_open_opens_it_anew(log, take):
    partition, group = await partition_with(log, "a", window_buffer_s=30)
    await log.push(partition, "b")

    await log.set_clock(NOON + 30 * SECOND)
    assert await take(partition, group) == []
    await log.set_clock(NOON + 40 * SECOND - MICROSECOND)
    assert await take(partition, group) == []
    await log.set_clock(NOON + 40 * SECOND)
    assert await take(partition, group) == [1, 2]


async def test_defect_11_a_long_window_hides_nothing_once_it_is_over(log, take):
    partition, group = await partition_with(log, "a", window_buffer_s=100_000)
    for _ in range(5):
        await log.advance(10_000)
        assert await take(partition, group) == []

    await log.set_clock(NOON + 100_000 * SECOND)

    assert await take(partition, group) == [1]


# maxDeliveries


async def crash(log, group, times, **options):
    """Let a consumer take and never answer; return the offsets of its last delivery."""
    offsets = []
    for _ in range(times):
        offsets = (await log.pop(group, Poll(lease_s=30, **options))).offsets
        await log.advance(30)
    return offsets


async def test_defect_16_a_message_nobody_survives_ends_in_the_dead_letters(log, take):
    partition, group = await partition_with(log, "abc", max_deliveries=3)

    assert await crash(log, group, 3) == [1, 2, 3]
    assert await log.dead_letters() == []
    assert await take(partition, group) == [2, 3]

    [letter] = await log.dead_letters()
    assert (letter["message_offset"], letter["transaction_id"]) == (1, "a")
    assert (letter["error"], letter["failures"]) == ("3 deliveries without an answer", 0)
    assert (await log.cursor(partition, group))["acked"] == 1


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_pop_says_how_many_messages_became_dead_letters(log, keeps):
    options = {"dead_letter_queue": keeps, "dlq_after_max_retries": keeps}
    partition, group = await partition_with(log, "ab", max_deliveries=1, **options)
    other, _ = await log.partition("hive", "other")
    await log.push(other, "c", "d")
    buried = [(await log.pop(group, Poll(partitions=2))).buried]
    await log.advance(600)
    buried += [(await log.pop(group, Poll(partitions=2))).buried]
    await log.advance(600)

    poll = Poll(partition_id=partition)
    buried += [(await log.pop_partitions(group, poll)).buried]

    assert buried == ([0, 2, 1] if keeps else [0, 0, 0])


async def test_the_message_behind_a_buried_one_has_as_many_chances_of_its_own(log):
    _, group = await partition_with(log, "ab", max_deliveries=2)
    await crash(log, group, 2)

    deliveries = []
    for _ in range(2):
        [message] = (await log.pop(group, Poll(lease_s=30))).messages
        deliveries.append((message.transaction_id, message.delivery))
        await log.advance(30)

    assert deliveries == [("b", 3), ("b", 4)]
    assert (await log.pop(group)).messages == []
    assert [letter["transaction_id"] for letter in await log.dead_letters()] == ["a", "b"]


async def test_one_message_is_buried_at_a_time(log):
    _, group = await partition_with(log, "abc", max_deliveries=1)

    assert [await crash(log, group, 1) for _ in range(4)] == [[1, 2, 3], [2, 3], [3], []]
    assert [letter["message_offset"] for letter in await log.dead_letters()] == [1, 2, 3]


async def test_a_partition_whose_last_message_was_buried_is_put_to_rest(log):
    _, group = await partition_with(log, "a", max_deliveries=1)
    await crash(log, group, 1)

    assert await log.pop(group) == []

    assert await log.next_available(group) is None


@pytest.mark.parametrize("status", ["failed", "retry"])
async def test_a_nack_is_an_answer(log, status):
    partition, group = await partition_with(log, "a", max_deliveries=2, retry_limit=9)

    for _ in range(5):
        poll = Poll()
        assert (await log.pop(group, poll)).offsets == [1]
        await log.ack(Ack(partition, 1, poll.lease_id, status))
        await log.advance(600)

    assert await log.dead_letters() == []


async def test_a_claim_given_back_is_no_delivery(log):
    partition, group = await partition_with(log, "a", max_deliveries=1)

    for _ in range(3):
        poll = Poll()
        assert (await log.pop(group, poll)).offsets == [1]
        await log.release(partition, group, poll.lease_id)


async def test_messages_are_not_counted_for_what_retention_took_before_them(log):
    _, group = await partition_with(log, "a", "b", max_deliveries=1)
    await crash(log, group, 1, batch=1)
    await log.execute("update skep.partition set tail = 2")
    await log.execute("delete from skep.segment where first = 1")

    assert (await log.pop(group)).offsets == [2]


# Only the newest


async def conflated_partition(log, *segments, **options):
    partition, group = await partition_with(log, *segments, **options)
    await log.execute("update skep.consumer_group set conflation = true where id = $1", group)
    return partition, group


async def test_a_conflating_group_gets_the_newest_message_of_each_partition(log, take):
    partition, group = await conflated_partition(log, "abc", "de")

    assert await take(partition, group) == [5]


async def test_the_newest_message_completes_its_partition(log):
    partition, group = await conflated_partition(log, "abc")
    poll = Poll()
    await log.pop(group, poll)

    assert await log.outcomes(Ack(partition, 3, poll.lease_id)) == ["acked"]

    assert (await log.cursor(partition, group))["acked"] == 3
    assert await log.next_available(group) is None


async def test_the_newest_message_completes_its_partition_also_where_acks_are_individual(log):
    partition, group = await conflated_partition(log, "abc", ack_mode="individual")
    poll = Poll()
    await log.pop(group, poll)

    await log.ack(Ack(partition, 3, poll.lease_id))

    assert (await log.cursor(partition, group))["acked"] == 3


async def test_the_newest_that_is_not_done_counts(log, take):
    partition, group = await conflated_partition(log, "abcde")
    await log.set_done(partition, group, "{[2,3),[4,6)}")

    assert await take(partition, group) == [3]


async def test_what_is_done_behind_the_newest_is_passed_with_it(log):
    partition, group = await conflated_partition(log, "abcde")
    await log.set_done(partition, group, "{[2,3),[4,6)}")

    assert (await log.pop(group, Poll(auto_ack=True))).offsets == [3]

    cursor = await log.cursor(partition, group)
    assert (cursor["acked"], cursor["done"], cursor["available_at"]) == (5, None, None)


async def test_the_newest_that_is_old_enough_counts(log, take):
    partition, group = await conflated_partition(log, "ab", "cd", delayed_processing_s=15)

    assert await take(partition, group) == [2]


async def test_a_conflating_group_waits_for_something_newer_than_its_poison(log, take):
    partition, group = await conflated_partition(log, "ab", max_deliveries=1)
    assert await crash(log, group, 3) == [2]

    await log.push(partition, "c")

    assert await take(partition, group) == [3]
    assert await log.dead_letters() == []


# Messages done ahead


async def test_messages_done_ahead_are_not_delivered(log, take):
    partition, group = await partition_with(log, "abc", "def")
    await log.set_done(partition, group, "{[2,4),[5,6)}")

    assert await take(partition, group) == [1, 4, 6]


async def test_messages_done_ahead_do_not_use_up_the_batch(log, take):
    partition, group = await partition_with(log, "abc", "def", "ghi")
    await log.set_done(partition, group, "{[2,4),[5,6)}")

    assert await take(partition, group, batch=3, auto_ack=True) == [1, 4, 6]

    assert (await log.cursor(partition, group))["acked"] == 6
    assert await log.done(partition, group) is None


async def test_what_is_done_behind_a_batch_is_passed_with_it(log, take):
    partition, group = await partition_with(log, "abcdef")
    await log.set_done(partition, group, "{[3,5)}")

    assert await take(partition, group, batch=2, auto_ack=True) == [1, 2]

    assert (await log.cursor(partition, group))["acked"] == 4


async def test_a_partition_of_which_the_rest_is_done_is_put_to_rest(log, take):
    partition, group = await partition_with(log, "abc")
    await log.set_done(partition, group, "{[2,4)}")
    await log.execute("update skep.partition set tail = 2")

    assert await take(partition, group) == []

    assert await log.next_available(group) is None
    assert (await log.cursor(partition, group))["acked"] == 3


@pytest.mark.parametrize("done_in", [0, 1, 2])
async def test_what_is_done_in_one_partition_is_not_mistaken_for_done_in_another(log, done_in):
    partitions = await log.provision("hive", *"abc")
    group = await log.subscribe("hive")
    for partition in partitions:
        await log.push(partition, *"xyz")
        await log.advance()
    await log.set_done(partitions[done_in], group, "{[2,3)}")
    polls = [Poll(partition_id=partition) for partition in partitions]

    by_any = await log.pop(group, Poll(partitions=3, lease_s=1))
    await log.advance(1)
    by_name = await log.pop_partitions(group, *polls)

    expected = {partition: [1, 2, 3] for partition in partitions} | {partitions[done_in]: [1, 3]}
    for taken in (by_any, by_name):
        assert {
            partition: [m.offset for m in taken.messages if m.partition_id == partition]
            for partition in partitions
        } == expected
