"""What a transaction's record tells when its call comes again."""

import json
from uuid import uuid4

import pytest

from tests.sql.model.test_races import waiting
from tests.sql.support.log import Ack, Poll
from tests.sql.support.settling import arguments, names, transact


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


async def test_brokers_of_the_release_before_transact_without_keys(log, partitions):
    source, sink, lease = partitions
    query = f"select * from skep.transact({', '.join(f'${n}' for n in range(1, 17))})"
    shared = arguments([Ack(source, 2, lease)], {sink: "ab"})

    row = await log.row(query, uuid4(), False, *shared)

    assert [row["refusal"], row["ack_outcome"], row["push_offset"]] == [None, ["acked"], [1, 2]]
    assert list(row.keys())[-1] == "gap_created_at"


# Keys


@pytest.fixture
def no_keys(arun, log):
    arun(log.execute("delete from skep.kv_entry"))


async def version_of(log, key):
    return await log.value("select version from skep.kv where ns = 'hive' and key = $1", key)


@pytest.mark.usefixtures("no_keys")
async def test_keys_change_with_acks_and_pushes(log, partitions):
    source, sink, lease = partitions
    keys = [("a", "put", "1", None, False), ("b", "check", None, 0, True)]

    settled = await transact(log, [Ack(source, 2, lease)], {sink: "x"}, keys=keys)

    assert [settled.refusal, settled.outcomes, settled.offsets] == [None, ["acked"], [1]]
    assert settled.row["kv_applied"] == [True, True]
    assert settled.row["kv_version"][0] == await version_of(log, "a")


@pytest.mark.usefixtures("no_keys")
async def test_a_required_key_that_is_lost_undoes_everything(log, partitions):
    source, sink, lease = partitions
    await transact(log, keys=[("a", "put", '"theirs"', None, False)])
    version = await version_of(log, "a")
    keys = [("a", "put", "1", 0, True), ("b", "put", "1", None, False)]

    settled = await transact(log, [Ack(source, 2, lease)], {sink: "x"}, keys=keys)

    assert settled.refusal == ("kv_precondition", 0)
    assert settled.row["kv_reason"] == ["exists", None]
    assert (settled.row["kv_value"][0], settled.row["kv_version"][0]) == ('"theirs"', version)
    assert await names(log, sink) == []
    assert await version_of(log, "b") is None
    done = await transact(log, [Ack(source, 2, lease)])
    assert done.outcomes == ["acked"]


@pytest.mark.usefixtures("no_keys")
async def test_what_the_acks_refuse_is_told_before_a_key_that_was_lost(log, partitions):
    source, _, _ = partitions

    settled = await transact(log, [Ack(source, 1, uuid4())], keys=[("a", "check", None, 7, True)])
    kept = await transact(log, [Ack(source, 1, uuid4())], keys=[("a", "put", "1", None, False)])

    assert settled.refusal == kept.refusal == ("lease_lost", 1)
    assert await version_of(log, "a") is None


@pytest.mark.usefixtures("no_keys")
async def test_a_repeated_call_counts_once(log, partitions):
    _, sink, _ = partitions
    id_, keys = uuid4(), [("n", "incr", "1", None, False)]
    first = await transact(log, (), {sink: "x"}, id_=id_, keys=keys)

    again = await transact(log, (), {sink: "x"}, id_=id_, keys=keys, is_repeated=True)

    assert again.row["kv_version"] == first.row["kv_version"]
    assert again.row["kv_value"] == first.row["kv_value"] == ["1"]
    assert await version_of(log, "n") == first.row["kv_version"][0]


@pytest.mark.usefixtures("no_keys")
async def test_what_a_client_repeats_does_not_change_keys_again(log, partitions):
    source, sink, lease = partitions
    acks, keys = [Ack(source, 2, lease)], [("n", "incr", "1", None, False)]
    first = await transact(log, acks, {sink: "x"}, keys=keys)

    again = await transact(log, acks, {sink: "x"}, keys=keys)

    assert again.refusal == ("already_done", 1)
    assert await version_of(log, "n") == first.row["kv_version"][0]


@pytest.mark.usefixtures("no_keys")
@pytest.mark.parametrize(
    ("op", "value", "expect", "is_recorded"),
    [
        ("get", None, None, False),
        ("check", None, 0, False),
        ("put", "1", 7, False),
        ("put", "1", 0, True),
        ("incr", "1", None, True),
    ],
)
async def test_keys_alone_are_on_record_if_one_was_changed(log, op, value, expect, is_recorded):
    id_ = uuid4()

    settled = await transact(log, id_=id_, keys=[("n", op, value, expect, False)])

    query = "select count(*) from skep.settled_transaction where id = $1"
    assert settled.refusal is None
    assert await log.value(query, id_) == is_recorded


@pytest.mark.usefixtures("no_keys")
async def test_of_two_that_claim_a_key_the_one_that_waits_for_it_does_nothing(
    log, partitions, arun, open_log
):
    """While it waits it holds no partition: others push."""
    _, sink, _ = partitions
    other, observer = await open_log(), await open_log()
    claim = [("job", "put", "1", 0, True)]
    transaction = log.connection.transaction()
    await transaction.start()
    first = await transact(log, (), {sink: "a"}, keys=claim)
    [free] = await observer.provision("sink", "free")

    async with waiting(observer, other, transact(other, (), {free: "b"}, keys=claim)) as second:
        await observer.push(free, "c")
        await transaction.commit()

    assert first.refusal is None
    assert second.result().refusal == ("kv_precondition", 0)
    assert [await names(log, each) for each in (sink, free)] == [["a"], ["c"]]
