"""Messages that a reader could not use become dead letters, once."""

import json

BURY = "select skep.bury_unreadable($1)"


def unread(partition, at, **more):
    members = {"queue": "hive", "transaction_id": "a", "error": "no number", "envelope": None}
    return {"partition_id": partition, "at": at, **members, **more}


async def test_a_message_of_the_log_is_copied_as_it_is_stored(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b", "c")
    pushed_at = log.now
    await log.advance(60)
    messages = json.dumps([unread(partition, 2, created_at=str(pushed_at)), unread(partition, 9)])

    assert [await log.value(BURY, messages) for _ in range(2)] == [1, 0]

    (letter,) = await log.dead_letters()
    assert (letter["partition_id"], letter["group_id"], letter["message_offset"]) == (
        partition, group, 2,
    )  # fmt: skip
    assert json.loads(letter["envelope"])["transactionId"] == "b"
    assert (letter["error"], letter["failures"]) == ("no number", 0)
    assert (letter["created_at"], letter["failed_at"]) == (pushed_at, log.now)


async def test_a_message_of_the_archive_comes_with_its_envelope(log):
    partition, _ = await log.partition()
    envelope = '{"transactionId":"a","data":"\\u0000"}'
    old = unread(partition, 7, envelope=envelope, created_at="2026-01-01T00:00:00Z")

    assert await log.value(BURY, json.dumps([old])) == 1

    (letter,) = await log.dead_letters()
    assert (letter["envelope"], letter["message_offset"]) == (envelope, 7)


async def test_of_a_queue_that_is_gone_nothing_is_kept(log):
    assert await log.value(BURY, json.dumps([unread(1, 1, queue="gone")])) == 0
