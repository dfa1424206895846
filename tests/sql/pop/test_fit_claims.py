"""What a pop returns is bounded in bytes, and what it does not return is not claimed."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sql.support.log import Ack, Poll, body_of, envelope

KB = 1_000


async def push(log, partition, *names, size):
    """Push messages of a size, all into one segment, as the release before did."""
    data = f'"{"x" * size}"'
    body = body_of(envelope(name, data) for name in names)
    await log.push_bodies({partition: names}, {partition: body})


async def wide_to(log, partition):
    return await log.value("select wide_to from skep.partition where id = $1", partition)


def bytes_of(taken):
    return sum(len(row.body) for row in taken if row.body)


async def leased(log):
    return await log.value("select count(*) from skep.cursor where leased is not null")


async def test_of_a_thousand_partitions_with_large_segments_some_are_claimed_at_a_time(log):
    partitions = await log.provision("hive", *map(str, range(1_000)))
    group = await log.subscribe()
    names = {each: [f"{each}-{n}" for n in range(4)] for each in partitions}
    bodies = {
        each: body_of(envelope(name, f'"{"x" * 9_000}"') for name in names[each])
        for each in partitions
    }
    await log.push_bodies(names, bodies)

    seen = []
    for _ in range(7):
        poll = Poll(batch=10_000, partitions=1_000)
        taken = await log.pop(group, poll, bytes_max=5_000 * KB)
        assert 4_900 * KB < bytes_of(taken) <= 5_000 * KB
        assert taken.ask_again == []
        seen += [message.transaction_id for message in taken.messages]
        assert await leased(log) == len(seen) // 4
        await log.advance()

    rest = await log.pop(group, Poll(batch=10_000, partitions=1_000))
    seen += [message.transaction_id for message in rest.messages]
    assert sorted(seen) == sorted(name for each in names.values() for name in each)


async def test_a_message_larger_than_the_bound_is_delivered_alone(log):
    partition, group = await log.partition()
    for name in "abc":
        await push(log, partition, name, size=50 * KB)

    found = []
    for _ in "abc":
        taken = await log.pop(group, Poll(auto_ack=True), bytes_max=10 * KB)
        found.append([message.transaction_id for message in taken.messages])
        await log.advance()

    assert found == [["a"], ["b"], ["c"]]


async def test_an_answer_ends_within_a_partition_where_the_next_segment_does_not_fit(log):
    partition, group = await log.partition()
    for name in "abcde":
        await push(log, partition, name, size=9 * KB)
    poll = Poll(batch=100)

    taken = await log.pop(group, poll, bytes_max=30 * KB)

    assert [message.transaction_id for message in taken.messages] == ["a", "b", "c"]
    cursor = await log.cursor(partition, group)
    assert (cursor["acked"], cursor["leased"]) == (0, 3)
    await log.ack(Ack(partition, 3, poll.lease_id))
    rest = await log.pop(group, Poll(batch=100), bytes_max=30 * KB)
    assert [message.transaction_id for message in rest.messages] == ["d", "e"]


@pytest.mark.parametrize("is_named", [False, True])
async def test_polls_for_which_there_is_no_room_are_told_to_ask_again(log, is_named):
    a, b, c = await log.provision("hive", "a", "b", "c")
    group = await log.subscribe()
    for partition in (a, b, c):
        await push(log, partition, "x", "y", size=9 * KB)
    polls = [Poll(partition_id=each) for each in (a, b, c)]
    pop = log.pop_partitions if is_named else log.pop

    taken = await pop(group, *polls, bytes_max=20 * KB)

    assert taken.partitions == [a]
    assert taken.ask_again == [2, 3]
    assert await leased(log) == 1
    await log.advance()
    again = await pop(group, *polls[1:], bytes_max=20 * KB)
    assert (again.partitions, again.ask_again) == ([b], [2])


async def test_many_small_messages_are_measured_and_not_cut(log):
    a, b = await log.provision("hive", "a", "b")
    group = await log.subscribe()
    names = [f"n{number}" for number in range(400)]
    await log.push_writes({a: names, b: names})

    taken = await log.pop(group, Poll(batch=1_000, partitions=2), bytes_max=100 * KB)

    assert len(taken.messages) == 800


async def test_wide_segments_are_remembered_until_they_are_read(log):
    old, wide, thin = await log.provision("hive", "old", "wide", "thin")
    await log.push(old, "a", "b")
    await log.execute("update skep.partition set wide_to = 9e18 where id = $1", old)

    await log.push(old, "c")
    await log.push(thin, "a")
    await push(log, wide, "a", "b", size=9 * KB)
    await log.push(wide, "c")

    assert [await wide_to(log, each) for each in (old, wide, thin)] == [2, 2, 0]


async def test_a_range_that_ends_before_done_messages_goes_over_them(log):
    partition, group = await log.partition()
    for name in "abcdef":
        await push(log, partition, name, size=9 * KB)
    await log.set_done(partition, group, "{[3,5)}")

    taken = await log.pop(group, Poll(batch=100), bytes_max=20 * KB)

    assert taken.offsets == [1, 2]
    assert (await log.cursor(partition, group))["leased"] == 4


async def test_of_a_conflating_group_only_the_newest_message_counts(log):
    partition, _ = await log.partition()
    group = await log.subscribe("hive", "newest", conflation=True)
    for name in "abcdef":
        await push(log, partition, name, size=9 * KB)

    taken = await log.pop(group, Poll(batch=100), bytes_max=10 * KB)

    assert taken.offsets == [6]


async def test_brokers_of_the_release_before_name_no_bound(log):
    partition, group = await log.partition()
    await push(log, partition, "a", "b", size=9 * KB)
    poll = Poll()

    rows = await log.rows(
        "select * from skep.pop_messages($1, $2, $3, $4, $5, $6)",
        group,
        [poll.lease_id],
        [1],
        [1],
        [True],
        [0],
    )

    assert [row["taken_to"] for row in rows] == [1]


sizes = st.lists(st.sampled_from([10, 3_000, 9_000, 20_000]), min_size=1, max_size=6)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(sizes, min_size=1, max_size=4), st.integers(1, 60_000), st.integers(1, 12))
def test_everything_comes_once_and_in_order_whatever_the_bound(log, arun, logs, most, batch):
    async def run():
        await log.clear()
        partitions = await log.provision("hive", *map(str, range(len(logs))))
        group = await log.subscribe()
        for partition, segments in zip(partitions, logs, strict=True):
            for number, size in enumerate(segments):
                await push(log, partition, f"{number}a", f"{number}b", size=size)

        found = {each: [] for each in partitions}
        for _ in range(sum(2 * len(segments) for segments in logs) + 1):
            polls = [Poll(batch, 2, auto_ack=True), Poll(batch, 1, auto_ack=True)]
            taken = await log.pop(group, *polls, bytes_max=most)
            bodies = [len(row.body) for row in taken]
            assert sum(bodies) <= most or len(bodies) == 1
            for message in taken.messages:
                found[message.partition_id].append(message.offset)
            await log.advance()

        assert found == {
            partition: list(range(1, 2 * len(segments) + 1))
            for partition, segments in zip(partitions, logs, strict=True)
        }

    arun(run())
