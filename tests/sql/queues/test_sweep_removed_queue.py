import pytest

from tests.sql.support.log import Ack, Poll

TABLES = ("segment", "dead_letter", "deleted_message", "cursor", "partition", "removed_queue")


@pytest.fixture(autouse=True)
def nothing_removed(arun, log):
    arun(log.execute("delete from skep.removed_queue; delete from skep.deleted_message"))


@pytest.fixture
def other(arun, open_log):
    return arun(open_log())


async def sweep(log, queue_id=None, rows=100):
    return await log.value("select skep.sweep_removed_queue($1, $2)", queue_id, rows)


async def sweep_all(log, queue_id=None, rows=100):
    """Sweep to the end and return in how many calls."""
    calls = 1
    while await sweep(log, queue_id, rows):
        calls += 1
        assert calls < 100
    return calls


async def left(log):
    return [await log.value(f"select count(*) from skep.{table}") for table in TABLES]


async def removed(log, *, partitions=3, name="hive"):
    """Make a queue that has something of everything, remove it and return its id."""
    ids = await log.provision(name, *map(str, range(partitions)))
    for partition in ids:
        await log.push(partition, "x", "y")
        await log.push(partition, "z")
    group = await log.subscribe(name)
    await log.pop(group, poll := Poll(partitions=partitions, batch=partitions))
    await log.ack(*(Ack(partition, 1, poll.lease_id, "dlq") for partition in ids))
    await log.execute("insert into skep.deleted_message values ($1, 2)", ids[0])
    return await log.value("select skep.remove_queue($1)", name)


async def test_everything_is_gone_in_the_end(log):
    queue_id = await removed(log)

    await sweep_all(log, queue_id)

    assert await left(log) == [0] * 6


async def test_a_call_deletes_no_more_than_it_may(log):
    queue_id = await removed(log)
    segments = "select count(*) from skep.segment"

    assert await sweep(log, queue_id, 2) is True
    assert await log.value(segments) == 4
    await sweep_all(log, queue_id, 2)
    assert await left(log) == [0] * 6


async def test_other_queues_keep_what_is_theirs(log):
    await log.push(*(await log.provision("wax", "a")), "x")
    await removed(log)

    await sweep_all(log)

    assert await left(log) == [1, 0, 0, 1, 1, 0]


async def test_whoever_comes_sweeps_all_removed_queues(log):
    await removed(log)
    await removed(log, name="wax")

    await sweep_all(log)

    assert await left(log) == [0] * 6


async def test_two_do_not_sweep_the_same_queue(log, other):
    queue_id = await removed(log)
    async with other.connection.transaction():
        assert await sweep(other, queue_id, 1) is True

        assert await sweep(log, queue_id) is False
        assert await sweep(log) is False


async def test_a_queue_that_was_not_removed_is_left_alone(log):
    await log.push(*(await log.provision("hive", "a")), "x")
    queue_id = await log.value("select id from skep.queue")

    assert await sweep(log, queue_id) is False
    assert (await left(log))[0] == 1
