"""Acks by transaction id alone, where it repeats; asked through ack_messages."""

import pytest

from tests.sql.support.log import Ack, Poll


async def leased_twins(log, names="axbx", **options):
    """Lease messages of a queue without a window; return the partition, the group and the lease."""
    partition, group = await log.partition()
    await log.set_options("hive", dedup_window_s=0, retry_delay_ms=0, **options)
    await log.push(partition, *names)
    poll = Poll(lease_s=30)
    await log.pop(group, poll)
    return partition, group, poll.lease_id


async def test_one_ack_means_the_newest_and_completes_no_other(log):
    partition, group, lease = await leased_twins(log, "axbxc")

    outcomes = await log.outcomes(Ack(partition, None, lease, "completed", "x"))

    cursor = await log.cursor(partition, group)
    assert (outcomes, cursor["acked"]) == (["acked"], 0)
    await log.advance(31)
    assert (await log.pop(group)).offsets == [1, 2, 3, 5]


async def test_a_second_ack_means_the_one_before(log):
    partition, group, lease = await leased_twins(log, "axbxc")

    for _ in range(2):
        await log.outcomes(Ack(partition, None, lease, "completed", "x"))

    await log.advance(31)
    assert (await log.pop(group)).offsets == [3, 5]


async def test_as_many_acks_as_messages_name_all_of_them(log):
    partition, group, lease = await leased_twins(log)

    outcomes = await log.outcomes(*(Ack(partition, None, lease, "completed", "x") for _ in "12"))

    assert outcomes == ["acked", "acked"]
    assert (await log.cursor(partition, group))["acked"] == 4


async def test_a_message_named_by_its_offset_is_not_meant_by_the_name(log):
    partition, group, lease = await leased_twins(log)

    outcomes = await log.outcomes(
        Ack(partition, None, lease, "failed", "x"), Ack(partition, 2, lease)
    )

    assert outcomes == ["retried", "acked"]
    await log.advance(31)
    assert (await log.pop(group)).offsets == [3, 4]


async def test_acks_that_contradict_each_other_complete_nothing(log):
    partition, group, lease = await leased_twins(log, ack_mode="individual")

    outcomes = await log.outcomes(
        Ack(partition, None, lease, "completed", "x"), Ack(partition, None, lease, "dlq", "x")
    )

    assert outcomes == ["redelivered", "dead_lettered"]
    assert [letter["message_offset"] for letter in await log.dead_letters()] == [2]
    await log.advance(31)
    assert (await log.pop(group)).offsets == [1, 3, 4]


async def test_without_a_lease_the_one_nearest_to_the_cursor_is_meant(log):
    partition, group = await log.partition()
    await log.set_options("hive", dedup_window_s=0)
    await log.push(partition, *"axbx")

    await log.outcomes(Ack(partition, None, None, "completed", "x"))

    assert (await log.pop(group)).offsets == [1, 3, 4]


@pytest.mark.parametrize("is_conflating", [False, True])
async def test_without_a_lease_what_was_never_delivered_is_not_meant_by_an_ack_that_comes_again(
    log, is_conflating
):
    partition, group = await log.partition()
    await log.set_options("hive", dedup_window_s=0)
    if is_conflating:
        await log.execute("update skep.consumer_group set conflation = true where id = $1", group)
    await log.push(partition, *"ax")
    await log.pop(group, Poll())
    again = Ack(partition, None, None, "completed", "x")
    first = await log.outcomes(again)
    await log.push(partition, *"bx")

    assert (first, await log.outcomes(again)) == (["acked"], ["noop"])
    assert (await log.cursor(partition, group))["acked"] == 2


async def test_the_newest_message_of_a_conflating_group_stands_for_those_before_it(log):
    partition, group = await log.partition()
    await log.set_options("hive", dedup_window_s=0)
    await log.execute("update skep.consumer_group set conflation = true where id = $1", group)
    await log.push(partition, *"axbx")
    poll = Poll()
    await log.pop(group, poll)

    await log.outcomes(Ack(partition, None, poll.lease_id, "completed", "x"))

    assert (await log.cursor(partition, group))["acked"] == 4
