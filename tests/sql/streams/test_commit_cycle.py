"""Cycles of streams: state, results and the ack of the source, together."""

import asyncio
from datetime import timedelta
from uuid import uuid4

import pytest

from tests.sql.model.test_races import waiting
from tests.sql.support.log import Ack, Poll
from tests.sql.support.settling import names
from tests.sql.support.streaming import WINDOW_KEY, StateOp, clear_streams, cycle, register, state


class Stream:
    """A query with one source partition of three messages under lease, and a sink."""

    def __init__(self, log, query_id, source, group, sink, lease):
        self.log = log
        self.shard = query_id, source
        self.group = group
        self.sink = sink
        self.lease = lease

    def ack(self, offset, status="completed"):
        return Ack(self.shard[1], offset, self.lease, status)

    async def cycle(self, *ops, log=None, **options):
        return await cycle(log or self.log, *self.shard, *ops, **options)

    async def cursor(self):
        return await self.log.cursor(self.shard[1], self.group)


@pytest.fixture
def stream(arun, log):
    async def make():
        await clear_streams(log)
        source, group = await log.partition()
        await log.push(source, "x", "y", "z")
        poll = Poll()
        await log.pop(group, poll)
        [sink] = await log.provision("sink", "s")
        query_id = (await register(log))["query_id"]
        return Stream(log, query_id, source, group, sink, poll.lease_id)

    return arun(make())


async def test_everything_happens(log, stream):
    settled = await stream.cycle(
        StateOp("k", "1"), acks=[stream.ack(3)], pushes={stream.sink: "ab"}
    )

    assert [settled.refusal, settled.outcomes, settled.offsets] == [None, ["acked"], [1, 2]]
    assert [settled.row["queue_name"], settled.row["state_count"]] == ["hive", 1]
    assert await state(log, *stream.shard) == {"k": "1"}
    assert await names(log, stream.sink) == ["a", "b"]


@pytest.mark.parametrize("ack", [Ack(0, 1, uuid4()), Ack(0, None, transaction_id="?"), Ack(0, 4)])
async def test_nothing_happens_when_the_ack_is_refused(log, stream, ack):
    await log.push(stream.shard[1], "beyond")
    ack.lease_id = ack.lease_id or stream.lease
    ack.partition_id = stream.shard[1]

    settled = await stream.cycle(StateOp("k", "1"), acks=[ack], pushes={stream.sink: "a"})

    assert settled.refusal is not None
    assert await state(log, *stream.shard) == {}
    assert await names(log, stream.sink) == []


async def test_nothing_happens_when_the_state_is_refused(log, stream):
    settled = await stream.cycle(
        StateOp("k", "1"), StateOp(WINDOW_KEY), acks=[stream.ack(3)], pushes={stream.sink: "a"}
    )

    assert settled.refusal == ("state_gone", 2)
    assert await state(log, *stream.shard) == {}
    assert await names(log, stream.sink) == []
    assert (await stream.cursor())["acked"] == 0


async def test_a_batch_computed_from_lost_state_is_ready_again(log, stream):
    await stream.cycle(StateOp(WINDOW_KEY), acks=[stream.ack(3)])

    await log.advance()
    assert (await log.pop(stream.group)).offsets == [1, 2, 3]


async def test_the_lease_of_another_is_not_ended_by_a_conflict(log, stream):
    stale = Ack(stream.shard[1], 3, uuid4())

    settled = await stream.cycle(StateOp(WINDOW_KEY), acks=[stale])

    assert settled.refusal == ("lease_lost", 1)
    assert (await stream.cursor())["lease_id"] == stream.lease
    assert (await stream.cursor())["leased"] == 3


@pytest.mark.parametrize("release", [True, False])
async def test_an_ack_of_a_part_ends_the_lease_if_asked_to(log, stream, release):
    settled = await stream.cycle(acks=[stream.ack(1)], release=release)

    assert settled.row["ack_released"] == [release]
    await log.advance()
    assert (await log.pop(stream.group)).offsets == ([2, 3] if release else [])


async def test_a_lease_that_a_cycle_ended_cannot_be_taken_back(log, stream):
    await stream.cycle(acks=[stream.ack(1)], release=True)

    assert await log.release(stream.shard[1], stream.group, stream.lease) == 0

    assert (await stream.cursor())["acked"] == 1


async def test_the_rest_may_be_told_to_wait(log, stream):
    await stream.cycle(acks=[stream.ack(1)], delay_ms=5000)

    assert (await stream.cursor())["available_at"] == log.now + timedelta(seconds=5)
    await log.advance(6)
    assert (await log.pop(stream.group)).offsets == [2, 3]


@pytest.mark.parametrize("key", ["k", WINDOW_KEY], ids=["released", "out of date"])
async def test_the_end_of_a_lease_does_not_cut_a_back_off_short(log, stream, key):
    await log.configure("hive", ack_mode="individual", retry_limit=3, retry_delay_ms=5000)
    await log.ack(stream.ack(1, "failed"))

    await stream.cycle(StateOp(key), acks=[stream.ack(2)])

    cursor = await stream.cursor()
    assert cursor["leased"] is None
    assert cursor["available_at"] == log.now + timedelta(seconds=5)
    assert (cursor["nacked"], cursor["retry_at"]) == (None, None)


async def test_a_failure_told_by_a_cycle_rests_although_the_lease_ends(log, stream):
    await log.configure("hive", ack_mode="individual", retry_limit=3, retry_delay_ms=5000)

    await stream.cycle(acks=[stream.ack(1, "failed")])

    assert (await stream.cursor())["available_at"] == log.now + timedelta(seconds=5)


@pytest.mark.parametrize("offset", [3, 1])
async def test_a_cycle_that_comes_again_has_no_second_effect(log, stream, offset):
    options = {"acks": [stream.ack(offset)], "pushes": {stream.sink: "a"}, "release": False}
    await stream.cycle(StateOp("k", "1"), **options)
    await stream.cycle(StateOp("k", "2"))

    again = await stream.cycle(StateOp("k", "1"), **options)

    assert again.refusal == ("replayed", 1)
    assert await state(log, *stream.shard) == {"k": "2"}
    assert await names(log, stream.sink) == ["a"]


async def test_a_failure_reported_for_what_is_done_is_refused(stream):
    await stream.cycle(acks=[stream.ack(3)])

    settled = await stream.cycle(acks=[stream.ack(3, "failed")])

    assert settled.refusal == ("already_done", 1)


async def test_a_call_that_comes_again_is_answered_from_the_record(log, stream):
    options = {"id_": uuid4(), "acks": [stream.ack(3)], "pushes": {stream.sink: "a"}}
    first = await stream.cycle(StateOp("k", "1"), **options)

    again = await stream.cycle(StateOp("k", "1"), is_repeated=True, **options)

    assert again.refusal is None
    assert [again.outcomes, again.offsets] == [first.outcomes, first.offsets]
    assert [again.row["state_count"], again.row["queue_name"]] == [1, "hive"]
    assert await names(log, stream.sink) == ["a"]


async def test_an_unknown_query_is_refused(log, stream):
    settled = await cycle(log, uuid4(), stream.shard[1], StateOp("k", "1"))

    assert settled.refusal == ("no_query", 1)


async def test_the_state_of_a_partition_that_is_gone_goes_too(log, stream):
    query_id, source = stream.shard
    await stream.cycle(StateOp("k", "1"))
    await log.execute(f"delete from skep.partition where id = {source}")

    settled = await stream.cycle(StateOp("k", "2"))

    assert settled.refusal == ("no_partition", None)
    assert await state(log, query_id, source) == {}


async def test_a_sink_that_is_gone_is_told(stream):
    settled = await stream.cycle(StateOp("k", "1"), pushes={1 << 50: "a"})

    assert settled.refusal == ("partition_gone", 1)


# Two sessions


async def test_of_two_flushes_of_a_window_one_emits(log, stream, open_log):
    other, observer = await open_log(), await open_log()
    await stream.cycle(StateOp(WINDOW_KEY, "1"))
    transaction = log.connection.transaction()
    await transaction.start()
    await stream.cycle(StateOp(WINDOW_KEY), pushes={stream.sink: "a"})

    second = stream.cycle(StateOp(WINDOW_KEY), log=other, pushes={stream.sink: "b"})
    async with waiting(observer, other, second) as flushed:
        await transaction.commit()

    assert flushed.result().refusal == ("state_gone", 1)
    assert await names(log, stream.sink) == ["a"]


async def test_cycles_of_other_shards_do_not_wait(log, stream, open_log):
    other = await open_log()
    query_id, _ = stream.shard
    free, _ = await log.partition("hive", "b")

    async with log.connection.transaction():
        await stream.cycle(StateOp("k", "1"))
        async with asyncio.timeout(30):
            assert (await cycle(other, query_id, free, StateOp("k", "1"))).refusal is None
