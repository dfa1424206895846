from tests.sql.support.letters import bury
from tests.sql.support.log import QUEUE_MODE

QUERY = "select * from skep.letters_of_message($1, $2, $3)"


async def test_every_group_has_its_own_the_newest_failure_first(log):
    [first] = await bury(log, "x")
    partition, _ = await log.partition()
    group = await log.subscribe("hive", "g")
    await log.advance()
    await log.execute(
        "select skep.bury_messages($1, $2, '{1}', '{late}', '{1}', skep.now())",
        partition,
        group,
    )

    rows = await log.rows(QUERY, partition, 1, None)

    assert [row["group_name"] for row in rows] == ["g", QUEUE_MODE]
    assert [row["id"] for row in await log.rows(QUERY, partition, 1, QUEUE_MODE)] == [first]
    assert await log.rows(QUERY, partition, 2, None) == []
