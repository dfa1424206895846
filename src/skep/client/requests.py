"""What a session decides and keeps, without waiting: rendering, idle connections, repetition.

Both kinds of client share it; `aio.session` and `blocking.session` do the waiting.
"""

import random
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from skep.client.endpoints import Endpoint, Endpoints
from skep.client.errors import GATEWAY_STATUSES, NotSent, Unreachable, error_of
from skep.client.http import Answer, render_header, render_request
from skep.client.options import RetryPolicy, SessionOptions
from skep.client.values import Operation, QueuedOperation

IDLE_CONNECTIONS_MAX: Final = 64
"""Connections kept per broker; more are opened when they are needed, and closed after use."""

ASK_FOR_QUEUEING: Final = b"Prefer: respond-async\r\n"
"""Tells the broker that this client understands a 202: queued, the answer comes later."""

_decode_queued: Final = msgspec.json.Decoder(QueuedOperation).decode
decode_operation: Final = msgspec.json.Decoder(Operation).decode

_random: Final = random.Random()  # noqa: S311 (jitter, not secrets)


class Doubt:
    """Whether a request may have been carried out although its answer was lost."""

    def __init__(self) -> None:
        self.is_possible = False


def queued_operation(answer: Answer) -> QueuedOperation | None:
    """Return what an answer says about queueing; None if the request was carried out."""
    return _decode_queued(answer.body) if answer.status == 202 else None


def default_tls(endpoints: Endpoints) -> ssl.SSLContext | None:
    """Return a context with the system's certificates; reading them takes 50 ms, so if needed."""
    is_needed = any(endpoint.address.is_tls for endpoint in endpoints.all)
    return ssl.create_default_context() if is_needed else None


def no_answer(endpoint: Endpoint, error: OSError) -> str:
    """Return the message of the error for a broker that did not answer."""
    reason = str(error) or type(error).__name__
    return f"the broker at {endpoint.address.url} does not answer: {reason}"


class Renderer:
    """Renders requests, with the headers and the token of a session."""

    def __init__(self, options: SessionOptions) -> None:
        self._options: Final = options
        self._headers: Final = b"".join(
            render_header(name, value) for name, value in options.headers.items()
        )

    def render(
        self, endpoint: Endpoint, method: str, path: str, body: bytes | None, headers: bytes
    ) -> bytes:
        """Return the bytes of a request to a broker."""
        address = endpoint.address
        token = b"".join(render_header(name, value) for name, value in self._bearer().items())
        return render_request(
            method,
            address.prefix + path,
            host=address.host_header,
            headers=self._headers + token + headers,
            body=body,
        )

    def link_headers(self) -> dict[str, str]:
        """Return the headers that open a WebSocket."""
        return {**self._options.headers, **self._bearer()}

    def _bearer(self) -> dict[str, str]:
        token = self._options.token
        if token is None:
            return {}
        return {"Authorization": f"Bearer {token if isinstance(token, str) else token()}"}


class Tries:
    """The tries of one request: which broker is asked, and what follows a failure."""

    def __init__(
        self,
        endpoints: Endpoints,
        policy: RetryPolicy,
        affinity: str,
        doubt: Doubt | None,
        clock: Callable[[], float],
    ) -> None:
        self._endpoints: Final = endpoints
        self._policy: Final = policy
        self._affinity: Final = affinity
        self._doubt: Final = doubt
        self._clock: Final = clock
        self._tried: Final[set[Endpoint]] = set()
        self._failures = 0

    def choose(self) -> Endpoint:
        """Return the broker to ask next."""
        return self._endpoints.choose(self._affinity, self._clock(), self._tried)

    def fail(self, endpoint: Endpoint, outcome: Answer | Unreachable) -> float:
        """Note a failure; return how long to wait before the next try.

        Raises:
            SkepError: There is none.
        """
        status = outcome.status if isinstance(outcome, Answer) else None
        # A full queue is full at every broker; only one that cannot serve is passed over.
        if status is None or status in GATEWAY_STATUSES:
            self._endpoints.report_failure(endpoint, self._clock())
            if self._doubt is not None and not isinstance(outcome, NotSent):
                self._doubt.is_possible = True
        self._tried.add(endpoint)
        self._failures += 1
        if not self._policy.is_repeated(status) or not self._policy.has_try_left(self._failures):
            raise error_of(outcome) if isinstance(outcome, Answer) else outcome
        if self._endpoints.has_other(self._clock(), self._tried):
            return 0.0
        self._tried.clear()
        retry_after_s = outcome.retry_after_s if isinstance(outcome, Answer) else None
        return self._policy.pause_s(self._failures, retry_after_s, _random.random())


class Poolable(Protocol):
    """A connection that can be kept for the next request."""

    is_open: bool

    def abort(self) -> None:
        """Cut it."""
        ...


C = TypeVar("C", bound=Poolable)


class IdleConnections(Generic[C]):
    """Connections that wait for the next request, by broker; any thread may take one."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._idle: Final[dict[Endpoint, deque[C]]] = {
            endpoint: deque() for endpoint in endpoints.all
        }

    def take(self, endpoint: Endpoint) -> C | None:
        """Take out a connection that is open, if there is one."""
        idle = self._idle[endpoint]
        while idle:
            try:
                connection = idle.pop()
            except IndexError:  # another thread was quicker
                return None
            if connection.is_open:
                return connection
        return None

    def put_back(self, endpoint: Endpoint, connection: C) -> bool:
        """Keep a connection if it is open and there is room; return whether it is kept."""
        idle = self._idle[endpoint]
        if not connection.is_open or len(idle) >= IDLE_CONNECTIONS_MAX:
            return False
        idle.append(connection)
        return True

    def abort(self, endpoint: Endpoint) -> None:
        """Cut all connections to a broker."""
        idle = self._idle[endpoint]
        while idle:
            idle.pop().abort()

    def take_all(self) -> Iterator[C]:
        """Take out all connections."""
        for idle in self._idle.values():
            while idle:
                yield idle.pop()
