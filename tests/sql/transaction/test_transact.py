"""What a transaction's record tells when its call comes again."""

import json
from uuid import uuid4

import pytest

from tests.sql.support.log import Ack, Poll
from tests.sql.support.settling import names, transact


@pytest.fixture
def partitions(arun, log):
    """A partition with two messages under lease, a sink, and the lease."""

    async def make():
        source, group = await log.partition()
        await log.push(source, "x", "y")
        poll = Poll()
        await log.pop(group, poll)
        [sink] = await log.provision("sink", "s")
        return source, sink, poll.lease_id

    return arun(make())


async def test_a_call_that_comes_again_is_answered_from_the_record(log, partitions):
    source, sink, lease = partitions
    id_, acks, pushes = uuid4(), [Ack(source, 2, lease)], {sink: "ab"}
    first = await transact(log, acks, pushes, id_=id_, leases=[lease])

    again = await transact(log, acks, pushes, id_=id_, leases=[lease], is_repeated=True)

    assert again.refusal is None
    assert [again.outcomes, again.offsets] == [first.outcomes, first.offsets] == [["acked"], [1, 2]]
    assert again.duplicates == [False, False]
    assert again.row["partition_first"] is None
    assert await names(log, sink) == ["a", "b"]


async def test_a_call_that_was_never_executed_is_executed(log, partitions):
    source, sink, lease = partitions

    settled = await transact(log, [Ack(source, 2, lease)], {sink: "a"}, is_repeated=True)

    assert [settled.outcomes, settled.offsets] == [["acked"], [1]]


async def test_a_transaction_of_pushes_alone_or_acks_alone_is_on_record_too(log, partitions):
    source, sink, lease = partitions
    pushed, acked = uuid4(), uuid4()
    await transact(log, (), {sink: "a"}, id_=pushed)
    await transact(log, [Ack(source, 1, lease, "failed")], id_=acked)

    pushed_again = await transact(log, (), {sink: "a"}, id_=pushed, is_repeated=True)
    acked_again = await transact(
        log, [Ack(source, 1, lease, "failed")], id_=acked, is_repeated=True
    )

    assert [pushed_again.offsets, pushed_again.duplicates] == [[1], [False]]
    assert acked_again.outcomes == ["retried"]


async def test_what_was_refused_is_not_on_record(log, partitions):
    source, sink, _ = partitions
    id_ = uuid4()

    refused = await transact(log, [Ack(source, 1, uuid4())], {sink: "a"}, id_=id_)

    assert refused.refusal == ("lease_lost", 1)
    query = "select answer from skep.settled_transaction where id = $1"
    assert await log.value(query, id_) is None


async def test_the_record_goes_with_its_effects(log, partitions):
    _, sink, _ = partitions
    id_ = uuid4()
    transaction = log.connection.transaction()
    await transaction.start()
    await transact(log, (), {sink: "a"}, id_=id_)
    answer = await log.value("select answer from skep.settled_transaction where id = $1", id_)
    await transaction.rollback()

    settled = await transact(log, (), {sink: "a"}, id_=id_, is_repeated=True)

    assert json.loads(answer)["push_offset"] == [1]
    assert [settled.duplicates, settled.row["partition_first"]] == [[False], [1]]
