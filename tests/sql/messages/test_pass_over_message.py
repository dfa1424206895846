"""Passing over messages in any order, against a set of offsets in Python."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sql.support.log import Ack, Poll

MESSAGES = 6


async def pass_over(log, partition, group, offset):
    async with log.connection.transaction():
        await log.value("select id from skep.partition where id = $1 for no key update", partition)
        await log.execute(
            "select skep.pass_over_message($1, $2, $3, skep.now())", partition, [group], offset
        )


def test_acked_moves_over_what_is_contiguous_and_done_keeps_the_rest(log, arun):
    @settings(max_examples=40, deadline=None)
    @given(st.integers(0, MESSAGES), st.lists(st.integers(1, MESSAGES), max_size=8))
    def check(acked, offsets):
        async def run():
            await log.clear()
            partition, group = await log.partition()
            await log.push(partition, *map(str, range(MESSAGES)))
            if acked:
                await log.pop(group, Poll(batch=acked, auto_ack=True))
            done = set(range(1, acked + 1))
            for offset in offsets:
                await pass_over(log, partition, group, offset)
                done.add(offset)

            cursor = await log.cursor(partition, group)
            expected = next(n for n in range(MESSAGES + 1) if n + 1 not in done)
            assert cursor["acked"] == expected
            ahead = {n for r in cursor["done"] or () for n in range(r.lower, r.upper)}
            assert ahead == {offset for offset in done if offset > expected}
            assert (cursor["available_at"] is None) == (expected == MESSAGES)

            left = [n for n in range(1, MESSAGES + 1) if n not in done]
            await log.advance()
            taken = await log.pop(group, Poll(batch=100))
            assert set(left) <= set(taken.offsets)

        arun(run())

    check()


async def test_a_lease_of_which_nothing_is_left_ends(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b")
    await log.pop(group, Poll(batch=1))

    await pass_over(log, partition, group, 1)

    cursor = await log.cursor(partition, group)
    assert (cursor["acked"], cursor["leased"], cursor["leased_from"]) == (1, None, None)
    assert cursor["available_at"] == log.now
    assert (await log.pop(group)).offsets == [2]


async def test_the_rest_of_a_lease_can_still_be_acknowledged(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b", "c")
    poll = Poll(batch=3)
    await log.pop(group, poll)

    await pass_over(log, partition, group, 1)

    assert await log.outcomes(Ack(partition, 3, poll.lease_id)) == ["acked"]
    assert (await log.cursor(partition, group))["acked"] == 3


async def test_failures_of_a_message_that_is_passed_over_are_forgotten(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b")
    poll = Poll(batch=2)
    await log.pop(group, poll)
    await log.ack(Ack(partition, 1, poll.lease_id, "failed"))

    await pass_over(log, partition, group, 1)

    cursor = await log.cursor(partition, group)
    assert (cursor["failed_offset"], cursor["failed_count"]) == (None, None)


async def test_a_partition_that_backs_off_for_another_message_goes_on_waiting(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b")
    poll = Poll()
    await log.pop(group, poll)
    await log.ack(Ack(partition, 1, poll.lease_id, "failed"))
    waiting_until = (await log.cursor(partition, group))["available_at"]

    await pass_over(log, partition, group, 2)

    cursor = await log.cursor(partition, group)
    assert cursor["available_at"] == waiting_until > log.now
    assert cursor["failed_offset"] == [1]


async def failed_partition(log, failed):
    """Let one of three messages fail; return the partition and the group, which rest."""
    await log.configure("hive", retry_delay_ms=20_000)
    partition, group = await log.partition()
    await log.push(partition, *"abc")
    poll = Poll()
    await log.pop(group, poll)
    await log.ack(Ack(partition, failed, poll.lease_id, "failed"))
    return partition, group


async def test_a_partition_goes_on_resting_for_a_message_that_failed(log):
    partition, group = await failed_partition(log, 2)

    await pass_over(log, partition, group, 1)

    assert (await log.cursor(partition, group))["acked"] == 1
    assert await log.next_available(group) == 20


async def test_nobody_rests_for_the_message_that_was_passed_over(log):
    partition, group = await failed_partition(log, 2)

    await pass_over(log, partition, group, 2)

    assert await log.next_available(group) == 0


async def test_a_claim_acknowledged_at_once_can_still_be_given_back(log):
    partition, group = await log.partition()
    await log.push(partition, *"abc")
    poll = Poll(batch=1, auto_ack=True)
    await log.pop(group, poll)

    await pass_over(log, partition, group, 2)

    assert await log.release(partition, group, poll.lease_id) == 1
    assert (await log.cursor(partition, group))["acked"] == 0
