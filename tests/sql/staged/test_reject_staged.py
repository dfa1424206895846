import json
import os

import asyncpg
import pytest

from tests.sql.support.enqueued import stage, staged, staged_ids, stored
from tests.sql.support.log import Poll, envelope


async def reject(log, partition, ids, *names):
    return await log.value(
        "select skep.reject_staged($1, $2, $3, $4, $5)",
        partition,
        ids,
        [os.urandom(16) for _ in names],
        [envelope(name, data='"\\u0000"').encode() for name in names],
        [f"{name} is bad" for name in names],
    )


async def test_messages_become_dead_letters_with_the_reason(log):
    [partition] = await log.provision("hive", "a")
    await stage(log, "x", "y")

    assert await reject(log, partition, await staged_ids(log), "x", "y") == 2

    x, y = await log.dead_letters()
    assert (x["transaction_id"], x["error"], x["failures"]) == ("x", "x is bad", 0)
    assert json.loads(x["envelope"])["data"] == "\0"
    assert (x["partition_id"], x["message_offset"], y["message_offset"]) == (partition, 1, 2)
    assert (await staged(log), await stored(log)) == ([], [])
    group = await log.value("select name from skep.consumer_group where id = $1", x["group_id"])
    assert group == "__QUEUE_MODE__"


async def test_consumers_pass_them_by(log):
    partition, group = await log.partition()
    await log.push(partition, "one")
    await stage(log, "x")
    await reject(log, partition, await staged_ids(log), "x")
    await log.push(partition, "two")

    taken = await log.pop(group, Poll())

    assert [(each.offset, each.transaction_id) for each in taken.messages] == [
        (1, "one"),
        (3, "two"),
    ]


async def test_a_partition_with_nothing_else_stays_idle(log):
    partition, group = await log.partition()
    await log.pop(group)
    await stage(log, "x")

    await reject(log, partition, await staged_ids(log), "x")

    cursor = await log.cursor(partition, group)
    assert (cursor["acked"], cursor["available_at"], cursor["done"]) == (1, None, None)
    assert (await log.pop(group, Poll())).messages == []


async def test_what_another_session_has_taken_is_left_to_it(log):
    [partition] = await log.provision("hive", "a")
    await stage(log, "x")
    ids = await staged_ids(log)
    await log.value("select skep.drop_staged($1)", ids)

    assert await reject(log, partition, ids, "x") is None
    assert await log.dead_letters() == []


async def test_a_partition_that_is_gone_stops_it_and_nothing_is_lost(log):
    await stage(log, "x")

    with pytest.raises(asyncpg.PostgresError, match="deleted meanwhile") as refusal:
        await reject(log, 999_999, await staged_ids(log), "x")

    assert refusal.value.sqlstate == "SK409"
    assert await staged(log) == ["x"]
