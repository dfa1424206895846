from uuid import uuid4

from tests.sql.support.log import QUEUE_MODE, Poll, key_of
from tests.sql.support.operating import ACK, check_books, claim, defer, operation

CALL = "select * from skep.process_acks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"


async def leased_partition(log, *names):
    partition, group = await log.partition()
    await log.push(partition, *names)
    lease_id = uuid4()
    await log.pop(group, Poll(lease_id=lease_id))
    return partition, lease_id


async def process(log, claim_id, operations, *acks):
    """Carry out acks: (number of the operation, partition, lease, offset, status)."""
    return await log.rows(
        CALL,
        operations,
        claim_id,
        [ack[0] for ack in acks],
        [ack[1] for ack in acks],
        [QUEUE_MODE] * len(acks),
        [ack[2] for ack in acks],
        [ack[3] for ack in acks],
        [key_of("")] * len(acks),
        [ack[4] for ack in acks],
        [None] * len(acks),
    )


async def test_acks_are_recorded_and_the_operations_end(log):
    partition, lease_id = await leased_partition(log, "x", "y", "z")
    first, second = [await defer(log, partition, type_=ACK) for _ in range(2)]
    claim_id, _ = await claim(log)

    rows = await process(
        log, claim_id, [first, second],
        (1, partition, lease_id, 1, "completed"), (2, partition, lease_id, 3, "completed"),
    )  # fmt: skip

    assert sorted((row["item"], row["outcome"]) for row in rows) == [(1, "acked"), (2, "acked")]
    assert await log.value("select acked from skep.cursor") == 3
    assert [(await operation(log, id_))["status"] for id_ in (first, second)] == ["completed"] * 2
    assert (await operation(log, second))["answer"] == [["acked", True]]
    await check_books(log)


async def test_an_ack_without_a_group_is_answered_as_such(log):
    partition, _ = await leased_partition(log, "x")
    only = await defer(log, partition, type_=ACK)
    claim_id, _ = await claim(log)

    rows = await process(log, claim_id, [only], (1, 1_000_000, None, 1, "completed"))

    assert rows == []
    assert (await operation(log, only))["answer"] == [["no_group", False]]


async def test_a_claim_that_was_taken_over_does_nothing(log):
    partition, lease_id = await leased_partition(log, "x")
    only = await defer(log, partition, type_=ACK)
    late_id, _ = await claim(log, timeout_s=1)
    await log.advance(2)
    await claim(log)

    [row] = await process(log, late_id, [only], (1, partition, lease_id, 1, "completed"))

    assert row["item"] is None
    assert await log.value("select acked from skep.cursor") == 0
    await check_books(log)
