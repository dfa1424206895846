"""How far each group has come with one message."""

from tests.sql.support.log import QUEUE_MODE, Ack, Poll

QUERY = "select * from skep.message_deliveries($1, $2)"


async def standing(log, partition, offset):
    return {row["group_name"]: row for row in await log.rows(QUERY, partition, offset)}


async def test_a_message_is_waiting_then_leased_then_done(log):
    [partition] = await log.provision("hive", "a")
    group = await log.subscribe(group="g")
    await log.push(partition, "a", "b")

    waiting = (await standing(log, partition, 2))["g"]
    poll = Poll(batch=2, lease_s=60)
    await log.pop(group, poll)
    leased = await standing(log, partition, 1)
    await log.ack(Ack(partition, 1, poll.lease_id, group="g"))
    done = (await standing(log, partition, 1))["g"]

    assert (waiting["state"], waiting["ahead"], waiting["until"]) == ("waiting", 1, None)
    assert (leased["g"]["state"], leased["g"]["deliveries"]) == ("leased", 1)
    assert (leased["g"]["until"] - log.now).total_seconds() == 60
    assert (done["state"], done["deliveries"], done["ahead"]) == ("done", None, 0)
    assert QUEUE_MODE not in leased, "it was never polled, and is not the only group"


async def test_a_message_that_failed_waits_for_its_next_attempt(log):
    await log.configure("hive", retry_delay_ms=5_000)
    partition, group = await log.partition()
    await log.push(partition, "a")
    poll = Poll()
    await log.pop(group, poll)
    await log.ack(Ack(partition, 1, poll.lease_id, "failed", error="stung"))

    row = (await standing(log, partition, 1))[QUEUE_MODE]

    assert (row["state"], row["failures"]) == ("retrying", 1)
    assert row["until"] > log.now


async def test_what_was_never_stored_has_no_standing(log):
    partition, _ = await log.partition()
    await log.push(partition, "a")

    assert await log.rows(QUERY, partition, 2) == []
    assert await log.rows(QUERY, 1 << 40, 1) == []
