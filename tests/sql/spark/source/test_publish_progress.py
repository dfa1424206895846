import json

import pytest

PUBLISH = "select skep.publish_progress($1, $2, $3::text::json, $4::text::pg_snapshot, $5)"


@pytest.fixture(autouse=True)
def reader(log, arun):
    async def register():
        await log.partition("hive")
        await log.partition("other")
        query = "select skep.register_reader('spark', '{hive}', $1::text::json)"
        await log.value(query, '{"seen":"1:1:"}')

    arun(register())


async def holds(log):
    query = "select q.name, h.position::text, h.keep_s from skep.hold h join skep.queue q"
    return [tuple(row) for row in await log.rows(f"{query} on q.id = h.queue_id order by q.name")]


async def position(log):
    return json.loads(await log.value("select position from skep.reader"))


async def test_progress_is_on_record_and_the_rest_is_held_in_every_queue(log):
    held = await log.value(PUBLISH, "spark", ["hive", "other"], '{"seen":"5:5:"}', "5:5:", 60)

    assert held == 2
    assert await holds(log) == [("hive", "5:5:", 60), ("other", "5:5:", 60)]
    assert await position(log) == {"seen": "5:5:"}


async def test_without_a_position_only_the_hold_is_renewed(log):
    await log.value(PUBLISH, "spark", ["hive"], None, "5:5:", 60)

    assert await holds(log) == [("hive", "5:5:", 60)]
    assert await position(log) == {"seen": "1:1:"}


async def test_a_queue_that_is_gone_is_passed_over(log):
    assert await log.value(PUBLISH, "spark", ["gone", "hive"], None, "5:5:", 60) == 1


async def test_retention_keeps_what_the_reader_has_not_seen(log):
    query = "select skep.held_from((select id from skep.queue where name = 'hive'))::text"
    await log.value(PUBLISH, "spark", ["hive"], None, "5:9:5", 60)

    assert await log.value(query) == "5"
    await log.advance(61)
    assert int(await log.value(query)) > 2**60
