"""Tails on a virtual clock: when they look, when they speak, and what of."""

import asyncio
import json
from datetime import UTC, datetime
from itertools import pairwise
from math import inf

import pytest

from skep.broker.pop.feed import Live
from skep.broker.pop.tail import CHECK_S, PAUSE_S, PLAN_CALL, READ_CALL, Tails
from skep.model.errors import Refused, Unavailable
from skep.server.routes.event_streams import HEARTBEAT_S, spelled_events, while_allowed
from tests.support.virtual_time import VirtualTimeLoop

QUEUE_ID = 1
SNAPSHOT = "9:9:"
ENVELOPE = b'{"transactionId":"t","traceId":null,"producerSub":null,"data":1}'


@pytest.fixture
def arun():
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        yield runner.run


class Database:
    """A queue with one partition, in which the test puts messages."""

    def __init__(self):
        self.looks = []
        self.count = self.shown = 0
        self.error = None
        self.during_look = lambda: None

    async def call(self, statement, *arguments):
        if statement == PLAN_CALL:
            return self._plan()
        if statement == READ_CALL:
            body = b"[%b]" % b",".join([ENVELOPE] * self.count)
            created_at = datetime(2026, 1, 1, tzinfo=UTC)
            segment = {"item": 1, "first": 1, "last": self.count}
            return [{**segment, "created_at": created_at, "body": body}]
        return [(QUEUE_ID if "skep.queue" in statement else SNAPSHOT,)]

    def _plan(self):
        self.looks.append(asyncio.get_running_loop().time())
        if self.error is not None:
            raise self.error
        self.during_look()
        new, self.shown = (self.shown + 1, self.count), self.count
        return [(SNAPSHOT, 5, "p", *new) if new[0] <= new[1] else (SNAPSHOT, *[None] * 4)]


class Stage:
    def __init__(self, open_envelope=bytes):
        self.database = Database()
        self.tails = Tails(self.database, open_envelope=open_envelope)
        self.live = Live(None, None, None, connections_max=1)
        self.said = []

    async def listen(self, seconds, left_s=inf):
        """Note what a stream says within so many seconds, and when."""
        tail = await self.tails.open("hive", start=None, last=None, is_from_now=True)
        now = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(seconds):
                async for event in while_allowed(spelled_events(tail), self.live, left_s):
                    self.said.append((now(), event))
        except TimeoutError:
            return


async def test_a_quiet_stream_gives_a_sign_of_life_with_its_position():
    stage = Stage()

    await stage.listen(100)

    times, events = zip(*stage.said, strict=True)
    assert set(events) == {b": alive\nid: 9:9:~9:9:~0~0\n\n"}
    assert times[0] == 0
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses
    assert all(HEARTBEAT_S <= pause <= HEARTBEAT_S + CHECK_S + PAUSE_S for pause in pauses)


async def test_without_a_wake_up_a_stream_looks_by_itself():
    stage = Stage()

    await stage.listen(3 * (CHECK_S + PAUSE_S) + 0.01)

    assert stage.database.looks == pytest.approx([n * (CHECK_S + PAUSE_S) for n in range(4)])


async def test_a_wake_up_during_a_look_is_not_lost():
    stage = Stage()
    stage.database.during_look = lambda: stage.tails.wake(QUEUE_ID)

    await stage.listen(0.9 * CHECK_S)

    assert stage.database.looks[:3] == pytest.approx([0, PAUSE_S, 2 * PAUSE_S])


async def test_wake_ups_of_other_queues_are_not_heard():
    stage = Stage()
    stage.database.during_look = lambda: stage.tails.wake(QUEUE_ID + 1)

    await stage.listen(0.9 * CHECK_S)

    assert stage.database.looks == [0]


async def test_a_message_that_cannot_be_opened_says_so_and_the_others_are_shown():
    def refuse_first(envelope, seen=[]):  # noqa: B006 (counts on purpose)
        seen.append(envelope)
        if len(seen) == 1:
            raise Refused("no key")
        return envelope

    stage = Stage(refuse_first)
    stage.database.count = 2

    await stage.listen(1)

    shown = [json.loads(event.split(b"data: ")[1]) for _, event in stage.said[:2]]
    assert [(each["data"], each.get("error")) for each in shown] == [(None, "no key"), (1, None)]


async def test_trouble_is_told_and_ends_the_stream():
    stage = Stage()
    stage.database.error = Unavailable("away")

    await stage.listen(1)

    [(_, event)] = stage.said
    assert event == b'event: error\ndata: {"error":"away","code":"unavailable"}\n\n'
    stage.live.enter()  # its place is free again


async def test_a_stream_ends_with_the_token_it_was_opened_with():
    stage = Stage()

    await stage.listen(100, left_s=20)

    at, event = stage.said[-1]
    assert event.startswith(b"event: error")
    assert b"expired" in event
    assert 20 <= at <= 20 + HEARTBEAT_S + CHECK_S + PAUSE_S


async def test_one_that_finds_no_room_at_the_last_moment_is_told():
    stage = Stage()
    stage.live.enter()

    await stage.listen(1)

    assert [event.splitlines()[0] for _, event in stage.said] == [b"event: error"]


async def test_nothing_is_left_of_a_stream_that_was_cancelled():
    stage = Stage()

    await stage.listen(1)

    assert stage.tails._events == {}
    stage.live.enter()


async def test_stopping_ends_streams_at_once():
    stage = Stage()
    asyncio.get_running_loop().call_later(1, stage.tails.stop)

    await stage.listen(100)

    assert asyncio.get_running_loop().time() == pytest.approx(1)
