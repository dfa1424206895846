import pytest

from tests.sql.support.spans import SpanReader

MEASURE = "select * from skep.measure_readers($1, $2)"


@pytest.fixture
def publish(log):
    async def publish(name, seen, queue="hive", keep_s=60):
        await log.value("select skep.register_reader($1, '{}', '{}')", name)
        query = "select skep.publish_progress($1, $2, null, $3::text::pg_snapshot, $4)"
        await log.value(query, name, [queue], seen, keep_s)

    return publish


async def test_a_reader_is_behind_by_what_its_position_does_not_see(log, publish):
    partition, _ = await log.partition()
    await log.push(partition, "a", "b")
    await publish("spark", await SpanReader(log).present())
    await log.push(partition, "c", "d", "e")
    await log.advance(5)

    (row,) = await log.rows(MEASURE, None, 10)

    assert (row["queue"], row["name"], row["messages"], row["seconds"]) == ("hive", "spark", 3, 5)
    assert row["is_active"]


async def test_one_that_has_seen_all_is_not_behind(log, publish):
    partition, _ = await log.partition()
    await log.push(partition, "a")
    await publish("spark", await SpanReader(log).present())
    await log.advance(61)

    (row,) = await log.rows(MEASURE, None, 10)

    assert (row["messages"], row["seconds"], row["is_active"]) == (0, 0, False)


async def test_readers_are_found_by_name_and_other_holds_are_none(log, publish):
    await log.partition()
    await publish("one", "1:1:")
    await publish("two", "1:1:")
    await log.rows("select skep.place_hold('hive', 'archive', '1:1:', 60)")

    assert [row["name"] for row in await log.rows(MEASURE, None, 10)] == ["one", "two"]
    assert [row["name"] for row in await log.rows(MEASURE, "two", 10)] == ["two"]
    assert len(await log.rows(MEASURE, None, 1)) == 1
