import pytest

from tests.sql.support.log import Poll


async def counts(log, queues, partitions_max=100, sample=50, is_sum=False):
    rows = await log.rows(
        "select * from skep.count_messages($1, $2, $3, $4)", queues, partitions_max, sample, is_sum
    )
    return {row["queue_id"]: row for row in rows}


async def queue_of(log, name, partitions, messages):
    """Create a queue whose partitions hold so many messages each and return its id."""
    queue_id = await log.value("select skep.ensure_queue($1)", name)
    await log.execute(
        """
        insert into skep.partition (queue_id, name, head)
        select $1, n::text, $3 from generate_series(1, $2) n
        """,
        queue_id,
        partitions,
        messages,
    )
    return queue_id


async def test_queues_are_summed_up_partition_by_partition(log):
    first, second = await log.provision("hive", "a", "b")
    await log.push_writes({first: "xyz", second: "x"})
    await log.pop(await log.subscribe(), Poll(partitions=2, batch=2, auto_ack=True))
    queue_id = await log.value("select id from skep.queue")

    found = (await counts(log, [queue_id]))[queue_id]

    assert [found["partitions"], found["total"], found["is_estimate"]] == [2, 4, False]
    assert found["pending"] == 2


async def test_an_empty_queue_has_a_row_as_well(log):
    queue_id = await log.value("select skep.ensure_queue('hive')")

    found = (await counts(log, [queue_id]))[queue_id]

    assert list(found) == [queue_id, 0, 0, 0, 0, 0, 0, False]


async def test_a_large_queue_is_extrapolated_and_says_so(log):
    large = await queue_of(log, "hive", 5_000, 4)

    found = (await counts(log, [large]))[large]

    assert [found["partitions"], found["is_estimate"]] == [5_000, True]
    assert [found["total"], found["pending"]] == [20_000, 20_000]


async def test_a_large_queue_does_not_make_small_ones_vague(log):
    large = await queue_of(log, "hive", 1_000, 4)
    small = await queue_of(log, "wax", 60, 7)

    found = await counts(log, [large, small])

    assert [found[large]["is_estimate"], found[small]["is_estimate"]] == [True, False]
    assert found[small]["total"] == 420


async def test_the_limit_is_for_all_queues_together(log):
    queues = [await queue_of(log, f"hive-{number}", 60, 1) for number in range(3)]

    found = await counts(log, queues)

    assert sorted(row["is_estimate"] for row in found.values()) == [False, True, True]
    assert {row["total"] for row in found.values()} == {60}


async def test_for_a_sum_that_is_vague_anyway_nothing_is_counted_one_by_one(log):
    large = await queue_of(log, "hive", 1_000, 4)
    small = await queue_of(log, "wax", 60, 7)

    alone = await counts(log, [small], is_sum=True)
    together = await counts(log, [large, small], is_sum=True)

    assert alone[small]["is_estimate"] is False
    assert together[small]["is_estimate"] is True


@pytest.mark.parametrize("partitions_max", [0, 100])
async def test_dead_letters_are_counted_and_not_extrapolated(log, partitions_max):
    partition, group = await log.partition()
    queue_id = await log.value("select id from skep.queue")
    await log.execute(
        """
        insert into skep.dead_letter (
          partition_id, group_id, queue_id, message_offset, transaction_id, envelope, error,
          failures, created_at, failed_at)
        select $1, $2, $3, n, '', '{}', '', 1, skep.now(), skep.now() from generate_series(1, 3) n
        """,
        partition,
        group,
        queue_id,
    )

    assert (await counts(log, [queue_id], partitions_max))[queue_id]["dead_letters"] == 3
