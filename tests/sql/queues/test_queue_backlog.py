from tests.sql.support.log import Ack, Poll

ANY_NUMBER = 1_000_000
IS_WAITING = """
select exists (select from skep.queues_waiting(array[q.id])) from skep.queue q where q.name = $1
"""


async def backlog(log, at_most=ANY_NUMBER, queue="hive"):
    query = "select skep.queue_backlog(q.id, $2) from skep.queue q where q.name = $1"
    found = await log.value(query, queue, at_most)
    assert await log.value(IS_WAITING, queue) == (found > 0)
    return found


async def test_an_empty_queue_has_no_backlog(log):
    await log.partition()

    assert await backlog(log) == 0


async def test_what_nobody_has_read_waits(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push_writes({a: "xyz", b: "uv"})

    assert await backlog(log) == 5


async def test_what_is_under_lease_still_waits_until_it_is_acknowledged(log):
    partition, group = await log.partition()
    await log.push(partition, *"wxyz")
    poll = Poll(batch=3)
    await log.pop(group, poll)
    assert await backlog(log) == 4

    await log.ack(Ack(partition, 3, poll.lease_id))

    assert await backlog(log) == 1


async def test_the_slowest_group_counts(log):
    partition, _ = await log.partition()
    quick, _ = await log.subscribe("hive", "quick"), await log.subscribe("hive", "slow")
    await log.push(partition, *"xyz")
    await log.pop(quick, Poll(auto_ack=True))

    assert await backlog(log) == 3


async def test_a_queue_read_by_named_groups_only_is_empty_when_they_are_through(log):
    [partition] = await log.provision("hive", "a")
    bees = await log.subscribe("hive", "bees")
    await log.push(partition, *"xyz")
    await log.pop(bees, Poll(auto_ack=True))

    assert await backlog(log) == 0


async def test_counting_ends_at_the_bound(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push_writes({a: "xyz", b: "uv"})

    assert [await backlog(log, bound) for bound in (1, 4, 5, 6)] == [1, 4, 5, 5]


async def test_what_retention_has_deleted_does_not_wait(log):
    partition, _ = await log.partition()
    await log.push(partition, *"wxyz")
    await log.execute("update skep.partition set tail = 4 where id = $1", partition)

    assert await backlog(log) == 1


async def test_what_is_done_ahead_of_the_cursor_does_not_wait(log):
    partition, _ = await log.partition()
    await log.push(partition, *"wxyz")
    await log.execute(
        "update skep.cursor set done = '{[2,3],[4,4]}' where partition_id = $1", partition
    )

    assert await backlog(log) == 1


async def test_without_any_group_what_is_kept_counts(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push_writes({a: "xyz", b: "uv"})
    await log.execute("delete from skep.cursor")
    await log.execute("delete from skep.consumer_group")
    await log.execute("update skep.partition set tail = 3 where id = $1", a)

    assert await backlog(log) == 3


async def test_idle_partitions_are_not_visited(log):
    partition, group = await log.partition()
    await log.execute(
        "insert into skep.partition (queue_id, name) "
        "select queue_id, n::text from skep.partition, generate_series(1, 5000) n"
    )
    await log.execute(
        "insert into skep.cursor (partition_id, group_id, queue_id) "
        "select id, $1, queue_id from skep.partition where name <> 'a'",
        group,
    )
    await log.push(partition, "x")
    async with log.connection.transaction():
        before = await rows_read(log)

        assert await backlog(log) == 1

        assert await rows_read(log) - before < 50


async def rows_read(log):
    """Return how many rows of cursors and partitions this transaction has read."""
    return await log.value(
        """
        select sum(pg_stat_get_xact_tuples_returned(c.oid)
                   + pg_stat_get_xact_tuples_fetched(c.oid))::integer
        from pg_class c join pg_index i on i.indexrelid = c.oid or i.indrelid = c.oid
        where i.indrelid in ('skep.cursor'::regclass, 'skep.partition'::regclass)
          and i.indisprimary
        """
    )
