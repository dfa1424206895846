import pytest

from tests.sql.model.test_races import waiting
from tests.sql.support.log import Ack, Poll


@pytest.fixture
def other(arun, open_log):
    return arun(open_log())


@pytest.fixture
def observer(arun, open_log):
    return arun(open_log())


async def drop(log, *partitions):
    await log.value("select skep.drop_partitions($1)", list(partitions))


async def partitions_in(log, table, column="partition_id"):
    rows = await log.rows(f"select distinct {column} from skep.{table}")
    return {row[0] for row in rows}


async def test_everything_of_the_partitions_goes_and_nothing_else(log):
    gone, kept = await log.provision("hive", "a", "b")
    await log.push_writes({gone: "xy", kept: "xy"})
    await log.pop(await log.subscribe(), poll := Poll(partitions=2))
    await log.ack(*(Ack(partition, 1, poll.lease_id, "dlq") for partition in (gone, kept)))
    await log.execute("delete from skep.deleted_message")
    await log.execute("insert into skep.deleted_message values ($1, 2), ($2, 2)", gone, kept)

    await drop(log, gone)

    for table in ("segment", "cursor", "dead_letter", "deleted_message"):
        assert await partitions_in(log, table) == {kept}
    assert await partitions_in(log, "partition", "id") == {kept}


async def test_a_push_in_flight_is_waited_for_and_leaves_nothing(log, other, observer):
    partition, _ = await log.partition()
    async with other.connection.transaction():
        await other.push(partition, "x")
        async with waiting(observer, log, drop(log, partition)):
            await other.execute("commit; begin")

    assert await partitions_in(log, "segment") == set()


async def test_an_ack_in_flight_is_waited_for_and_leaves_no_dead_letter(log, other, observer):
    partition, group = await log.partition()
    await log.push(partition, "x")
    await log.pop(group, poll := Poll())
    async with other.connection.transaction():
        await other.ack(Ack(partition, 1, poll.lease_id, "dlq"))
        async with waiting(observer, log, drop(log, partition)):
            await other.execute("commit; begin")

    assert await log.dead_letters() == []


async def test_a_push_that_comes_too_late_finds_no_partition(log, other, observer):
    partition, _ = await log.partition()
    async with other.connection.transaction():
        await drop(other, partition)
        async with waiting(observer, log, log.push_writes({partition: ["x"]})) as task:
            await other.execute("commit; begin")

    assert await task == []
