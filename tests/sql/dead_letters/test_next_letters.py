from tests.sql.support.letters import Filter, bury
from tests.sql.support.log import envelope

QUERY = "select * from skep.next_letters($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"


async def test_a_walk_by_id_sees_every_letter_once_and_none_that_came_later(log):
    ids = await bury(log, *"abcde")
    await bury(log, "late")
    position, seen = 0, []

    while rows := await log.rows(QUERY, *Filter(queue="hive"), position, ids[-1], 2):
        seen += [row["id"] for row in rows]
        position = seen[-1]

    assert seen == ids


async def test_a_letter_comes_with_all_it_takes_to_move_it(log):
    [letter] = await bury(log, "x", partition="p")

    [row] = await log.rows(QUERY, *Filter(), 0, letter, 10)

    assert tuple(row) == (letter, "hive", "p", envelope("x"))


async def test_a_partition_that_is_gone_has_no_name(log):
    [letter] = await bury(log, "x")
    await log.execute("delete from skep.cursor; delete from skep.partition")

    [row] = await log.rows(QUERY, *Filter(), 0, letter, 10)

    assert row["partition_name"] is None
