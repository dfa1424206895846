from datetime import timedelta

import pytest

from tests.sql.support.log import NOON, Poll, body_of, envelope, keys_of

SECOND = timedelta(seconds=1)


async def append(log, writes, *, now=None):
    rows = await log.rows(
        "select * from skep.append_segments($1, $2, $3, $4, $5)",
        list(writes),
        [len(names) for names in writes.values()],
        [keys_of(names) for names in writes.values()],
        [body_of(map(envelope, names)) for names in writes.values()],
        now or log.now,
    )
    return {row["partition_id"]: row for row in rows}


async def test_offsets_are_dense_and_start_at_one(log):
    partition, _ = await log.partition()

    firsts = [
        (await append(log, {partition: names}))[partition]["first"]
        for names in ("ab", "c", "def", "g")
    ]

    assert firsts == [1, 3, 4, 7]
    assert await log.value("select head from skep.partition") == 7


async def test_every_partition_counts_for_itself(log):
    a, b, c = await log.provision("hive", "a", "b", "c")
    await append(log, {b: "xy"})

    rows = await append(log, {a: "pq", b: "z", c: "rst"})

    assert {id_: row["first"] for id_, row in rows.items()} == {a: 1, b: 3, c: 1}


async def test_a_segment_is_stored_as_it_came(log):
    partition, _ = await log.partition()
    await append(log, {partition: "ab"})

    segment = await log.row("select * from skep.segment")

    assert (segment["first"], segment["last"]) == (1, 2)
    assert segment["keys"] == keys_of("ab")
    assert segment["body"] == body_of(map(envelope, "ab"))
    assert segment["created_at"] == NOON
    assert segment["queue_id"] == await log.value("select id from skep.queue")


async def test_a_segment_carries_the_transaction_that_stored_it(log):
    partition, _ = await log.partition()

    async with log.connection.transaction():
        await append(log, {partition: "a"})
        transaction = await log.value("select pg_current_xact_id()::text")

    assert await log.value("select xid::text from skep.segment") == transaction


async def test_created_at_never_decreases_although_the_clock_does(log):
    partition, _ = await log.partition()
    moments = [NOON, NOON - 60 * SECOND, NOON - SECOND, NOON + SECOND]

    answers = [(await append(log, {partition: "a"}, now=now))[partition] for now in moments]

    expected = [NOON, NOON, NOON, NOON + SECOND]
    assert [answer["created_at"] for answer in answers] == expected
    stored = await log.rows("select created_at from skep.segment order by first")
    assert [row["created_at"] for row in stored] == expected


async def test_idle_cursors_of_every_group_become_ready(log):
    partition, queue_mode = await log.partition()
    bees = await log.subscribe("hive", "bees", "new")
    for group in (queue_mode, bees):
        await log.pop(group)  # finds nothing and puts the partition to rest
        assert (await log.cursor(partition, group))["available_at"] is None
    await log.advance()

    await append(log, {partition: "a"})

    for group in (queue_mode, bees):
        assert (await log.cursor(partition, group))["available_at"] == NOON + SECOND


async def test_a_cursor_that_is_leased_keeps_its_lease(log):
    partition, group = await log.partition()
    await append(log, {partition: "a"})
    poll = Poll(lease_s=30)
    await log.pop(group, poll)

    await append(log, {partition: "b"})

    cursor = await log.cursor(partition, group)
    assert cursor["available_at"] == NOON + 30 * SECOND
    assert cursor["lease_id"] == poll.lease_id


async def test_a_cursor_that_is_ready_keeps_its_place_in_line(log):
    partition, group = await log.partition()
    await append(log, {partition: "a"})
    await log.advance()

    await append(log, {partition: "b"})

    assert (await log.cursor(partition, group))["available_at"] == NOON


async def test_partitions_that_got_nothing_stay_idle(log):
    a, group = await log.partition()
    [b] = await log.provision("hive", "b")

    await append(log, {a: "a"})

    assert (await log.cursor(b, group))["available_at"] is None


async def test_a_partition_that_does_not_exist_gets_no_row(log):
    partition, _ = await log.partition()

    rows = await append(log, {partition: "a", 1_000_000: "b"})

    assert list(rows) == [partition]
    assert await log.value("select count(*) from skep.segment") == 1


@pytest.mark.parametrize(
    ("delay_s", "window_s", "hold_s"), [(0, 0, 0), (60, 0, 60), (0, 30, 30), (60, 90, 90)]
)
async def test_an_idle_cursor_is_woken_for_when_its_queue_delivers(log, delay_s, window_s, hold_s):
    partition, group = await log.partition()
    await log.set_options("hive", delayed_processing_s=delay_s, window_buffer_s=window_s)

    await append(log, {partition: "a"})

    assert (await log.cursor(partition, group))["available_at"] == NOON + hold_s * SECOND


async def test_idle_cursors_of_many_queues_are_woken_each_by_its_own_rule(log):
    slow, slow_group = await log.partition("wax")
    quick, quick_group = await log.partition("hive")
    await log.set_options("wax", delayed_processing_s=60)

    await append(log, {slow: "a", quick: "b"})

    assert await log.next_available(slow_group) == 60
    assert await log.next_available(quick_group) == 0
