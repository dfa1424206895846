from datetime import datetime, timedelta

import asyncpg
import pytest

from skep.broker.pop.tail import Position
from skep.model.errors import BadRequest
from tests.sql.support.log import NOON

NOTHING_SEEN = "1:1:"
EVER = datetime.min.replace(tzinfo=NOON.tzinfo)


class Tail:
    """The new ranges by partition, and where the next look starts."""

    def __init__(self, rows):
        self.until = rows[0]["until"]
        self.ranges = {
            row["partition_name"]: (row["first"], row["last"])
            for row in rows
            if row["partition_id"] is not None
        }


@pytest.fixture
def queue_id(arun, log):
    async def create():
        await log.provision("hive", "a", "b")
        return await log.value("select id from skep.queue where name = 'hive'")

    return arun(create())


async def look(log, queue_id, after=NOTHING_SEEN, until=None, since=EVER):
    query = "select * from skep.plan_tail($1, $2, $3, $4)"
    return Tail(await log.rows(query, queue_id, after, until, since))


async def partitions(log):
    return await log.provision("hive", "a", "b")


async def test_from_the_beginning_everything_is_new(log, queue_id):
    a, b = await partitions(log)
    await log.push(a, "1", "2")
    await log.push(a, "3")
    await log.push(b, "1")

    assert (await look(log, queue_id)).ranges == {"a": (1, 3), "b": (1, 1)}


async def test_between_two_looks_only_what_came_meanwhile_is_new(log, queue_id):
    a, b = await partitions(log)
    await log.push(a, "1", "2")
    before = await look(log, queue_id)
    await log.push(a, "3")
    await log.push(b, "1")
    after = await look(log, queue_id, before.until)

    assert after.ranges == {"a": (3, 3), "b": (1, 1)}
    assert (await look(log, queue_id, after.until)).ranges == {}


async def test_a_span_can_be_planned_again(log, queue_id):
    a, b = await partitions(log)
    start = await look(log, queue_id)
    await log.push(a, "1")
    end = await look(log, queue_id, start.until)
    await log.push(a, "2")
    await log.push(b, "1")

    again = await look(log, queue_id, start.until, end.until)

    assert again.ranges == end.ranges == {"a": (1, 1)}


async def test_a_push_that_commits_late_is_not_passed_over(log, queue_id, open_log):
    a, b = await partitions(log)
    late = await open_log()
    await late.execute("begin")
    await late.push(a, "late")
    await log.push(b, "early")
    before = await look(log, queue_id)
    await late.execute("commit")

    assert before.ranges == {"b": (1, 1)}
    assert (await look(log, queue_id, before.until)).ranges == {"a": (1, 1)}


async def test_a_push_that_is_rolled_back_never_appears(log, queue_id, open_log):
    a, _ = await partitions(log)
    other = await open_log()
    await other.execute("begin")
    await other.push(a, "never")
    before = await look(log, queue_id)
    await other.execute("rollback")
    await log.push(a, "real")

    assert (await look(log, queue_id, before.until)).ranges == {"a": (1, 1)}


async def test_a_time_leaves_out_what_is_older(log, queue_id):
    a, b = await partitions(log)
    await log.push(a, "1")
    await log.push(b, "1")
    await log.advance(60)
    await log.push(a, "2")

    found = await look(log, queue_id, since=NOON + timedelta(seconds=60))

    assert found.ranges == {"a": (2, 2)}


async def test_other_queues_are_left_out(log, queue_id):
    [other] = await log.provision("other", "a")
    await log.push(other, "1")

    assert (await look(log, queue_id)).ranges == {}


@pytest.mark.parametrize(
    "snapshot",
    ["1:1:", "5:5:", "5:9:5,7", "5:9:8", "0:1:", "2:1:", "1:3:3", "2:4:1", "1:9:3,2"],
)
async def test_the_broker_and_the_database_agree_on_what_a_snapshot_is(log, snapshot):
    async def is_taken():
        try:
            await log.value("select $1::text::pg_snapshot::text", snapshot)
        except asyncpg.InvalidTextRepresentationError:
            return False
        return True

    def is_accepted():
        try:
            Position.parse(f"{snapshot}~1:1:~0~0")
        except BadRequest:
            return False
        return True

    assert is_accepted() == await is_taken()


async def test_a_queue_that_is_gone_has_no_row(log, queue_id):
    [partition, _] = await partitions(log)
    await log.push(partition, "1")
    await log.value("select skep.remove_queue('hive')")

    query = "select * from skep.plan_tail($1, $2, null, $3)"
    assert await log.rows(query, queue_id, NOTHING_SEEN, EVER) == []
