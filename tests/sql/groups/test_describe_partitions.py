from tests.sql.support.log import Ack, Poll

DESCRIBE = "select * from skep.describe_partitions($1, $2, $3)"


async def names(log, groups, limit, offset):
    rows = await log.rows(DESCRIBE, groups, limit, offset)
    return [(row["group_id"], row["partition_name"]) for row in rows]


async def test_partitions_come_group_by_group_and_by_name(log):
    await log.provision("hive", "b", "a")
    await log.provision("wax", "c")
    hive, wax = await log.subscribe("hive", "bees"), await log.subscribe("wax", "bees")

    assert await names(log, [wax, hive], 10, 0) == [(wax, "c"), (hive, "a"), (hive, "b")]


async def test_a_page_runs_over_the_borders_of_groups(log):
    await log.provision("hive", "a", "b")
    await log.provision("nest", "n")
    await log.provision("wax", "c", "d")
    hive, nest, wax = [await log.subscribe(queue, "bees") for queue in ("hive", "nest", "wax")]
    everything = [(hive, "a"), (hive, "b"), (nest, "n"), (wax, "c"), (wax, "d")]

    pages = [await names(log, [hive, nest, wax], 2, offset) for offset in range(6)]

    assert pages == [everything[offset : offset + 2] for offset in range(6)]


async def test_a_partition_is_shown_as_it_stands(log):
    partition, group = await log.partition()
    await log.push(partition, "x", "y", "z")
    taken = Poll(batch=2)
    await log.pop(group, taken)
    await log.ack(Ack(partition, 1, taken.lease_id))
    await log.advance(20)

    [shown] = await log.rows(DESCRIBE, [group], 10, 0)

    assert (shown["head"], shown["tail"], shown["acked"], shown["backlog"]) == (3, 1, 1, 2)
    assert (shown["lag_s"], shown["lease_id"], shown["failing"]) == (20, taken.lease_id, 0)


async def test_a_failed_message_is_counted_and_an_ended_lease_not_shown(log):
    partition, group = await log.partition()
    await log.push(partition, "x")
    taken = Poll()
    await log.pop(group, taken)
    await log.ack(Ack(partition, 1, taken.lease_id, "failed"))

    [shown] = await log.rows(DESCRIBE, [group], 10, 0)

    assert (shown["failing"], shown["lease_id"]) == (1, None)


async def test_a_cursor_that_retention_passed_stands_at_the_tail(log):
    partition, group = await log.partition()
    await log.push(partition, "x", "y")
    await log.advance(60)
    await log.push(partition, "z")
    await log.execute("update skep.partition set tail = 3")
    await log.execute("delete from skep.segment where first < 3")

    [shown] = await log.rows(DESCRIBE, [group], 10, 0)

    assert (shown["acked"], shown["backlog"], shown["lag_s"]) == (2, 1, 0)


async def test_a_partition_without_a_backlog_has_no_lag(log):
    partition, group = await log.partition()
    await log.push(partition, "x")
    await log.pop(group, Poll(auto_ack=True))
    await log.advance(60)

    [shown] = await log.rows(DESCRIBE, [group], 10, 0)

    assert (shown["backlog"], shown["lag_s"]) == (0, 0)
