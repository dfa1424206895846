"""Answers that do not come: one alarm per connection watches over all of its requests."""

import asyncio

import pytest

from skep.client.endpoints import parse_address
from skep.client.io_async import Connection, Inbox, Stop
from tests.client.support.scripted import rendered

REQUEST = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"
LONG_S = 30.0
SHORT_S = 0.05


class Transport:
    """Takes what is sent, and answers nothing."""

    def __init__(self):
        self.sent = 0

    def write(self, _):
        self.sent += 1

    def abort(self):
        pass


class Clock:
    """A loop's clock and timers, moved by hand."""

    def __init__(self, loop):
        self._create_future = loop.create_future
        self.now_s = 100.0
        self.alarms = []

    def create_future(self):
        return self._create_future()

    def time(self):
        return self.now_s

    def call_at(self, when_s, ring):
        self.alarms.append(Alarm(when_s, ring))
        return self.alarms[-1]

    def advance_to(self, now_s):
        self.now_s = now_s
        for alarm in [alarm for alarm in self.alarms if alarm.is_due(now_s)]:
            alarm.has_rung = True
            alarm.ring()


class Alarm:
    def __init__(self, when_s, ring):
        self.when_s, self.ring = when_s, ring
        self.is_cancelled = self.has_rung = False

    def when(self):
        return self.when_s

    def cancel(self):
        self.is_cancelled = True

    def is_due(self, now_s):
        return not self.is_cancelled and not self.has_rung and self.when_s <= now_s


def open_on_clock():
    connection = Connection()
    clock = connection._loop = Clock(asyncio.get_running_loop())
    connection.connection_made(Transport())
    return connection, clock


async def asking(connection, timeout_s):
    """Begin an exchange, and return it once its request is sent."""
    task = asyncio.ensure_future(connection.exchange(REQUEST, timeout_s))
    await asyncio.sleep(0)
    return task


async def ask_and_answer(connection, timeout_s):
    task = await asking(connection, timeout_s)
    connection.data_received(rendered(200, {}))
    return await task


async def test_requests_that_are_answered_share_one_alarm():
    connection, clock = open_on_clock()

    for second in range(5):
        clock.now_s = 100.0 + second
        await ask_and_answer(connection, 10.0)

    assert len(clock.alarms) == 1


async def test_an_alarm_of_an_earlier_request_does_not_end_a_later_one():
    connection, clock = open_on_clock()
    await ask_and_answer(connection, 10.0)
    clock.now_s = 109.0
    task = await asking(connection, 10.0)

    clock.advance_to(110.0)
    connection.data_received(rendered(200, {}))

    assert (await task).status == 200


async def test_a_request_ends_at_its_own_time_after_an_alarm_of_an_earlier_one():
    connection, clock = open_on_clock()
    await ask_and_answer(connection, 10.0)
    clock.now_s = 109.0
    task = await asking(connection, 10.0)

    clock.advance_to(110.0)
    clock.advance_to(119.0)

    with pytest.raises(TimeoutError, match="in time"):
        await task
    assert not connection.is_open


async def test_a_request_with_less_time_than_the_one_before_ends_in_its_own_time():
    connection, clock = open_on_clock()
    await ask_and_answer(connection, LONG_S)
    task = await asking(connection, SHORT_S)

    clock.advance_to(100.0 + SHORT_S)

    with pytest.raises(TimeoutError, match="in time"):
        await task


async def test_an_alarm_that_rings_between_requests_leaves_the_connection_open():
    connection, clock = open_on_clock()
    await ask_and_answer(connection, 10.0)

    clock.advance_to(110.0)

    assert connection.is_open
    assert (await ask_and_answer(connection, 10.0)).status == 200


async def test_a_connection_that_ended_leaves_no_alarm_behind():
    connection, clock = open_on_clock()
    await ask_and_answer(connection, 10.0)

    connection.connection_lost(None)

    assert clock.alarms[0].is_cancelled


async def test_a_real_connection_gives_up_a_short_request_after_a_long_one():
    asked = asyncio.Event()

    async def answer_once(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(rendered(200, {}))
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(answer_once, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        address = parse_address(f"http://127.0.0.1:{port}")
        connection = await Connection.open(address, None, LONG_S)
        await connection.exchange(REQUEST, LONG_S)

        with pytest.raises(TimeoutError):
            await connection.exchange(REQUEST, SHORT_S)

        await connection.close()
    assert asked.is_set()


async def test_an_inbox_is_not_woken_for_what_was_taken_before():
    inbox = Inbox()

    async def put_later():
        for _ in range(5):  # turns of the loop, in which the signal of the first arrives
            await asyncio.sleep(0)
        inbox.put(b"second")

    putting = asyncio.ensure_future(put_later())
    inbox.put(b"first")

    assert await inbox.take(LONG_S) == b"first"  # at once: its signal is still on the way
    assert await inbox.take(LONG_S) == b"second"
    await putting


async def test_an_inbox_that_is_waited_on_can_be_stopped():
    inbox, stop = Inbox(), Stop()
    waiting = asyncio.ensure_future(inbox.take(LONG_S, stop))
    await asyncio.sleep(0)
    stop.set()

    with pytest.raises(TimeoutError):
        await waiting
    with pytest.raises(TimeoutError):
        await inbox.take(LONG_S, stop)
