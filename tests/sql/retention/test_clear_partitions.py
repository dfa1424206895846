import pytest

from tests.sql.model.test_races import waiting
from tests.sql.support.log import Ack, Poll


@pytest.fixture
def other(arun, open_log):
    return arun(open_log())


@pytest.fixture
def observer(arun, open_log):
    return arun(open_log())


async def clear(log, start="", upto=None, *, alone=False, partitions=10, segments=100):
    queue_id = await log.value("select id from skep.queue where name = 'hive'")
    row = await log.row(
        "select * from skep.clear_partitions($1, $2, $3, $4, $5, $6)",
        queue_id,
        start,
        upto,
        alone,
        partitions,
        segments,
    )
    assert row["is_held"] is False
    return tuple(row)[:-1]


async def filled(log, *names):
    partitions = await log.provision("hive", *names)
    for partition in sorted(partitions):
        await log.push(partition, "x")
        await log.push(partition, "y")
    return partitions


async def kept(log):
    rows = await log.rows(
        "select p.name, p.head - p.tail + 1 from skep.partition p where p.head >= p.tail"
    )
    return dict(map(tuple, rows))


async def test_all_partitions_are_cleared(log):
    await filled(log, "a", "b", "c")

    assert await clear(log) == (3, 6, None, None)
    assert await kept(log) == {}


async def test_a_portion_tells_where_to_go_on(log):
    await filled(log, "c", "a", "b")

    assert await clear(log, partitions=2) == (2, 4, "c", None)
    assert await kept(log) == {"c": 2}
    assert await clear(log, "c", partitions=2) == (1, 2, None, None)


async def test_a_portion_may_end_inside_a_partition(log):
    await filled(log, "a", "b")

    assert await clear(log, segments=3) == (1, 3, "b", 2)
    assert await kept(log) == {"b": 1}
    assert await clear(log, "b", 2, segments=3) == (1, 1, None, None)


async def test_one_partition_alone(log):
    await filled(log, "a", "ab")

    assert await clear(log, "a", alone=True) == (1, 2, None, None)
    assert await kept(log) == {"ab": 2}


async def test_a_partition_that_does_not_exist_is_not_mistaken_for_the_next(log):
    await filled(log, "ab")

    assert await clear(log, "a", alone=True) == (0, 0, None, None)
    assert await kept(log) == {"ab": 2}


async def test_a_queue_without_partitions_is_clear(log):
    await log.value("select skep.ensure_queue('hive')")

    assert await clear(log) == (0, 0, None, None)


async def test_a_push_in_flight_is_waited_for_and_cleared_as_well(log, other, observer):
    [partition] = await filled(log, "a")
    async with other.connection.transaction():
        await other.push(partition, "z")
        async with waiting(observer, log, clear(log)) as task:
            await other.execute("commit; begin")

    assert await task == (1, 3, None, None)
    assert await kept(log) == {}


async def test_an_ack_of_partitions_in_the_order_of_ids_is_waited_for_without_a_deadlock(
    log, other, observer
):
    [first] = await filled(log, "z")
    [second] = await filled(log, "a")  # by name they come the other way round
    group = await log.subscribe()
    await log.pop(group, poll := Poll(partitions=2))
    async with other.connection.transaction():
        await other.ack(Ack(first, 1, poll.lease_id))
        async with waiting(observer, log, clear(log)):
            await other.execute("set local lock_timeout = '5s'")
            assert await other.outcomes(Ack(second, 1, poll.lease_id)) == ["acked"]
            await other.execute("commit; begin")

    assert await kept(log) == {}


async def place_hold(log, position="null"):
    await log.row(f"select * from skep.place_hold('hive', 'spark', {position}, 60)")


async def held(log, start="", *, alone=False):
    query = """
        select c.* from skep.queue q, skep.clear_partitions(q.id, $1, null, $2, 10, 100) c
        where q.name = 'hive'
        """
    return tuple(await log.row(query, start, alone))


async def test_nothing_is_cleared_while_a_reader_outside_needs_some_of_it(log):
    partition, _ = await filled(log, "a", "b")
    await place_hold(log)
    await log.push(partition, "z")

    assert await held(log) == (0, 0, None, None, True)
    assert await held(log, "a", alone=True) == (0, 0, None, None, True)
    assert await kept(log) == {"a": 3, "b": 2}


async def test_what_all_readers_outside_have_is_cleared(log):
    partition, _ = await filled(log, "a", "b")
    await place_hold(log)
    assert await clear(log, "b", alone=True) == (1, 2, None, None)
    await log.push(partition, "z")
    await place_hold(log)

    assert await clear(log) == (2, 3, None, None)


async def test_a_hold_that_lapsed_keeps_nothing(log):
    await filled(log, "a")
    await place_hold(log, "'1:1:'")
    await log.advance(61)

    assert await clear(log) == (1, 2, None, None)
