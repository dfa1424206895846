from tests.sql.support.letters import bury, redrive
from tests.sql.support.log import envelope

QUERY = "select * from skep.describe_letter($1)"


async def test_a_dead_letter_has_an_envelope_and_went_nowhere(log):
    [letter] = await bury(log, "x")

    row = await log.row(QUERY, letter)

    assert (row["queue_name"], row["partition_name"]) == ("hive", "a")
    assert (row["envelope"], row["redriven_at"]) == (envelope("x"), None)


async def test_a_redriven_letter_tells_where_its_message_went(log):
    [letter] = await bury(log, "x", error="stung")
    [target] = await log.provision("spare", "z")
    await redrive(log, {letter: target})

    row = await log.row(QUERY, letter)

    assert (row["queue_name"], row["error"], row["envelope"]) == ("hive", "stung", None)
    assert (row["redriven_at"], row["to_partition_id"], row["to_offset"]) == (log.now, target, 1)


async def test_what_never_was_is_not_found(log):
    assert await log.rows(QUERY, 1 << 50) == []
