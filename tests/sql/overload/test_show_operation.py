import json
from uuid import uuid4

from tests.sql.support.operating import carry_out, defer

CALL = "select * from skep.show_operation($1)"


async def test_one_that_waits_has_a_place(log):
    a, b = await log.provision("hive", "a", "b")
    await defer(log, a)
    await defer(log, b)
    second = await defer(log, a, "x", "y")

    row = await log.row(CALL, second)

    assert [row["status"], row["queue_position"], row["waiting"]] == ["waiting", 2, 3]
    assert [row["queue"], row["partition"], row["item_count"]] == ["hive", "a", 2]
    assert json.loads(row["items"]) == [[0, "x", None], [1, "y", None]]


async def test_one_that_is_done_has_an_answer_and_no_place(log):
    [a] = await log.provision("hive", "a")
    only = await defer(log, a, "x")
    await carry_out(log)

    row = await log.row(CALL, only)

    assert [row["status"], row["queue_position"]] == ["completed", None]
    assert json.loads(row["answer"]) == [[1, False]]


async def test_an_unknown_one_has_no_row(log):
    assert await log.row(CALL, uuid4()) is None
