"""The quickest way for one plain ack. It does what complete_leases does, or nothing."""

from uuid import uuid4

import pytest

from tests.sql.support.log import Ack, Poll

ONE = "select * from skep.complete_lease($1, $2, $3, $4, false)"
MANY = "select * from skep.complete_leases($1, $2, $3, $4, $5, skep.now())"


async def complete_both_ways(log, ways, change, offset):
    """Return what both ways answer, and how each leaves its cursor."""
    found = []
    for way in ways:
        [partition] = await log.provision(way, "a")
        group = await log.subscribe(way, "bees")
        await log.push(partition, *"abc")
        poll = Poll(batch=2 if change == "beyond" else 100, lease_s=30)
        await log.pop(group, poll)
        if change.startswith("update"):
            await log.execute(f"{change} where partition_id = $1", partition)
        lease = uuid4() if change == "lost" else poll.lease_id
        if change == "expired":
            await log.advance(30)
        if way == "one":
            rows = [tuple(row)[3:] for row in await log.rows(ONE, partition, "bees", lease, offset)]
        else:
            ids = [partition], [group], [lease], [offset], ["completed"]
            rows = [tuple(row)[1:] for row in await log.rows(MANY, *ids)]
        cursor = dict(await log.cursor(partition, group))
        for name in ("partition_id", "group_id", "queue_id", "lease_id"):
            del cursor[name]
        cursor["available_at"] = cursor["available_at"] and cursor["available_at"] - log.now
        found.append((rows, cursor))
    return found


@pytest.mark.parametrize("offset", [None, 0, 1, 2, 3, 4])
@pytest.mark.parametrize(
    "change",
    [
        "nothing",
        "beyond",
        "lost",
        "expired",
        "update skep.cursor set failed_offset = '{3}', failed_count = '{1}'",
        "update skep.cursor set done = '{[3,4)}'",
    ],
)
async def test_one_ack_does_what_many_do(log, change, offset):
    one, many = await complete_both_ways(log, ["one", "many"], change, offset)

    assert one == many


@pytest.mark.parametrize(
    "change",
    [
        "update skep.queue set ack_mode = 'individual'",
        "update skep.partition set deferred_acks = 1",
    ],
)
async def test_an_ack_that_is_not_plain_is_left_alone(log, change):
    partition, group = await log.partition()
    await log.push(partition, "a")
    poll = Poll()
    await log.pop(group, poll)
    await log.execute(change)

    assert await log.rows(ONE, partition, "__QUEUE_MODE__", poll.lease_id, 1) == []
    assert (await log.cursor(partition, group))["leased"] == 1


async def test_the_names_are_told(log):
    partition, group = await log.partition()
    await log.push(partition, "a")
    poll = Poll()
    await log.pop(group, poll)

    [answer] = await log.ack(Ack(partition, 1, poll.lease_id))

    assert (answer.outcome, answer.queue_name, answer.partition_name) == ("acked", "hive", "a")
