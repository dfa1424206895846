"""Reads that wait: what wakes them, when they give up, and what they leave behind."""

import asyncio
import json
from datetime import UTC, datetime

import pytest

from skep.app.parts.engine import policies
from skep.broker.fetch.accept import CHECK_S, PAUSE_S, PAUSE_S_MAX, Fetches, planned
from skep.broker.fetch.execute import FetchExecutor, render
from skep.broker.fetch.request import WAIT_BYTES_MAX, FetchBody, FetchEntry
from skep.engine.driver import Engine
from skep.engine.fusion import FusionCore
from skep.engine.limiter import StaticLimiter
from skep.engine.policy import BatchPolicy
from skep.model.envelopes import build_envelope
from skep.model.errors import BadRequest
from tests.support.virtual_time import VirtualTimeLoop

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
POLICY = BatchPolicy(preferred_weight=1, hold_s_max=0, weight_max=1 << 20, concurrency_max=2)
QUEUE = 7
MESSAGE_BYTES = len(build_envelope("m1", b"1"))


@pytest.fixture
def arun():
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        yield runner.run


class Partition:
    """The database's side: one partition, read as `fetch_segments` reads it."""

    def __init__(self):
        self.bodies = []
        self.calls = 0
        self.most = 0
        """Reads in one call."""
        self.meanwhile = lambda: None

    def push(self, *numbers):
        """Store messages; None is one that was deleted since."""
        envelopes = [
            b"null" if each is None else build_envelope(f"m{each}", b"%d" % each)
            for each in numbers
        ]
        first = self.head + 1
        self.bodies.append((first, first + len(numbers) - 1, b"[%b]" % b",".join(envelopes)))

    @property
    def head(self):
        return self.bodies[-1][1] if self.bodies else 0

    async def call(self, _statement, requests, _queues, _partitions, offsets, sizes, ceilings):
        self.calls += 1
        self.most = max(self.most, *requests)
        rows, left = [], dict(enumerate(ceilings))
        for entry, (at, room) in enumerate(zip(offsets, sizes, strict=True), start=1):
            ends = (entry, QUEUE, self.head, 1)
            found, entry_left = [], room
            for first, last, body in self.bodies:
                if last >= at and entry_left > 0 and left[0] > 0:
                    found.append((*ends, first, NOON, body))
                    entry_left -= len(body)
                    left[0] -= len(body)
            rows += found or [(*ends, None, None, None)]
        self.meanwhile()
        return rows


class Room:
    """Reads of one process, on an engine of their own."""

    def __init__(self, policy=POLICY):
        core = FusionCore({"fetch": (policy, StaticLimiter(2))}, slots=2, weight_capacity=1 << 20)
        self.engine = Engine(core, patience_s=5)
        self.partition = Partition()
        self.fetches = Fetches(self.engine)
        executor = FetchExecutor(
            self.partition, self.fetches, lambda envelope: envelope, bytes_max=1 << 24
        )
        self.engine.serve("fetch", executor.execute)
        self.loop = asyncio.get_running_loop()

    def fetch(self, offset=1, *, partitions=("a",), **members):
        """Read from an offset; the future becomes the answer."""
        answered = self.loop.create_future()
        entries = [FetchEntry(queue="q", partition=each, offset=offset) for each in partitions]
        fetch = planned(
            FetchBody(entries=entries, **members),
            answer=lambda fetch: answered.set_result(json.loads(render(fetch))["entries"]),
            refuse=answered.set_exception,
        )
        self.fetches.fetch(fetch)
        answered.fetch = fetch
        return answered


def payloads(entries):
    return [record["payload"] for entry in entries for record in entry["records"]]


def test_a_read_without_a_wait_is_answered_at_once(arun):
    async def play():
        room = Room()
        (entry,) = await room.fetch()
        return entry, room.loop.time(), len(room.fetches)

    entry, at, waiting = arun(play())

    assert entry["records"] == []
    assert (entry["highWatermark"], entry["logStartOffset"], entry["nextOffset"]) == (1, 1, 1)
    assert (at, waiting) == (0, 0)


def test_a_wake_up_lets_a_waiting_read_read_on(arun):
    async def play():
        room = Room()
        answer = room.fetch(max_wait_ms=30_000)
        await asyncio.sleep(1)
        waiting = len(room.fetches)
        room.partition.push(1, 2)
        room.fetches.wake(QUEUE)
        return payloads(await answer), room.loop.time(), waiting, len(room.fetches)

    assert arun(play()) == ([1, 2], 1, 1, 0)


def test_the_wake_up_of_another_queue_does_not(arun):
    async def play():
        room = Room()
        answer = room.fetch(max_wait_ms=1_000)
        await asyncio.sleep(0.5)
        room.fetches.wake(QUEUE + 1)
        await answer
        return room.partition.calls, room.loop.time()

    assert arun(play()) == (2, 1)  # at the beginning and at the end


def test_a_wake_up_while_it_reads_counts(arun):
    """What was pushed after the read took its snapshot must not wait for the next look."""

    async def play():
        room = Room()

        def push():
            room.partition.meanwhile = lambda: None
            room.partition.push(1)
            room.fetches.wake(QUEUE)

        room.partition.meanwhile = push
        return payloads(await room.fetch(max_wait_ms=30_000)), room.loop.time()

    assert arun(play()) == ([1], PAUSE_S)


def test_a_lost_wake_up_costs_no_more_than_the_next_look(arun):
    async def play():
        room = Room()
        answer = room.fetch(max_wait_ms=30_000)
        await asyncio.sleep(0.5)
        room.partition.push(1)
        return payloads(await answer), room.loop.time()

    assert arun(play()) == ([1], CHECK_S)


def test_many_wake_ups_are_one_look_in_a_while(arun):
    async def play():
        room = Room()
        answer = room.fetch(max_wait_ms=1_000)
        for _ in range(1_000):
            await asyncio.sleep(0.0001)
            room.fetches.wake(QUEUE)
        calls = room.partition.calls
        await answer
        return calls

    assert arun(play()) <= 1 + 0.1 / PAUSE_S


def test_pushes_into_other_partitions_make_it_look_less_often(arun):
    async def play():
        room = Room()
        answer = room.fetch(max_wait_ms=30_000)
        for _ in range(10_000):
            await asyncio.sleep(0.001)
            room.fetches.wake(QUEUE)
        calls, pushed_at = room.partition.calls, room.loop.time()
        room.partition.push(1)
        room.fetches.wake(QUEUE)
        return calls, payloads(await answer), room.loop.time() - pushed_at

    calls, read, waited_s = arun(play())

    assert calls <= 10 + 10 / PAUSE_S_MAX
    assert read == [1]
    assert waited_s <= PAUSE_S_MAX


def test_after_a_quiet_time_it_looks_at_once_again(arun):
    async def play():
        room = Room()
        answer = room.fetch(max_wait_ms=30_000)
        for _ in range(1_000):
            await asyncio.sleep(0.001)
            room.fetches.wake(QUEUE)
        looked = room.partition.calls
        while room.partition.calls < looked + 3:  # the last one is a moment ago
            await asyncio.sleep(0.001)
        room.partition.push(1)
        pushed_at = room.loop.time()
        room.fetches.wake(QUEUE)
        return payloads(await answer), room.loop.time() - pushed_at

    read, waited_s = arun(play())

    assert read == [1]
    assert waited_s <= PAUSE_S


def test_few_reads_share_a_call_because_each_may_bring_a_large_message(arun):
    async def play():
        room = Room(policies(4)["fetch"])
        room.partition.push(1)
        answers = await asyncio.gather(*(room.fetch() for _ in range(40)))
        return room.partition.most, len(answers)

    assert arun(play()) == (16, 40)


def test_it_waits_for_so_many_bytes_and_keeps_what_it_has_read(arun):
    async def play():
        room = Room()
        room.partition.push(1)
        answer = room.fetch(max_wait_ms=30_000, min_bytes=2 * MESSAGE_BYTES)
        await asyncio.sleep(1)
        assert not answer.done()
        room.partition.push(2, 3)
        room.fetches.wake(QUEUE)
        return payloads(await answer)

    assert arun(play()) == [1, 2, 3]


def test_at_the_end_of_the_wait_the_answer_is_what_there_is(arun):
    async def play():
        room = Room()
        room.partition.push(1)
        answer = room.fetch(max_wait_ms=5_000, min_bytes=1_000)
        return payloads(await answer), room.loop.time()

    assert arun(play()) == ([1], 5)


def test_it_passes_deleted_messages_until_there_is_one(arun):
    async def play():
        room = Room()
        room.partition.push(*[None] * 30_000)
        room.partition.push(*[None] * 30_000)
        room.partition.push(1)
        return await room.fetch(max_bytes=1)

    (entry,) = arun(play())

    assert [record["offset"] for record in entry["records"]] == [60_001]
    assert entry["nextOffset"] == 60_002


def test_a_log_that_ends_in_deleted_messages_has_no_more(arun):
    async def play():
        room = Room()
        room.partition.push(None, None)
        (entry,) = await room.fetch()
        return entry["records"], entry["nextOffset"], entry["highWatermark"]

    assert arun(play()) == ([], 3, 3)


@pytest.mark.parametrize(
    ("members", "read"),
    [
        ({"max_bytes": 1}, [[1], []]),
        ({"max_bytes": 2 * MESSAGE_BYTES}, [[1, 2], []]),
        ({"max_bytes": 3 * MESSAGE_BYTES}, [[1, 2, 3], []]),
        ({}, [[1, 2, 3], [1, 2, 3]]),
    ],
)
def test_a_call_is_bounded_and_brings_one_message_at_least(arun, members, read):
    async def play():
        room = Room()
        room.partition.push(1, 2, 3)
        return [payloads([each]) for each in await room.fetch(partitions="ab", **members)]

    assert arun(play()) == read


def test_a_read_whose_client_is_gone_leaves_nothing_behind(arun):
    async def play():
        room = Room()
        answer = room.fetch(max_wait_ms=30_000)
        await asyncio.sleep(1)
        room.fetches.abort(answer.fetch)
        calls = room.partition.calls
        room.fetches.wake(QUEUE)
        await asyncio.sleep(60)
        return len(room.fetches), room.partition.calls - calls, answer.done()

    assert arun(play()) == (0, 0, False)


def test_reads_that_wait_are_answered_when_the_process_ends(arun):
    async def play():
        room = Room()
        waiting = room.fetch(max_wait_ms=30_000)
        await asyncio.sleep(1)
        room.fetches.stop()
        late = room.fetch(max_wait_ms=30_000)
        return payloads(await waiting), payloads(await late), room.loop.time()

    assert arun(play()) == ([], [], 1)


def test_what_a_read_holds_while_it_waits_is_bounded():
    body = FetchBody(entries=[], max_wait_ms=30_000, min_bytes=1 << 30, max_bytes=1 << 30)

    assert planned(body, answer=print, refuse=print).wanted == WAIT_BYTES_MAX


@pytest.mark.parametrize(
    ("entry", "members", "text"),
    [
        ({"offset": -1}, {}, "Invalid offset: -1"),
        ({"offset": 2**63}, {}, "Invalid offset"),
        ({"queue": ""}, {}, "queue must not be empty"),
        ({"partition": "x" * 300}, {}, "partition is longer"),
        ({}, {"max_wait_ms": -1}, "Invalid maxWaitMs: -1"),
    ],
)
def test_what_cannot_be_read_is_refused(entry, members, text):
    body = FetchBody(entries=[FetchEntry(**{"queue": "q", "offset": 1, **entry})], **members)

    with pytest.raises(BadRequest, match=text):
        planned(body, answer=print, refuse=print)
