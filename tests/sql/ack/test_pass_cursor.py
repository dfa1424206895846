from asyncpg import Range
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sql.support.log import Ack, Poll

PASS = "select skep.pass_cursor($1, $2, $3)"


async def partition_of_ten(log):
    partition, group = await log.partition()
    await log.push(partition, *"abcdefghij")
    return partition, group


async def test_a_cursor_moves_to_the_end_of_what_it_does_not_get(log):
    partition, group = await partition_of_ten(log)

    await log.value(PASS, partition, group, 4)

    assert (await log.cursor(partition, group))["acked"] == 4
    assert (await log.pop(group)).offsets == [5, 6, 7, 8, 9, 10]


async def test_a_cursor_that_is_further_stays(log):
    partition, group = await partition_of_ten(log)
    await log.pop(group, Poll(batch=6, auto_ack=True))
    before = await log.cursor(partition, group)

    await log.value(PASS, partition, group, 4)

    assert await log.cursor(partition, group) == before


async def test_a_lease_within_what_goes_ends_and_frees_the_partition(log):
    partition, group = await partition_of_ten(log)
    poll = Poll(batch=3)
    await log.pop(group, poll)

    await log.value(PASS, partition, group, 4)

    assert await log.outcomes(Ack(partition, 3, poll.lease_id)) == ["noop"]
    assert (await log.pop(group)).offsets == [5, 6, 7, 8, 9, 10]


async def test_a_lease_that_reaches_further_stays(log):
    partition, group = await partition_of_ten(log)
    poll = Poll(batch=6)
    await log.pop(group, poll)

    await log.value(PASS, partition, group, 4)

    assert await log.pop(group) == []
    assert await log.outcomes(Ack(partition, 6, poll.lease_id)) == ["acked"]


async def test_a_lease_that_is_given_back_late_does_not_take_the_cursor_back(log):
    partition, group = await partition_of_ten(log)
    poll = Poll(batch=3)
    await log.pop(group, poll)

    await log.value(PASS, partition, group, 4)
    await log.release(partition, group, poll.lease_id)

    assert (await log.cursor(partition, group))["acked"] == 4


async def test_a_claim_acknowledged_at_once_can_still_be_undone(log):
    partition, group = await partition_of_ten(log)
    poll = Poll(batch=3, auto_ack=True)
    await log.pop(group, poll)

    await log.value(PASS, partition, group, 4)

    assert await log.release(partition, group, poll.lease_id) == 1
    assert (await log.pop(group)).offsets == list(range(1, 11))


async def test_failures_of_messages_that_went_are_forgotten(log):
    partition, group = await partition_of_ten(log)
    await log.execute("update skep.cursor set failed_offset = '{6,2}', failed_count = '{1,3}'")

    await log.value(PASS, partition, group, 4)

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

        await log.value(PASS, partition, group, last)

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

    await log.value(PASS, partition, group, 2)
    assert await log.next_available(group) == 20

    await log.value(PASS, partition, group, 3)
    assert await log.next_available(group) == 0
