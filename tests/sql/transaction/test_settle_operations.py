"""Acks and pushes together. They are asked through transact, which turns refusals into rows."""

import asyncio
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
from asyncpg import LockNotAvailableError, PostgresError

from tests.sql.model.test_races import until_it_waits, waiting
from tests.sql.support.log import ALWAYS, Ack, Guarantee, Poll
from tests.sql.support.settling import arguments, names, transact

SETTLE = f"select * from skep.settle_operations({', '.join(f'${n}' for n in range(1, 15))})"


@pytest.fixture
def other(arun, open_log):
    return arun(open_log())


@pytest.fixture
def observer(arun, open_log):
    return arun(open_log())


async def leased_partition(log, partition="a", messages="xyz"):
    """Push messages and lease them; return the partition, the group and the lease."""
    partition, group = await log.partition("hive", partition)
    await log.push(partition, *messages)
    poll = Poll()
    await log.pop(group, poll)
    return partition, group, poll.lease_id


async def test_a_refusal_is_raised_with_its_place(log):
    partition, _, lease = await leased_partition(log)
    acks = [Ack(partition, 1, lease), Ack(partition, None, lease, transaction_id="unknown")]

    with pytest.raises(PostgresError) as raised:
        await log.row(SETTLE, *arguments(acks))

    assert [raised.value.sqlstate, raised.value.message, raised.value.detail] == [
        "SK409",
        "not_found",
        "2",
    ]


async def test_acks_and_pushes_are_done(log):
    partition, group, lease = await leased_partition(log)
    [sink] = await log.provision("sink", "s")

    settled = await transact(log, [Ack(partition, 2, lease)], {sink: "ab"}, leases=[lease])

    assert [settled.refusal, settled.outcomes, settled.offsets] == [None, ["acked"], [1, 2]]
    assert (await log.cursor(partition, group))["acked"] == 2
    assert await names(log, sink) == ["a", "b"]


@pytest.mark.parametrize(
    ("outcome", "ack"),
    [
        ("not_found", {"offset": 9}),
        ("not_found", {"offset": None, "transaction_id": "unknown"}),
        ("lease_lost", {"offset": 1, "lease_id": uuid4()}),
        ("no_group", {"offset": 1, "group": "nobody"}),
        ("no_group", {"offset": 1, "partition_id": 1 << 50}),
    ],
)
async def test_a_bad_ack_undoes_everything(log, outcome, ack):
    partition, group, _ = await leased_partition(log)
    [sink] = await log.provision("sink", "s")
    before = await log.cursor(partition, group)
    bad = Ack(**{"partition_id": partition, **ack})

    settled = await transact(log, [Ack(partition, 1), bad], {sink: "a"})

    assert settled.refusal == (outcome, 2)
    assert await log.cursor(partition, group) == before
    assert await names(log, sink) == []


async def test_an_ack_of_a_message_beyond_the_lease_undoes_everything(log):
    partition, group, lease = await leased_partition(log, messages="xy")
    await log.push(partition, "z")
    [sink] = await log.provision("sink", "s")
    before = await log.cursor(partition, group)

    settled = await transact(log, [Ack(partition, 1, lease), Ack(partition, 3, lease)], {sink: "a"})

    assert settled.refusal == ("beyond_lease", 2)
    assert await log.cursor(partition, group) == before
    assert await names(log, sink) == []


async def test_a_nack_of_what_is_done_is_refused(log):
    partition, _, lease = await leased_partition(log)
    await log.ack(Ack(partition, 1, lease))

    settled = await transact(log, [Ack(partition, 1, lease, "failed")])

    assert settled.refusal == ("already_done", 1)


async def test_a_required_lease_must_be_held_somewhere(log):
    _, _, lease = await leased_partition(log)
    [sink] = await log.provision("sink", "s")

    held = await transact(log, (), {sink: "a"}, leases=[lease])
    unknown = await transact(log, (), {sink: "b"}, leases=[lease, uuid4()])
    await log.advance(1000)
    expired = await transact(log, (), {sink: "c"}, leases=[lease])

    assert held.refusal is None
    assert unknown.refusal == ("required_lease", 2)
    assert expired.refusal == ("required_lease", 1)
    assert await names(log, sink) == ["a"]


async def test_an_ack_without_a_lease_is_fenced_by_the_required_ones(log):
    partition, group, lease = await leased_partition(log)
    _, _, own = await leased_partition(log, "b")

    refused = await transact(log, [Ack(partition, 1)], leases=[own])
    done = await transact(log, [Ack(partition, 1)], leases=[own, lease])

    assert refused.refusal == ("lease_lost", 1)
    assert done.outcomes == ["acked"]
    assert (await log.cursor(partition, group))["acked"] == 1


async def test_without_any_lease_an_ack_is_not_fenced_as_the_wire_allows(log):
    partition, _, _ = await leased_partition(log)

    assert (await transact(log, [Ack(partition, 1)])).outcomes == ["acked"]


async def test_completing_what_is_done_is_fine_while_the_lease_is_held(log):
    partition, _, lease = await leased_partition(log)
    [sink] = await log.provision("sink", "s")
    await log.ack(Ack(partition, 2, lease))

    settled = await transact(log, [Ack(partition, 1)], {sink: "a"}, leases=[lease])

    assert [settled.refusal, settled.outcomes] == [None, ["noop"]]


@pytest.mark.parametrize("is_leased", [True, False])
async def test_completing_what_somebody_else_completed_is_refused(log, is_leased):
    partition, _, lease = await leased_partition(log, messages="x")
    [sink] = await log.provision("sink", "s")
    await log.ack(Ack(partition, 1, lease))

    settled = await transact(log, [Ack(partition, 1, lease if is_leased else None)], {sink: "a"})

    assert settled.refusal == ("already_done", 1)
    assert await names(log, sink) == []


@pytest.mark.parametrize("pushed", ["a", "ab"])
async def test_only_a_transaction_that_adds_nothing_may_come_again(log, pushed):
    partition, _, lease = await leased_partition(log, messages="x")
    [sink] = await log.provision("sink", "s")
    await transact(log, [Ack(partition, 1)], {sink: "a"}, leases=[lease])

    again = await transact(log, [Ack(partition, 1)], {sink: pushed}, leases=[lease])

    assert (again.refusal is None) == (pushed == "a")
    assert await names(log, sink) == ["a"]


async def test_a_push_into_a_partition_that_is_gone_is_refused(log):
    partition, group, lease = await leased_partition(log)

    settled = await transact(log, [Ack(partition, 1, lease)], {partition: "n", 1 << 50: "a"})

    assert settled.refusal == ("partition_gone", 2)
    assert (await log.cursor(partition, group))["acked"] == 0


async def test_a_partition_acknowledged_and_pushed_to_stays_ready(log):
    partition, group, lease = await leased_partition(log, messages="x")

    await transact(log, [Ack(partition, 1, lease)], {partition: "y"})

    await log.advance()
    assert (await log.pop(group)).offsets == [2]


async def test_a_partition_acknowledged_to_its_end_rests_and_wakes(log):
    partition, group, lease = await leased_partition(log, messages="x")

    await transact(log, [Ack(partition, 1, lease)])

    assert await log.next_available(group) is None
    await transact(log, (), {partition: "y"})
    assert (await log.pop(group)).offsets == [2]


async def test_the_brokers_word_saves_the_probe_and_the_gap_comes_back(log):
    [sink] = await log.provision("sink", "s")
    await transact(log, (), {sink: "a"})

    guaranteed = await transact(log, (), {sink: "a"}, guarantees={sink: Guarantee(1, ALWAYS)})
    behind = await transact(log, (), {sink: "b"}, guarantees={sink: Guarantee(1, ALWAYS)})

    assert [guaranteed.duplicates, guaranteed.offsets] == [[False], [2]]
    assert behind.row["gap_first"] == [2]


# Two sessions


async def test_offsets_follow_the_order_of_commits(log, other, observer):
    partition, group = await log.partition()
    transaction = log.connection.transaction()
    await transaction.start()
    await transact(log, (), {partition: "a"})

    async with waiting(observer, other, transact(other, (), {partition: "b"})) as second:
        assert (await observer.pop(group)).offsets == []
        await transaction.commit()

    assert second.result().offsets == [2]


async def test_of_two_transactions_that_push_the_same_message_one_stores_it(log, other, observer):
    [sink] = await log.provision("sink", "s")
    transaction = log.connection.transaction()
    await transaction.start()
    await transact(log, (), {sink: "a"})

    async with waiting(observer, other, transact(other, (), {sink: "a"})) as second:
        await transaction.commit()

    assert second.result().duplicates == [True]


async def test_of_two_transactions_that_complete_a_message_one_is_refused(log, other, observer):
    partition, _, lease = await leased_partition(log, messages="x")
    [one, two] = await log.provision("sink", "1", "2")
    transaction = log.connection.transaction()
    await transaction.start()
    await transact(log, [Ack(partition, 1)], {one: "a"}, leases=[lease])

    second = transact(other, [Ack(partition, 1)], {two: "b"}, leases=[lease])
    async with waiting(observer, other, second) as second:
        await transaction.commit()

    assert second.result().refusal is not None
    assert [await names(log, one), await names(log, two)] == [["a"], []]


async def test_an_ack_waits_for_a_transaction_and_not_the_other_way_round(log, other, observer):
    partition, group, lease = await leased_partition(log, messages="xy")
    transaction = log.connection.transaction()
    await transaction.start()
    await transact(log, [Ack(partition, 1, lease)], {partition: "n"})

    async with waiting(observer, other, other.ack(Ack(partition, 2, lease))) as acked:
        await transaction.commit()

    assert [answer.outcome for answer in acked.result()] == ["acked"]
    assert (await log.pop(group)).offsets == [3]


async def test_a_poll_passes_by_what_a_transaction_holds(log, other):
    partition, group, lease = await leased_partition(log, messages="x")
    free, _ = await log.partition("hive", "b")
    await log.push(free, "f")

    async with log.connection.transaction():
        await transact(log, [Ack(partition, 1, lease)], {partition: "y"})
        assert (await other.pop(group, Poll(partitions=5))).partitions == [free]


# No circle of waiting: partitions before cursors, and all cursors in one order


async def is_locked(log, table, **address):
    """Tell whether another session holds a row."""
    conditions = " and ".join(f"{name} = {value}" for name, value in address.items())
    try:
        await log.execute(f"select 1 from skep.{table} where {conditions} for update nowait")
    except LockNotAvailableError:
        return True
    return False


@asynccontextmanager
async def held_cursor(holder, partition, group):
    """Hold a cursor as an ack or a poll does."""
    async with holder.connection.transaction():
        await holder.execute(
            f"select 1 from skep.cursor where partition_id = {partition} and group_id = {group} "
            "for update"
        )
        yield


async def test_cursors_of_acks_and_of_pushed_partitions_are_locked_in_one_order(
    log, other, observer, open_log
):
    low, group = await log.partition("hive", "low")
    high, _, lease = await leased_partition(log, "high")
    asker = await open_log()

    async with asyncio.timeout(60):
        async with held_cursor(other, low, group):
            call = transact(log, [Ack(high, 1, lease)], {low: "a"})
            task = asyncio.ensure_future(call)
            await until_it_waits(observer, task, log)
            assert not await is_locked(asker, "cursor", partition_id=high, group_id=group)
        assert (await task).outcomes == ["acked"]


async def test_partitions_are_locked_before_any_cursor(log, other, observer, open_log):
    low, group, lease = await leased_partition(log, "low")
    high, _ = await log.partition("hive", "high")
    asker = await open_log()

    async with asyncio.timeout(60):
        async with held_cursor(other, low, group):
            task = asyncio.ensure_future(transact(log, [Ack(low, 1, lease)], {high: "a"}))
            await until_it_waits(observer, task, log)
            assert await is_locked(asker, "partition", id=high)
        assert (await task).outcomes == ["acked"]


async def test_partitions_are_locked_in_ascending_order(log, other, observer, open_log):
    low, high = await log.provision("hive", "a", "b")
    asker = await open_log()

    async with asyncio.timeout(60):
        async with other.connection.transaction():
            await other.push(low, "first")
            task = asyncio.ensure_future(transact(log, (), {low: "a", high: "b"}))
            await until_it_waits(observer, task, log)
            assert not await is_locked(asker, "partition", id=high)
        assert (await task).offsets == [2, 1]
