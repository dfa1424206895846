import asyncio

from tests.sql.model.test_races import until_it_waits
from tests.sql.support.letters import Filter, bury, letter_ids

QUERY = "select skep.delete_dead_letters($1, $2, $3, $4, $5, $6, $7, $8)"


async def test_what_matches_goes_and_the_messages_stay(log):
    await bury(log, "x", "y", error="red")
    [kept] = await bury(log, "z", error="blue")

    assert await log.value(QUERY, *Filter(error="red"), 10) == 2
    assert await letter_ids(log) == [kept]
    assert await log.value("select count(*) from skep.message") == 3


async def test_no_more_than_the_limit_goes_the_oldest_first(log):
    _, _, last = await bury(log, "x", "y", "z")

    assert await log.value(QUERY, *Filter(), 2) == 2
    assert await letter_ids(log) == [last]
    assert await log.value(QUERY, *Filter(), 2) == 1


async def test_who_comes_second_deletes_nothing(log, open_log):
    await bury(log, "x")
    other = await open_log()
    transaction = log.connection.transaction()
    await transaction.start()
    await log.value(QUERY, *Filter(), 10)

    async with asyncio.timeout(60):
        late = asyncio.create_task(other.value(QUERY, *Filter(), 10))
        await until_it_waits(log, late, other)
        await transaction.commit()
        assert await late == 0
