from tests.sql.support.letters import Filter, bury
from tests.sql.support.log import QUEUE_MODE, envelope

QUERY = "select * from skep.list_dead_letters($1, $2, $3, $4, $5, $6, $7, $8, $9)"


async def test_a_page_begins_with_the_newest_failure_and_names_everything(log):
    [first] = await bury(log, "x")
    await log.advance()
    second, third = await bury(log, "y", "z", partition="b", error="bitten")

    page = await log.rows(QUERY, *Filter(queue="hive"), 2, 0)
    rest = await log.rows(QUERY, *Filter(queue="hive"), 2, 2)

    assert [row["id"] for row in [*page, *rest]] == [third, second, first]
    row = page[0]
    assert (row["queue_name"], row["partition_name"], row["group_name"]) == (
        "hive",
        "b",
        QUEUE_MODE,
    )
    assert (row["transaction_id"], row["message_offset"], row["error"]) == ("z", 2, "bitten")
    assert (row["failures"], row["failed_at"], row["envelope"]) == (4, log.now, envelope("z"))


async def test_a_letter_outlives_its_partition_and_loses_its_name(log):
    [letter] = await bury(log, "x")
    await log.execute("delete from skep.cursor; delete from skep.partition")

    [row] = await log.rows(QUERY, *Filter(), 10, 0)

    assert (row["id"], row["partition_name"]) == (letter, None)


async def test_a_letter_survives_the_retention_of_its_message(log):
    await bury(log, "x")
    await log.execute("delete from skep.segment")

    [row] = await log.rows(QUERY, *Filter(), 10, 0)

    assert row["envelope"] == envelope("x")
