import pytest

from tests.sql.model.test_races import waiting
from tests.sql.support.log import Ack, Poll


@pytest.fixture
def other(arun, open_log):
    return arun(open_log())


@pytest.fixture
def observer(arun, open_log):
    return arun(open_log())


async def drop(log, *lanes):
    await log.value("select skep.drop_lanes($1)", list(lanes))


async def lanes_in(log, table, column="partition_id"):
    rows = await log.rows(f"select distinct {column} from skep.{table}")
    return {row[0] for row in rows}


async def test_everything_of_the_lanes_goes_and_nothing_else(log):
    gone, kept = await log.provision("hive", "a", "b")
    await log.push_lots({gone: "xy", kept: "xy"})
    await log.pop(await log.subscribe(), poll := Poll(lanes=2))
    await log.ack(*(Ack(lane, 1, poll.lease_id, "dlq") for lane in (gone, kept)))
    await log.execute("delete from skep.deleted_message")
    await log.execute("insert into skep.deleted_message values ($1, 2), ($2, 2)", gone, kept)

    await drop(log, gone)

    for table in ("segment", "cursor", "dead_letter", "deleted_message"):
        assert await lanes_in(log, table) == {kept}
    assert await lanes_in(log, "partition", "id") == {kept}


async def test_a_push_in_flight_is_waited_for_and_leaves_nothing(log, other, observer):
    lane, _ = await log.lane()
    async with other.connection.transaction():
        await other.push(lane, "x")
        async with waiting(observer, log, drop(log, lane)):
            await other.execute("commit; begin")

    assert await lanes_in(log, "segment") == set()


async def test_an_ack_in_flight_is_waited_for_and_leaves_no_dead_letter(log, other, observer):
    lane, group = await log.lane()
    await log.push(lane, "x")
    await log.pop(group, poll := Poll())
    async with other.connection.transaction():
        await other.ack(Ack(lane, 1, poll.lease_id, "dlq"))
        async with waiting(observer, log, drop(log, lane)):
            await other.execute("commit; begin")

    assert await log.dead_letters() == []


async def test_a_push_that_comes_too_late_finds_no_lane(log, other, observer):
    lane, _ = await log.lane()
    async with other.connection.transaction():
        await drop(other, lane)
        async with waiting(observer, log, log.push_lots({lane: ["x"]})) as task:
            await other.execute("commit; begin")

    assert await task == []
