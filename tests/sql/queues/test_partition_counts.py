from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sql.support.log import Ack, Poll


async def counts(log, *partitions):
    rows = await log.rows(
        "select * from skep.partition_counts($1) order by array_position($1, id)", list(partitions)
    )
    names = ("total", "pending", "processing", "failed")
    return [tuple(row[name] for name in names) for row in rows]


async def test_nobody_has_consumed_so_everything_is_pending(log):
    full, empty = await log.provision("hive", "a", "b")
    await log.push(full, "x", "y")

    assert await counts(log, full, empty) == [(2, 2, 0, 0), (0, 0, 0, 0)]


async def test_a_partition_that_does_not_exist_has_no_row(log):
    partition, _ = await log.partition()

    assert len(await counts(log, partition, partition + 1000)) == 1


async def test_a_lease_counts_until_it_expires(log):
    partition, group = await log.partition()
    await log.push(partition, "x", "y", "z")
    await log.pop(group, Poll(batch=2, lease_s=60))

    during = await counts(log, partition)
    await log.advance(61)

    assert during == [(3, 3, 2, 0)]
    assert await counts(log, partition) == [(3, 3, 0, 0)]


async def test_queue_mode_counts_beside_named_groups_once_it_was_polled(log):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "x", "y", "z")
    named = await log.subscribe("hive", "bees")
    await log.pop(named, Poll(batch=2, auto_ack=True))
    by_the_named_group = await counts(log, partition)
    await log.pop(await log.subscribe(), Poll(batch=1, lease_s=60))

    assert by_the_named_group == [(3, 1, 0, 0)]
    assert await counts(log, partition) == [(3, 3, 1, 0)]


async def test_the_slowest_of_the_named_groups_decides(log):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "x", "y", "z")
    for name, batch in (("fast", 3), ("slow", 1), ("medium", 2)):
        await log.pop(await log.subscribe("hive", name), Poll(batch=batch, auto_ack=True))

    assert await counts(log, partition) == [(3, 2, 0, 0)]


async def test_what_two_groups_lease_is_counted_once_and_what_they_answered_is_not(log):
    [partition] = await log.provision("hive", "a")
    await log.set_options("hive", ack_mode="individual")
    await log.push(partition, *"uvwxyz")
    for name, batch, statuses in (("one", 2, ["completed"]), ("two", 4, ["completed", "failed"])):
        poll = Poll(batch=batch, lease_s=60)
        await log.pop(await log.subscribe("hive", name), poll)
        for offset, status in enumerate(statuses, 1):
            await log.ack(Ack(partition, offset, poll.lease_id, status, group=name))

    assert await counts(log, partition) == [(6, 5, 3, 0)]


async def test_what_failed_and_comes_again_is_counted(log):
    partition, group = await log.partition()
    await log.push(partition, "x", "y")
    [segment] = await log.pop(group, poll := Poll(lease_s=60))
    await log.ack(Ack(segment.partition_id, 1, poll.lease_id, "failed"))

    assert await counts(log, partition) == [(2, 2, 0, 1)]


async def test_what_retention_took_is_neither_kept_nor_pending(log):
    partition, _ = await log.partition()
    await log.push(partition, "x", "y", "z")
    await log.execute("update skep.partition set tail = 3")

    assert await counts(log, partition) == [(1, 1, 0, 0)]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    head=st.integers(0, 12),
    tail=st.integers(1, 12),
    acked=st.integers(0, 12),
    done=st.sets(st.integers(1, 12)),
    deleted=st.sets(st.integers(1, 12)),
)
def test_the_figures_are_those_of_counting_message_by_message(
    log, arun, head, tail, acked, done, deleted
):
    tail, acked = min(tail, head + 1), min(acked, head)
    deleted = {offset for offset in deleted if tail <= offset <= head}
    done = {offset for offset in done | deleted if acked < offset <= head}

    async def measure():
        await log.clear()
        partition, _ = await log.partition()
        await log.execute("delete from skep.deleted_message")
        await log.execute("update skep.partition set head = $1, tail = $2", head, tail)
        await log.execute(
            """
            update skep.cursor set acked = $1, done = (
              select range_agg(int8range(at, at + 1)) from unnest($2::bigint[]) at)
            """,
            acked,
            list(done),
        )
        await log.execute(
            "insert into skep.deleted_message select $1, at from unnest($2::bigint[]) at",
            partition,
            list(deleted),
        )
        return await counts(log, partition)

    kept = set(range(tail, head + 1))
    pending = {offset for offset in kept if offset > acked} - done
    assert arun(measure()) == [(len(kept - deleted), len(pending), 0, 0)]


async def test_what_a_removed_group_left_behind_does_not_count(log):
    [partition] = await log.provision("hive", "a")
    ants = await log.subscribe("hive", "ants")
    bees = await log.subscribe("hive", "bees")
    await log.push(partition, "x", "y")
    await log.pop(ants, Poll(auto_ack=True))

    before = await counts(log, partition)
    await log.value("select skep.forget_group($1)", bees)

    assert (before, await counts(log, partition)) == ([(2, 2, 0, 0)], [(2, 0, 0, 0)])
