import pytest

from tests.sql.support.log import body_of, envelope
from tests.sql.support.spans import EVERYTHING, SpanReader, address


@pytest.fixture
def reader(log):
    return SpanReader(log)


async def test_segments_come_with_their_names_and_contents(log, reader):
    partition, _ = await log.partition()
    [other] = await log.provision("hive", "b")
    await log.push_writes({partition: ["x"], other: ["y"]})
    await log.push(partition, "z")

    rows = await reader.call("read_span", EVERYTHING, None)

    found = {(row["partition_id"], row["first"]): tuple(row)[3:] for row in rows}
    assert found == {
        (partition, 1): (1, "hive", "a", log.now, body_of([envelope("x")])),
        (other, 1): (1, "hive", "b", log.now, body_of([envelope("y")])),
        (partition, 2): (2, "hive", "a", log.now, body_of([envelope("z")])),
    }


async def test_it_reads_what_the_bounds_say(log, reader):
    partition, _ = await log.partition()
    await log.push(partition, "a")
    await log.push(partition, "b")

    rows = await reader.call("read_span", EVERYTHING, None, after=await address(log, partition, 1))

    assert [row["first"] for row in rows] == [2]


async def test_names_that_nobody_asks_for_are_not_looked_up(log, reader):
    await log.partition()

    plan = await log.rows(
        "explain select first, body from skep.read_span('{1}', null, '1:1:', '9:9:', null, null,"
        " null, null)"
    )

    assert not any("on partition" in line or "on queue" in line for (line,) in plan), plan
