import json

from tests.sql.support.analyses import at


async def position(log, hours):
    text = await log.value("select skep.analytics_position($1)", at(hours))
    return text and json.loads(text)


async def test_the_newest_position_that_is_surely_older_is_found(analyses, log):
    await analyses.finish(0, 1)
    await analyses.finish(1, 2)

    assert await position(log, 3) == {"run": 2}
    assert await position(log, 2.5) == {"run": 1}
    assert await position(log, 1.5) is None
