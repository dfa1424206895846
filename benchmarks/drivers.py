"""What the connections of a role do: send, check the answer, send again.

Every answer is checked. A status outside 2xx, a push that stored fewer items than were sent, an ack
that was refused and a lost connection are errors, counted and shown. Each connection has one
request in flight, and one that failed pauses before the next.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable
from typing import cast

from benchmarks import wire
from benchmarks.errors import UnexpectedFraming
from benchmarks.plan import Counts, PopRole, PushRole

_PAUSE_AFTER_ERROR_S = 0.05
_PAUSE_AFTER_EMPTY_S = 0.002
_EXAMPLES_MAX = 5
_EXAMPLE_CHARACTERS = 300


class Tally:
    """The counters and latency samples of one role."""

    __slots__ = ("counts", "errors", "examples", "latencies_us")

    def __init__(self) -> None:
        self.counts = Counts()
        self.errors: Counter[str] = Counter()
        self.examples: list[str] = []
        self.latencies_us: list[int] = []

    def fail(self, kind: str, detail: str) -> None:
        """Count an error and keep the first few as they were."""
        self.errors[kind] += 1
        if len(self.examples) < _EXAMPLES_MAX:
            self.examples.append(f"{kind}: {detail[:_EXAMPLE_CHARACTERS]}")

    def record_latency(self, since_s: float) -> None:
        self.latencies_us.append(int((time.monotonic() - since_s) * 1e6))


class Connection(asyncio.Protocol):
    """One keep-alive connection of a role, with at most one request in flight."""

    __slots__ = (
        "_driver",
        "_reader",
        "_transport",
        "awaited_acks",
        "clock_start_s",
        "is_in_flight",
    )

    def __init__(self, driver: "Driver") -> None:
        self._driver = driver
        self._reader = wire.AnswerReader()
        self._transport: asyncio.Transport | None = None
        self.is_in_flight = False
        self.clock_start_s = 0.0
        self.awaited_acks = 0

    def send(self, request: bytes, clock_start_s: float) -> None:
        """Send; the latency of the answer counts from `clock_start_s`."""
        assert self._transport is not None
        assert not self.is_in_flight
        self.is_in_flight = True
        self.clock_start_s = clock_start_s
        self._transport.write(request)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._driver.on_ready(self)

    def data_received(self, data: bytes) -> None:
        try:
            answer = self._reader.feed(data)
        except (UnexpectedFraming, ValueError) as error:
            self._driver.tally.fail("unreadable answer", str(error))
            self.is_in_flight = False
            self.close()
            return
        if answer is not None:
            self.is_in_flight = False
            self._driver.on_answer(self, answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._driver.on_lost(self, exc)


class Driver(ABC):
    """What the connections of one role do. Subclasses say what to send and how to check it."""

    def __init__(self, connection_count: int, reconnect: "Callable[[Driver], None]") -> None:
        self.tally = Tally()
        self.connection_count = connection_count
        self.connections: set[Connection] = set()
        self.is_stopping = False
        self._reconnect = reconnect

    @property
    def is_done(self) -> bool:
        """Whether a role with a limit has reached it; one without never has."""
        return False

    @property
    def is_busy(self) -> bool:
        """Whether an answer is due soon, so that a stop should wait for it."""
        return any(connection.is_in_flight for connection in self.connections)

    def start(self) -> None:
        """Begin; called once all connections stand."""
        self.is_stopping = False

    def on_ready(self, connection: Connection) -> None:
        """Take a connection that has nothing in flight."""
        self.connections.add(connection)
        if not self.is_stopping:
            self.send_next(connection)

    @abstractmethod
    def send_next(self, connection: Connection) -> None:
        """Send the connection's next request."""

    @abstractmethod
    def on_success(self, connection: Connection, body: bytes) -> None:
        """Take a good answer."""

    def on_answer(self, connection: Connection, answer: wire.Answer) -> None:
        self.tally.counts.requests += 1
        if answer.is_success:
            self.on_success(connection, answer.body)
        else:
            self.give_up(connection, f"status {answer.status}", answer.body)

    def give_up(self, connection: Connection, kind: str, body: bytes) -> None:
        """Count the request as failed; the connection goes on after a pause."""
        self.tally.fail(kind, body.decode(errors="replace"))
        connection.awaited_acks = 0
        self._resume_later(connection, _PAUSE_AFTER_ERROR_S)

    def on_lost(self, connection: Connection, cause: Exception | None) -> None:
        self.connections.discard(connection)
        if self.is_stopping:
            return
        # A server may close a connection that is idle; one that owes an answer is an error.
        if connection.is_in_flight:
            self.tally.fail("connection lost", repr(cause))
        self._reconnect(self)

    def _resume_later(self, connection: Connection, pause_s: float) -> None:
        asyncio.get_running_loop().call_later(pause_s, self._resume, connection)

    def _resume(self, connection: Connection) -> None:
        if connection in self.connections and not connection.is_in_flight:
            self.on_ready(connection)


class Producer(Driver):
    """Pushes, as fast as it is answered or at a fixed rate."""

    def __init__(self, role: PushRole, host: str, reconnect: Callable[[Driver], None]) -> None:
        super().__init__(role.connections, reconnect)
        self._role = role
        self._requests = wire.PushRequests(role, host)
        self._sent = 0
        self._answered = 0
        # First in, first out: a connection that is never used would be closed by the server.
        self._idle: deque[Connection] = deque()
        self._due: deque[float] = deque()
        self._begin_s = 0.0
        self._due_count = 0

    @property
    def is_done(self) -> bool:
        return self._role.request_limit is not None and self._answered >= self._role.request_limit

    def start(self) -> None:
        if self._role.rate is not None:
            self._begin_s = time.monotonic()
            self._release_due(self._role.rate)

    def send_next(self, connection: Connection) -> None:
        if self._role.rate is not None:
            self._idle.append(connection)
            self._send_due()
        elif self._role.request_limit is None or self._sent < self._role.request_limit:
            self._send(connection, time.monotonic())

    def on_success(self, connection: Connection, body: bytes) -> None:
        self._answered += 1
        queued = wire.count_queued(body)
        self.tally.counts.messages += queued
        if queued != self._role.items:
            self.give_up(connection, f"stored {queued} of {self._role.items} items", body)
            return
        self.tally.record_latency(connection.clock_start_s)
        self.on_ready(connection)

    def on_lost(self, connection: Connection, cause: Exception | None) -> None:
        if connection in self._idle:
            self._idle.remove(connection)
        super().on_lost(connection, cause)

    def _release_due(self, rate: float) -> None:
        """Mark every request whose time has come as due, and call again when the next one is."""
        if self.is_stopping:
            return
        now = time.monotonic()
        while (due_s := self._begin_s + self._due_count / rate) <= now:
            self._due.append(due_s)
            self._due_count += 1
        self._send_due()
        asyncio.get_running_loop().call_later(due_s - now, self._release_due, rate)

    def _send_due(self) -> None:
        while self._due and self._idle:
            self._send(self._idle.popleft(), self._due.popleft())

    def _send(self, connection: Connection, clock_start_s: float) -> None:
        request = self._requests.render(self._sent, int(clock_start_s * 1e6))
        self._sent += 1
        connection.send(request, clock_start_s)


class Consumer(Driver):
    """Pops, and acks what it popped unless the pop itself did."""

    def __init__(self, role: PopRole, host: str, reconnect: Callable[[Driver], None]) -> None:
        super().__init__(role.connections, reconnect)
        self._role = role
        self._host = host
        self._pop = wire.pop_request(
            host=host,
            queue=role.queue,
            batch=role.batch,
            partitions=role.partitions,
            auto_ack=role.auto_ack,
            wait_ms=role.wait_ms,
            group=role.group,
        )

    @property
    def is_busy(self) -> bool:
        # Parked polls may stay for their whole timeout; only acks are worth waiting for.
        return any(connection.awaited_acks for connection in self.connections)

    def send_next(self, connection: Connection) -> None:
        connection.send(self._pop, time.monotonic())

    def on_success(self, connection: Connection, body: bytes) -> None:
        if connection.awaited_acks:
            self._finish_ack(connection, body)
            return
        count = wire.count_messages(body)
        if count == 0:
            self.tally.counts.empties += 1
            self._resume_later(connection, _PAUSE_AFTER_EMPTY_S)
            return
        self._record_latencies(connection, body)
        if self._role.auto_ack:
            self.tally.counts.messages += count
            self.on_ready(connection)
        else:
            connection.awaited_acks = count
            request = wire.ack_request(host=self._host, group=self._role.group, popped=body)
            connection.send(request, time.monotonic())

    def _finish_ack(self, connection: Connection, body: bytes) -> None:
        acked, awaited = wire.count_acknowledged(body), connection.awaited_acks
        self.tally.counts.messages += acked
        connection.awaited_acks = 0
        if acked != awaited:
            self.give_up(connection, f"acked {acked} of {awaited} messages", body)
        else:
            self.on_ready(connection)

    def _record_latencies(self, connection: Connection, body: bytes) -> None:
        if not self._role.is_stamped:
            self.tally.record_latency(connection.clock_start_s)
            return
        now_us = int(time.monotonic() * 1e6)
        self.tally.latencies_us.extend(now_us - sent_us for sent_us in wire.sent_stamps_us(body))
