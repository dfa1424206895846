from skep.model.ids import OFFSET_MAX
from tests.sql.support.letters import Filter, redrive
from tests.sql.support.log import QUEUE_MODE
from tests.sql.support.staging import names_in

BURY = "select skep.bury_staged($1, 0, '{1}', $2, $3, $4, skep.now())"
LIST = "select * from skep.list_dead_letters($1, $2, $3, $4, $5, $6, $7, 10, 0)"


async def bury(staging):
    ids, queues, partitions, _ = await staging.partitions()
    return await staging.log.value(BURY, staging.write_id, ids, queues, partitions)


async def test_a_reject_is_a_dead_letter_of_queue_mode_with_its_reason(log, staging):
    await staging.reject("x", "too bitter")
    await staging.reject("y", "too sweet", queue="other", partition="b")

    assert await bury(staging) == 2

    newest, oldest = await log.rows(LIST, *Filter())
    assert (oldest["transaction_id"], oldest["error"], oldest["failures"]) == ("x", "too bitter", 0)
    assert (newest["queue_name"], newest["partition_name"]) == ("other", "b")
    assert {row["group_name"] for row in (newest, oldest)} == {QUEUE_MODE}
    assert oldest["created_at"] == oldest["failed_at"] == log.now


async def test_its_offset_is_one_that_no_message_has(log, staging):
    await staging.reject("x")
    await staging.reject("x")

    await bury(staging)

    rows = await log.rows("select distinct message_offset from skep.dead_letter")
    assert len(rows) == 2
    assert all(1 << 61 <= row["message_offset"] <= OFFSET_MAX for row in rows)


async def test_it_can_be_redriven_like_any_other(log, staging):
    partition, _ = await log.partition()
    await staging.reject("x")
    await bury(staging)
    letter = await log.value("select id from skep.dead_letter")

    moved = await redrive(log, {letter: partition})

    assert moved[letter].result == "moved"
    assert await names_in(log) == [f"dlq:{letter}"]
