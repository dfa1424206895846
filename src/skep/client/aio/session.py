"""Requests to the brokers: connections, repetition, failover, tokens, queued operations.

`Session.request` returns a successful answer or raises; everything else of the client is built on
it. A connection that broke while it was idle is replaced without counting as a failure.
"""

import random
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Final

import msgspec

from skep.client.endpoints import Endpoint, Endpoints, path_of
from skep.client.errors import GATEWAY_STATUSES, NotSent, Stopped, Unreachable, error_of
from skep.client.http import Answer, render_header, render_request
from skep.client.io_async import Connection, Stop, run_aside
from skep.client.live_link import LiveLink
from skep.client.options import RetryPolicy, SessionOptions
from skep.client.values import Operation, QueuedOperation
from skep.model.errors import Refused

IDLE_CONNECTIONS_MAX: Final = 64
"""Connections kept per broker; more are opened when they are needed, and closed after use."""

ASK_FOR_QUEUEING: Final = b"Prefer: respond-async\r\n"
"""Tells the broker that this client understands a 202: queued, the answer comes later."""

_POLL_S_MIN: Final = 0.05
_POLL_S_MAX: Final = 2.0

_decode_queued: Final = msgspec.json.Decoder(QueuedOperation).decode
_decode_operation: Final = msgspec.json.Decoder(Operation).decode


class Doubt:
    """Whether a request may have been carried out although its answer was lost."""

    def __init__(self) -> None:
        self.is_possible = False


def queued_operation(answer: Answer) -> QueuedOperation | None:
    """Return what an answer says about queueing; None if the request was carried out."""
    return _decode_queued(answer.body) if answer.status == 202 else None


class Session:
    """Requests to the brokers of a client."""

    def __init__(self, options: SessionOptions, *, clock: Callable[[], float] = monotonic) -> None:
        self.options: Final = options
        self.endpoints: Final = Endpoints(options.urls, cool_off_s=options.cool_off_s)
        self._clock: Final = clock
        self._idle: Final[dict[Endpoint, deque[Connection]]] = {
            endpoint: deque() for endpoint in self.endpoints.all
        }
        self._tls: Final = options.tls or self._default_tls()
        self._headers: Final = b"".join(
            render_header(name, value) for name, value in options.headers.items()
        )
        self._random: Final = random.Random()  # noqa: S311 (jitter, not secrets)
        self._is_closed = False
        self.patient: Final = replace(options.retry, retries=None)
        """The retry policy that never gives up: for consumers and buffers."""

    def _default_tls(self) -> ssl.SSLContext | None:
        # Reading the system's certificates takes 50 ms, so only where they are needed.
        is_needed = any(endpoint.address.is_tls for endpoint in self.endpoints.all)
        return ssl.create_default_context() if is_needed else None

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        affinity: str = "",
        timeout_s: float | None = None,
        retry: RetryPolicy | None = None,
        stop: Stop | None = None,
        headers: bytes = b"",
        doubt: Doubt | None = None,
    ) -> Answer:
        """Return the answer of the first broker that carries the request out.

        Args:
            method: Of HTTP.
            path: With its query, percent-encoded.
            body: JSON.
            affinity: Requests of equal affinity go to the same broker while it is well.
            timeout_s: For one try, beyond the session's own.
            retry: Instead of the session's own.
            stop: Ends the waiting.
            headers: Further header lines.
            doubt: Told when the outcome of a try is unknown.

        Raises:
            SkepError: The request was refused, or no broker answered in all tries.
        """
        tried: set[Endpoint] = set()
        failures = 0
        while True:
            self.check_open(stop)
            endpoint = self.endpoints.choose(affinity, self._clock(), tried)
            rendered = self._render(endpoint, method, path, body, headers)
            outcome = await self._try(endpoint, rendered, timeout_s or self.options.timeout_s, stop)
            if isinstance(outcome, Answer) and 200 <= outcome.status < 300:
                self.endpoints.report_success(endpoint)
                return outcome
            self.check_open(stop)
            self._judge(endpoint, outcome, doubt)
            tried.add(endpoint)
            failures += 1
            policy = retry or self.options.retry
            self._raise_if_final(policy, outcome, failures)
            if not self.endpoints.has_other(self._clock(), tried):
                tried.clear()
                pause_s = policy.pause_s(failures, _retry_after_s(outcome), self._random.random())
                await (stop or Stop()).pause(pause_s)

    def check_open(self, stop: Stop | None) -> None:
        """Check that requests may still be sent.

        Raises:
            Stopped: The session is closed, or the caller was asked to stop.
        """
        if self._is_closed:
            raise Stopped("the client is closed: make a new one")
        if stop is not None and stop.is_set:
            raise Stopped

    def _judge(
        self, endpoint: Endpoint, outcome: Answer | Unreachable, doubt: Doubt | None
    ) -> None:
        # A full queue is full at every broker; only one that cannot serve is passed over.
        if isinstance(outcome, Unreachable) or outcome.status in GATEWAY_STATUSES:
            self.endpoints.report_failure(endpoint, self._clock())
            if doubt is not None and not isinstance(outcome, NotSent):
                doubt.is_possible = True

    def _raise_if_final(
        self, policy: RetryPolicy, outcome: Answer | Unreachable, failures: int
    ) -> None:
        is_answer = isinstance(outcome, Answer)
        if not policy.is_repeated(outcome.status if is_answer else None) or (
            not policy.has_try_left(failures)
        ):
            raise error_of(outcome) if is_answer else outcome

    def _render(
        self, endpoint: Endpoint, method: str, path: str, body: bytes | None, headers: bytes
    ) -> bytes:
        address = endpoint.address
        return render_request(
            method,
            address.prefix + path,
            host=address.host_header,
            headers=self._headers + self._authorization() + headers,
            body=body,
        )

    async def _try(
        self, endpoint: Endpoint, request: bytes, timeout_s: float, stop: Stop | None
    ) -> Answer | Unreachable:
        """Ask one broker."""
        cls: type[Unreachable] = NotSent
        try:
            connection = self._take_idle(endpoint) or await self._open(endpoint)
            cls = Unreachable
            was_idle = connection.was_used
            try:
                answer = await connection.exchange(request, timeout_s, stop)
            except ConnectionError:
                if not was_idle or (stop is not None and stop.is_set):
                    raise
                # It may have been closed while it was idle, which says nothing about the broker.
                self._drop_idle(endpoint)
                connection = await self._open(endpoint)
                answer = await connection.exchange(request, timeout_s, stop)
        except OSError as error:
            unreachable = cls(_no_answer(endpoint, error))
            unreachable.__cause__ = error
            return unreachable
        if not self._put_back(endpoint, connection):
            await connection.close()
        return answer

    async def open_link(self, path: str, affinity: str) -> LiveLink:
        """Open a WebSocket to the broker that requests of this affinity go to.

        Raises:
            Unreachable: The broker does not answer; another is chosen the next time.
            LinkRefused: The broker has no WebSocket.
        """
        self.check_open(None)
        endpoint = self.endpoints.choose(affinity, self._clock())
        opening = partial(
            LiveLink.open,
            endpoint.address,
            path,
            headers={**self.options.headers, **self._bearer()},
            tls=self._tls,
            timeout_s=self.options.connect_timeout_s,
        )
        try:
            return await run_aside(opening)
        except OSError as error:
            self.endpoints.report_failure(endpoint, self._clock())
            raise NotSent(_no_answer(endpoint, error)) from error

    def _take_idle(self, endpoint: Endpoint) -> Connection | None:
        idle = self._idle[endpoint]
        while idle:
            try:
                connection = idle.pop()
            except IndexError:  # another thread was quicker
                return None
            if connection.is_open:
                return connection
        return None

    async def _open(self, endpoint: Endpoint) -> Connection:
        return await Connection.open(endpoint.address, self._tls, self.options.connect_timeout_s)

    def _put_back(self, endpoint: Endpoint, connection: Connection) -> bool:
        idle = self._idle[endpoint]
        if not connection.is_open or len(idle) >= IDLE_CONNECTIONS_MAX or self._is_closed:
            return False
        idle.append(connection)
        return True

    def _drop_idle(self, endpoint: Endpoint) -> None:
        idle = self._idle[endpoint]
        while idle:
            idle.pop().abort()

    def _authorization(self) -> bytes:
        if self.options.token is None:
            return b""
        return b"".join(render_header(name, value) for name, value in self._bearer().items())

    def _bearer(self) -> dict[str, str]:
        token = self.options.token
        if token is None:
            return {}
        return {"Authorization": f"Bearer {token if isinstance(token, str) else token()}"}

    async def operation(self, operation_id: str) -> Operation:
        """Return how far an operation is that the broker queued."""
        answer = await self.request("GET", path_of("operations", operation_id))
        return _decode_operation(answer.body)

    async def wait_for(self, queued: QueuedOperation) -> bytes:
        """Wait until a queued operation is over, and return its answer.

        Raises:
            Refused: It failed or was cancelled.
        """
        pause_s = _POLL_S_MIN
        while not (operation := await self.operation(queued.operation_id)).is_over:
            await Stop().pause(pause_s)
            pause_s = min(pause_s * 2, _POLL_S_MAX)
        if operation.status != "completed":
            raise Refused(f"operation {queued.operation_id} {operation.status}: {operation.error}")
        return bytes(operation.answer)

    async def close(self) -> None:
        """End all connections; requests from now on raise `Stopped`."""
        self._is_closed = True
        for idle in self._idle.values():
            while idle:
                await idle.pop().close()


def _no_answer(endpoint: Endpoint, error: OSError) -> str:
    reason = str(error) or type(error).__name__
    return f"the broker at {endpoint.address.url} does not answer: {reason}"


def _retry_after_s(outcome: Answer | Unreachable) -> float | None:
    return outcome.retry_after_s if isinstance(outcome, Answer) else None
