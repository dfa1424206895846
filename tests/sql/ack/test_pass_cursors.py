"""Passing messages that a group does not get: from the start, or one by one in any order."""

from asyncpg import Range
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sql.support.log import Ack, Poll

MESSAGES = 6


async def pass_up_to(log, partition, group, last):
    await log.execute(
        "select skep.pass_cursors($1, $2, 1, $3, skep.now())", partition, [group], last
    )


async def pass_over(log, partition, group, offset):
    await log.execute(
        "select skep.pass_cursors($1, $2, $3, $3, skep.now())", partition, [group], offset
    )


async def partition_of_ten(log):
    partition, group = await log.partition()
    await log.push(partition, *"abcdefghij")
    return partition, group


async def test_a_cursor_moves_to_the_end_of_what_it_does_not_get(log):
    partition, group = await partition_of_ten(log)

    await pass_up_to(log, partition, group, 4)

    assert (await log.cursor(partition, group))["acked"] == 4
    assert (await log.pop(group)).offsets == [5, 6, 7, 8, 9, 10]


async def test_a_cursor_that_is_further_stays(log):
    partition, group = await partition_of_ten(log)
    await log.pop(group, Poll(batch=6, auto_ack=True))
    before = await log.cursor(partition, group)

    await pass_up_to(log, partition, group, 4)

    assert await log.cursor(partition, group) == before


async def test_a_lease_within_what_goes_ends_and_frees_the_partition(log):
    partition, group = await partition_of_ten(log)
    poll = Poll(batch=3)
    await log.pop(group, poll)

    await pass_up_to(log, partition, group, 4)

    assert await log.outcomes(Ack(partition, 3, poll.lease_id)) == ["noop"]
    assert (await log.pop(group)).offsets == [5, 6, 7, 8, 9, 10]


async def test_a_lease_that_reaches_further_stays(log):
    partition, group = await partition_of_ten(log)
    poll = Poll(batch=6)
    await log.pop(group, poll)

    await pass_up_to(log, partition, group, 4)

    assert await log.pop(group) == []
    assert await log.outcomes(Ack(partition, 6, poll.lease_id)) == ["acked"]


async def test_a_lease_that_is_given_back_late_does_not_take_the_cursor_back(log):
    partition, group = await partition_of_ten(log)
    poll = Poll(batch=3)
    await log.pop(group, poll)

    await pass_up_to(log, partition, group, 4)
    await log.release(partition, group, poll.lease_id)

    assert (await log.cursor(partition, group))["acked"] == 4


async def test_a_claim_acknowledged_at_once_can_still_be_undone(log):
    partition, group = await partition_of_ten(log)
    poll = Poll(batch=3, auto_ack=True)
    await log.pop(group, poll)

    await pass_up_to(log, partition, group, 4)

    assert await log.release(partition, group, poll.lease_id) == 1
    assert (await log.pop(group)).offsets == list(range(1, 11))


async def test_failures_of_messages_that_went_are_forgotten(log):
    partition, group = await partition_of_ten(log)
    await log.execute("update skep.cursor set failed_offset = '{6,2}', failed_count = '{1,3}'")

    await pass_up_to(log, partition, group, 4)

    cursor = await log.cursor(partition, group)
    assert (cursor["failed_offset"], cursor["failed_count"]) == ([6], [1])


@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(done=st.sets(st.integers(2, 12)), last=st.integers(1, 12))
def test_the_cursor_ends_before_the_first_message_that_is_not_done(log, arun, done, last):
    async def check():
        await log.clear()
        partition, group = await log.partition()
        ranges = [Range(offset, offset + 1) for offset in sorted(done)]
        await log.execute(
            "update skep.cursor set done = $2 where group_id = $1", group, ranges or None
        )

        await pass_up_to(log, partition, group, last)

        expected = last
        while expected + 1 in done:
            expected += 1
        cursor = await log.cursor(partition, group)
        assert cursor["acked"] == expected
        left = {offset for each in cursor["done"] or () for offset in range(each.lower, each.upper)}
        assert left == {offset for offset in done if offset > expected}

    arun(check())


async def test_nobody_waits_for_the_pause_of_a_failed_message_that_is_gone(log):
    await log.configure("hive", retry_delay_ms=20_000)
    partition, group = await partition_of_ten(log)
    poll = Poll()
    await log.pop(group, poll)
    await log.ack(Ack(partition, 3, poll.lease_id, "failed"))

    await pass_up_to(log, partition, group, 2)
    assert await log.next_available(group) == 20

    await pass_up_to(log, partition, group, 3)
    assert await log.next_available(group) == 0


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
    await log.configure("hive", retry_delay_ms=1000)
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
