import json

from tests.sql.support.letters import bury
from tests.sql.support.log import QUEUE_MODE, Poll, envelope

QUERY = "select * from skep.describe_message($1, $2)"


async def test_a_message_is_described_with_its_queue_and_its_groups(log):
    await log.configure("hive", lease_time_s=60, priority=3)
    partition, group = await log.partition()
    await log.subscribe(group="g")
    await log.push(partition, "a", "b")
    await log.pop(group, Poll(batch=1))

    row = await log.row(QUERY, partition, 1)

    assert (row["queue_name"], row["partition_name"]) == ("hive", "a")
    assert (row["envelope"], row["created_at"]) == (envelope("a"), log.now)
    assert (row["status"], row["queue_status"]) == ("processing", "processing")
    assert (row["lease_time_s"], row["priority"], row["error"]) == (60, 3, None)
    assert [(g["name"], g["consumed"]) for g in json.loads(row["groups"])] == [
        (QUEUE_MODE, False),
        ("g", False),
    ]
    assert json.loads(row["groups"])[0]["leaseExpiresAt"] == "2026-01-01T12:01:00+00:00"


async def test_a_message_that_died_is_described_from_its_letter_when_the_log_forgot_it(log):
    await bury(log, "a", error="stung")
    partition, _ = await log.partition()
    await log.execute("delete from skep.segment")

    row = await log.row(QUERY, partition, 1)

    assert (row["envelope"], row["status"]) == (envelope("a"), "dead_letter")
    assert (row["error"], row["failures"]) == ("stung", 4)


async def test_what_is_not_there_is_not_described(log):
    partition, _ = await log.partition()
    await log.push(partition, "a", "b")
    await log.value("select skep.delete_message($1, 1)", partition)

    assert await log.rows(QUERY, partition, 1) == []
    assert await log.rows(QUERY, partition, 3) == []
    assert await log.rows(QUERY, 1 << 40, 1) == []
