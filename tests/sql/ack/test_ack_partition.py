"""The rules for one partition, asked through ack_messages, which locks the cursor first."""

import json
from datetime import timedelta
from uuid import uuid4

import pytest

from tests.sql.support.log import NOON, Ack, Poll, envelope

SECOND = timedelta(seconds=1)


async def leased_partition(log, names="abcde", **options):
    """Push the names and lease them; return the partition, the group and the lease."""
    partition, group = await log.partition()
    await log.push(partition, *names)
    poll = Poll(**{"lease_s": 30, **options})
    await log.pop(group, poll)
    return partition, group, poll.lease_id


async def fail_once(log, partition, group, offset):
    """Lease the partition, once any lease or delay is over, and nack one of its messages."""
    await log.advance(600)
    poll = Poll()
    await log.pop(group, poll)
    [answer] = await log.ack(Ack(partition, offset, poll.lease_id, "failed", error="stung"))
    return answer.outcome


async def test_a_mixed_batch_stops_at_the_message_that_failed(log):
    partition, group, lease = await leased_partition(log, "abc")

    outcomes = await log.outcomes(
        Ack(partition, 1, lease), Ack(partition, 2, lease, "failed"), Ack(partition, 3, lease)
    )

    assert outcomes == ["acked", "retried", "redelivered"]
    await log.advance()
    assert (await log.pop(group)).offsets == [2, 3]


async def test_the_order_of_the_items_makes_no_difference(log):
    partition, group, lease = await leased_partition(log, "abc")

    outcomes = await log.outcomes(
        Ack(partition, 3, lease), Ack(partition, 2, lease, "failed"), Ack(partition, 1, lease)
    )

    assert outcomes == ["redelivered", "retried", "acked"]
    assert (await log.cursor(partition, group))["acked"] == 1


async def test_a_failure_is_not_passed_by_what_was_left_out_before_it(log):
    partition, group, lease = await leased_partition(log, "abc")

    await log.ack(Ack(partition, 2, lease, "failed"))

    await log.advance()
    assert (await log.pop(group)).offsets == [1, 2, 3]


async def test_a_completed_message_completes_what_was_left_out_before_it(log):
    partition, group, lease = await leased_partition(log, "abc")

    outcomes = await log.outcomes(Ack(partition, 2, lease), Ack(partition, 1, lease))

    assert outcomes == ["acked", "acked"]
    assert (await log.cursor(partition, group))["acked"] == 2


async def test_only_the_lowest_of_several_failures_is_counted(log):
    partition, group, lease = await leased_partition(log, "abc")

    outcomes = await log.outcomes(*(Ack(partition, n, lease, "failed") for n in (1, 2, 3)))

    assert outcomes == ["retried"] * 3
    cursor = await log.cursor(partition, group)
    assert (cursor["failed_offset"], cursor["failed_count"]) == ([1], [1])


async def test_a_partition_that_failed_backs_off_for_the_retry_delay(log):
    partition, group, lease = await leased_partition(log)
    await log.configure("hive", retry_delay_ms=2500)

    [answer] = await log.ack(Ack(partition, 1, lease, "failed"))

    assert (answer.outcome, answer.lease_released, answer.has_more) == ("retried", True, True)
    assert await log.next_available(group) == 2.5
    assert (await log.cursor(partition, group))["leased"] is None


async def test_the_pause_doubles_with_each_failure_of_the_message(log):
    partition, group = await log.partition()
    await log.push(partition, "a")
    await log.set_options("hive", retry_limit=9, retry_delay_ms=1000, retry_delay_ms_max=5000)

    pauses = []
    for _ in range(5):
        await fail_once(log, partition, group, 1)
        pauses.append(await log.next_available(group))

    assert pauses == [1, 2, 4, 5, 5]


async def test_a_message_is_retried_as_often_as_the_queue_allows_and_then_buried(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b")
    await log.configure("hive", retry_limit=2)

    outcomes = [await fail_once(log, partition, group, 1) for _ in range(3)]

    assert outcomes == ["retried", "retried", "dead_lettered"]
    [letter] = await log.dead_letters()
    assert (letter["message_offset"], letter["transaction_id"]) == (1, "a")
    assert (letter["error"], letter["failures"]) == ("stung", 3)
    assert (letter["group_id"], letter["failed_at"]) == (group, log.now)
    assert letter["envelope"] == envelope("a")
    assert (await log.cursor(partition, group))["acked"] == 1


async def test_without_retries_the_first_failure_buries(log):
    partition, _, lease = await leased_partition(log)
    await log.configure("hive", retry_limit=0)

    assert await log.outcomes(Ack(partition, 1, lease, "failed")) == ["dead_lettered"]


async def test_failures_are_counted_for_each_message_apart(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b", "c")
    await log.configure("hive", retry_limit=1)

    outcomes = [await fail_once(log, partition, group, offset) for offset in (2, 3, 2, 3)]

    assert outcomes == ["retried", "retried", "dead_lettered", "dead_lettered"]
    assert [letter["transaction_id"] for letter in await log.dead_letters()] == ["b", "c"]


async def test_the_count_of_a_message_that_succeeded_is_forgotten(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b")
    await fail_once(log, partition, group, 1)
    await fail_once(log, partition, group, 2)
    await log.advance(60)
    poll = Poll()
    await log.pop(group, poll)

    await log.ack(Ack(partition, 1, poll.lease_id))

    cursor = await log.cursor(partition, group)
    assert (cursor["failed_offset"], cursor["failed_count"]) == ([2], [1])


async def test_what_follows_a_buried_message_in_the_same_call_is_done_as_well(log):
    partition, group, lease = await leased_partition(log, "abc")
    await log.configure("hive", retry_limit=0)

    outcomes = await log.outcomes(
        Ack(partition, 1, lease), Ack(partition, 2, lease, "failed"), Ack(partition, 3, lease)
    )

    assert outcomes == ["acked", "dead_lettered", "acked"]
    assert (await log.cursor(partition, group))["acked"] == 3


async def test_an_error_that_was_not_told_is_named(log):
    partition, _, lease = await leased_partition(log)
    await log.configure("hive", retry_limit=0)

    await log.ack(Ack(partition, 1, lease, "failed"), Ack(partition, 2, lease, "failed", error=""))

    assert [x["error"] for x in await log.dead_letters()] == ["Retries exhausted"] * 2


async def test_a_retry_spends_nothing_and_does_not_wait(log):
    partition, group, lease = await leased_partition(log)
    await log.configure("hive", retry_limit=0, retry_delay_ms=5000)

    [answer] = await log.ack(Ack(partition, 1, lease, "retry"))

    assert (answer.outcome, answer.lease_released, answer.has_more) == ("retried", True, True)
    assert await log.next_available(group) == 0
    assert (await log.cursor(partition, group))["failed_offset"] is None
    assert await log.dead_letters() == []


async def test_a_retry_stops_the_batch_like_a_failure(log):
    partition, group, lease = await leased_partition(log, "abc")

    outcomes = await log.outcomes(
        Ack(partition, 1, lease), Ack(partition, 2, lease, "retry"), Ack(partition, 3, lease)
    )

    assert outcomes == ["acked", "retried", "redelivered"]
    assert (await log.pop(group)).offsets == [2, 3]


async def test_a_message_may_be_buried_at_once(log):
    partition, group, lease = await leased_partition(log, "ab")

    outcomes = await log.outcomes(
        Ack(partition, 1, lease, "dlq", error="poison"), Ack(partition, 2, lease, "dlq")
    )

    assert outcomes == ["dead_lettered"] * 2
    assert [(x["error"], x["failures"]) for x in await log.dead_letters()] == [
        ("poison", 1),
        ("", 1),
    ]
    assert (await log.cursor(partition, group))["acked"] == 2


async def test_a_buried_message_counts_its_earlier_failures(log):
    partition, group = await log.partition()
    await log.push(partition, "a")
    await fail_once(log, partition, group, 1)
    await log.advance(60)
    poll = Poll()
    await log.pop(group, poll)

    await log.ack(Ack(partition, 1, poll.lease_id, "dlq", error="enough"))

    assert [(x["error"], x["failures"]) for x in await log.dead_letters()] == [("enough", 2)]


async def test_a_buried_message_may_hold_what_postgres_cannot_decode(log):
    partition, group = await log.partition()
    body = envelope("a", r'"\u0000"').join("[]").encode()
    await log.push_bodies({partition: ["a"]}, {partition: body})
    poll = Poll()
    await log.pop(group, poll)

    assert await log.outcomes(Ack(partition, 1, poll.lease_id, "dlq")) == ["dead_lettered"]

    [letter] = await log.dead_letters()
    assert json.loads(letter["envelope"])["data"] == "\0"


@pytest.mark.parametrize("status", ["failed", "retry", "dlq"])
async def test_a_message_that_was_done_cannot_fail_any_more(log, status):
    partition, group, lease = await leased_partition(log)
    await log.ack(Ack(partition, 2, lease))

    assert await log.outcomes(Ack(partition, 1, lease, status)) == ["already_done"]

    assert (await log.cursor(partition, group))["acked"] == 2
    assert await log.dead_letters() == []


async def test_a_repeated_nack_finds_its_lease_gone(log):
    partition, group, lease = await leased_partition(log)
    nack = Ack(partition, 1, lease, "failed")
    await log.ack(nack)

    assert await log.outcomes(nack) == ["lease_lost"]
    assert (await log.cursor(partition, group))["failed_count"] == [1]


@pytest.mark.parametrize("status", ["completed", "failed", "retry", "dlq"])
async def test_a_lease_that_expired_is_lost(log, status):
    partition, group, lease = await leased_partition(log)
    before = await log.cursor(partition, group)
    await log.advance(30)

    assert await log.outcomes(Ack(partition, 1, lease, status)) == ["lease_lost"]
    assert await log.cursor(partition, group) == before


@pytest.mark.parametrize("status", ["completed", "failed", "retry", "dlq"])
async def test_a_lease_that_somebody_else_holds_is_lost(log, status):
    partition, group, _ = await leased_partition(log)
    before = await log.cursor(partition, group)

    [answer] = await log.ack(Ack(partition, 1, uuid4(), status))

    assert (answer.outcome, answer.lease_released, answer.has_more) == ("lease_lost", False, False)
    assert await log.cursor(partition, group) == before


async def test_a_message_beyond_the_range_under_lease_is_not_covered_by_it(log):
    partition, group, lease = await leased_partition(log, "abc", batch=2)

    assert await log.outcomes(Ack(partition, 3, lease)) == ["beyond_lease"]
    assert (await log.cursor(partition, group))["acked"] == 0


async def test_one_lost_lease_does_not_stop_the_rightful_holder_in_the_same_call(log):
    partition, group, lease = await leased_partition(log, "ab")

    answers = await log.ack(Ack(partition, 1, uuid4(), "failed"), Ack(partition, 2, lease))

    assert [(answer.outcome, answer.lease_released) for answer in answers] == [
        ("lease_lost", False),
        ("acked", True),
    ]
    assert (await log.cursor(partition, group))["acked"] == 2


async def test_an_unfenced_ack_is_believed(log):
    partition, group, _ = await leased_partition(log, "abc")

    [answer] = await log.ack(Ack(partition, 3))

    assert (answer.outcome, answer.lease_released) == ("acked", True)
    assert (await log.cursor(partition, group))["acked"] == 3


async def test_an_unfenced_ack_below_the_end_of_a_lease_leaves_the_lease(log):
    partition, group, lease = await leased_partition(log, "abc")

    [answer] = await log.ack(Ack(partition, 2))

    assert (answer.outcome, answer.lease_released) == ("acked", False)
    assert await log.outcomes(Ack(partition, 3, lease)) == ["acked"]
    assert await log.next_available(group) is None


async def test_an_unfenced_ack_needs_no_lease_at_all(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b")

    [answer] = await log.ack(Ack(partition, None, transaction_id="a"))

    assert (answer.outcome, answer.lease_released, answer.has_more) == ("acked", False, True)
    assert (await log.pop(group)).offsets == [2]


async def test_an_unknown_offset_is_found_by_the_key(log):
    partition, group, lease = await leased_partition(log, "abc")

    assert await log.outcomes(Ack(partition, None, lease, transaction_id="b")) == ["acked"]
    assert (await log.cursor(partition, group))["acked"] == 2


async def test_a_key_that_is_not_in_the_partition_is_not_found(log):
    partition, group, lease = await leased_partition(log, "abc")

    outcomes = await log.outcomes(
        Ack(partition, None, lease, transaction_id="nobody"),
        Ack(partition, None, lease, transaction_id="c"),
    )

    assert outcomes == ["not_found", "acked"]
    assert (await log.cursor(partition, group))["acked"] == 3


@pytest.mark.parametrize("offset", [0, 4, 1 << 61])
async def test_an_offset_that_no_message_has_is_not_found(log, offset):
    partition, group, _ = await leased_partition(log, "abc")

    assert await log.outcomes(Ack(partition, offset)) == ["not_found"]

    assert (await log.cursor(partition, group))["acked"] == 0


@pytest.mark.parametrize("offset", [2, None])
@pytest.mark.parametrize("done_to", [2, 3])
async def test_a_repeated_ack_is_a_noop(log, offset, done_to):
    partition, group, lease = await leased_partition(log, "abc")
    await log.ack(Ack(partition, done_to, lease))
    before = await log.cursor(partition, group)

    [answer] = await log.ack(Ack(partition, offset, lease, transaction_id="b"))

    assert (answer.outcome, answer.lease_released, answer.has_more) == ("noop", False, False)
    assert await log.cursor(partition, group) == before


async def test_a_partition_completed_with_nothing_behind_it_is_idle(log):
    partition, group, lease = await leased_partition(log, "ab")
    acks = [Ack(partition, 1, lease), Ack(partition, 2, lease)]

    answers = await log.ack(*acks)

    assert [(a.lease_released, a.has_more) for a in answers] == [(True, False)] * 2
    assert await log.next_available(group) is None


async def test_a_partition_completed_with_more_behind_it_is_ready(log):
    partition, group, lease = await leased_partition(log, "abc", batch=2)
    await log.advance()

    answers = await log.ack(Ack(partition, 1, lease), Ack(partition, 2, lease))

    assert [(a.lease_released, a.has_more) for a in answers] == [(True, True)] * 2
    assert (await log.cursor(partition, group))["available_at"] == NOON + SECOND


async def test_a_partition_completed_in_part_stays_leased(log):
    partition, group, lease = await leased_partition(log, "abc")

    answers = await log.ack(Ack(partition, 1, lease), Ack(partition, 2, lease))

    assert [(a.lease_released, a.has_more) for a in answers] == [(False, False)] * 2
    assert await log.next_available(group) == 30


async def test_a_failed_message_that_was_not_the_first_was_delivered_before(log):
    partition, group, lease = await leased_partition(log, "abc")
    await log.ack(Ack(partition, 1, lease), Ack(partition, 2, lease, "failed"))
    await log.advance()

    taken = await log.pop(group)

    assert (taken.messages[0].transaction_id, taken.messages[0].delivery) == ("b", 2)


async def test_a_completed_message_passes_those_done_behind_it(log):
    partition, group, lease = await leased_partition(log, "abcde")
    await log.set_done(partition, group, "{[3,5)}")

    [answer] = await log.ack(Ack(partition, 2, lease))

    assert (answer.outcome, answer.lease_released) == ("acked", False)
    assert (await log.cursor(partition, group))["acked"] == 4
    assert await log.done(partition, group) is None


async def test_a_completed_message_leaves_what_is_done_further_ahead(log):
    partition, group, lease = await leased_partition(log, "abcde")
    await log.set_done(partition, group, "{[4,5)}")

    await log.ack(Ack(partition, 2, lease))

    assert (await log.cursor(partition, group))["acked"] == 2
    assert await log.done(partition, group) == "{[4,5)}"


async def test_completing_a_message_done_ahead_completes_those_before_it(log):
    """It may have been deleted after its delivery, and speaks for the whole batch."""
    partition, group, lease = await leased_partition(log, "abcde")
    await log.set_done(partition, group, "{[5,6)}")

    [answer] = await log.ack(Ack(partition, 5, lease))

    assert (answer.outcome, answer.lease_released) == ("acked", True)
    assert (await log.cursor(partition, group))["acked"] == 5


async def test_a_message_done_ahead_is_not_completed_past_a_failure(log):
    partition, group, lease = await leased_partition(log, "abcde")
    await log.set_done(partition, group, "{[5,6)}")

    outcomes = await log.outcomes(Ack(partition, 2, lease, "failed"), Ack(partition, 5, lease))

    assert outcomes == ["retried", "noop"]
    assert (await log.cursor(partition, group))["acked"] == 0
    assert await log.done(partition, group) == "{[5,6)}"


async def test_completing_a_message_done_ahead_needs_the_lease(log):
    partition, group, _ = await leased_partition(log, "abcde")
    await log.set_done(partition, group, "{[5,6)}")

    assert await log.outcomes(Ack(partition, 5, uuid4())) == ["noop"]
    assert (await log.cursor(partition, group))["acked"] == 0


@pytest.mark.parametrize("status", ["failed", "retry", "dlq"])
async def test_a_message_done_ahead_cannot_fail_any_more(log, status):
    partition, group, lease = await leased_partition(log, "abcde")
    await log.set_done(partition, group, "{[3,4)}")

    assert await log.outcomes(Ack(partition, 3, lease, status)) == ["already_done"]
    assert (await log.cursor(partition, group))["acked"] == 0


async def test_where_acks_are_individual_a_message_done_ahead_completes_nothing(log):
    partition, group, lease = await leased_partition(log, "abcde")
    await log.set_options("hive", ack_mode="individual")
    await log.set_done(partition, group, "{[3,4)}")

    assert await log.outcomes(Ack(partition, 3, lease)) == ["noop"]
    assert (await log.cursor(partition, group))["acked"] == 0


# Expired messages, as the broker reports them


async def test_an_expired_message_is_done_without_completing_those_before_it(log):
    partition, group, lease = await leased_partition(log, "abc")

    [answer] = await log.ack(Ack(partition, 2, lease, "expired"))

    assert (answer.outcome, answer.lease_released) == ("expired", False)
    assert (await log.cursor(partition, group))["acked"] == 0
    assert await log.done(partition, group) == "{[2,3)}"


async def test_a_partition_whose_last_message_expired_is_released_by_the_one_before(log):
    partition, group, lease = await leased_partition(log, "abc")
    await log.ack(Ack(partition, 3, lease, "expired"))

    [answer] = await log.ack(Ack(partition, 2, lease))

    assert (answer.outcome, answer.lease_released, answer.has_more) == ("acked", True, False)
    assert (await log.cursor(partition, group))["acked"] == 3


async def test_a_range_that_expired_altogether_is_released(log):
    partition, group, lease = await leased_partition(log, "abcd", batch=2)

    answers = await log.ack(*(Ack(partition, n, lease, "expired") for n in (1, 2)))

    assert [(a.lease_released, a.has_more) for a in answers] == [(True, True)] * 2
    assert (await log.pop(group)).offsets == [3, 4]


async def test_an_expired_message_is_not_brought_back_by_a_failure_below_it(log):
    partition, group, lease = await leased_partition(log, "abc")

    outcomes = await log.outcomes(
        Ack(partition, 1, lease, "failed"), Ack(partition, 2, lease, "expired")
    )

    assert outcomes == ["retried", "expired"]
    await log.advance()
    assert (await log.pop(group)).offsets == [1, 3]


async def test_only_the_holder_of_the_lease_may_say_that_a_message_expired(log):
    partition, group, _ = await leased_partition(log, "abc")

    assert await log.outcomes(Ack(partition, 2, uuid4(), "expired")) == ["lease_lost"]

    assert await log.done(partition, group) is None


async def test_an_expired_message_that_was_done_is_left(log):
    partition, _, lease = await leased_partition(log, "abc")
    await log.ack(Ack(partition, 2, lease))

    assert await log.outcomes(Ack(partition, 1, lease, "expired")) == ["noop"]


async def exhausted(log, **options):
    """Let a message fail once too often; return the outcome."""
    await log.configure("hive", retry_limit=0, **options)
    partition, group = await log.partition()
    await log.push(partition, "a", "b")
    poll = Poll()
    await log.pop(group, poll)
    [outcome] = await log.outcomes(Ack(partition, 1, poll.lease_id, "failed"))
    return outcome, await log.cursor(partition, group)


@pytest.mark.parametrize(("kept", "after_retries"), [(True, True), (True, False), (False, True)])
async def test_a_message_that_is_given_up_is_kept_unless_both_options_say_no(
    log, kept, after_retries
):
    options = {"dead_letter_queue": kept, "dlq_after_max_retries": after_retries}

    outcome, cursor = await exhausted(log, **options)

    assert (outcome, cursor["acked"]) == ("dead_lettered", 1)
    assert len(await log.dead_letters()) == 1


async def test_where_both_options_say_no_it_is_dropped_and_the_partition_goes_on(log):
    outcome, cursor = await exhausted(log, dead_letter_queue=False, dlq_after_max_retries=False)

    assert (outcome, cursor["acked"]) == ("dropped", 1)
    assert await log.dead_letters() == []


async def test_a_message_that_is_to_be_buried_is_buried_in_any_queue(log):
    await log.configure("hive", dead_letter_queue=False, dlq_after_max_retries=False)
    partition, group = await log.partition()
    await log.push(partition, "a")
    poll = Poll()
    await log.pop(group, poll)

    assert await log.outcomes(Ack(partition, 1, poll.lease_id, "dlq")) == ["dead_lettered"]
