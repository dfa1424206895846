import json

REGISTER = "select skep.register_reader($1, $2, $3::text::json)"


async def test_a_new_reader_begins_where_it_says(log):
    assert json.loads(await log.value(REGISTER, "spark", ["hive"], '{"seen":"1:1:"}')) == {
        "seen": "1:1:"
    }


async def test_a_known_reader_goes_on_where_it_was_whatever_it_says(log):
    await log.value(REGISTER, "spark", ["hive"], '{"seen":"1:1:"}')

    again = await log.value(REGISTER, "spark", ["hive", "other"], '{"seen":"9:9:"}')

    assert json.loads(again) == {"seen": "1:1:"}
    assert await log.value("select queues from skep.reader") == ["hive", "other"]
