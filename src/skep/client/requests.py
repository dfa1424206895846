"""What a session decides and keeps, without waiting: rendering, idle connections, repetition.

Both kinds of client share it; `aio.session` and `blocking.session` do the waiting.
"""

import random
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from skep.client.endpoints import Endpoint, Endpoints, path_of
from skep.client.errors import GATEWAY_STATUSES, NotSent, Stopped, Unreachable, error_of
from skep.client.http import Answer, render_header, render_request
from skep.client.io_shared import StopBase
from skep.client.live_link import LiveLink
from skep.client.options import RetryPolicy, SessionOptions
from skep.client.pushes import encode
from skep.client.values import PushResults, QueuedOperation

IDLE_CONNECTIONS_MAX: Final = 64
"""Connections kept per broker; more are opened when they are needed, and closed after use."""

ASK_FOR_QUEUEING: Final = b"Prefer: respond-async\r\n"
"""Tells the broker that this client understands a 202: queued, the answer comes later."""

QueuedOperationBehavior: TypeAlias = Literal["return", "poll"]

_decode_queued: Final = msgspec.json.Decoder(QueuedOperation).decode

_random: Final = random.Random()  # noqa: S311 (jitter, not secrets)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """A request, and how its answer is read."""

    method: str
    path: str
    read: Callable[[bytes], T]
    body: bytes | None = None
    affinity: str = ""
    retry: RetryPolicy | None = None
    is_repeatable: bool = True
    """Whether it may be sent again when it may have been carried out."""
    wait_s: float = 0.0
    """How long the broker may take until it answers."""


@dataclass(frozen=True, slots=True)
class Pushes(Generic[T]):
    """The requests of one push, which are sent one after the other."""

    bodies: Iterable[tuple[str, bytes]]
    """Each with the queue whose broker it goes to."""
    item_count: int
    read: Callable[[PushResults], T]
    behavior: QueuedOperationBehavior | None


def ask(
    kind: type[T], method: str, *segments: str, members: object = None, **query: object
) -> Request[T]:
    """Return a request whose answer is of this kind."""
    body = None if members is None else encode(members)
    return Request(method, path_of(*segments, **query), msgspec.json.Decoder(kind).decode, body)


def ask_part(kind: type[T], part: str, method: str, *segments: str, **query: object) -> Request[T]:
    """Return a request of whose answer only one member matters, which is of this kind."""
    whole = ask(dict[str, msgspec.Raw], method, *segments, **query)
    decode = msgspec.json.Decoder(kind).decode
    return Request(
        whole.method, whole.path, lambda body: decode(whole.read(body)[part]), whole.body
    )


def tell(method: str, *segments: str) -> Request[None]:
    """Return a request whose answer says nothing."""
    return Request(method, path_of(*segments), lambda _: None)


class Doubt:
    """Whether a request may have been carried out although its answer was lost."""

    def __init__(self) -> None:
        self.is_possible = False


def queued_operation(answer: Answer) -> QueuedOperation | None:
    """Return what an answer says about queueing; None if the request was carried out."""
    return _decode_queued(answer.body) if answer.status == 202 else None


def no_answer(endpoint: Endpoint, error: OSError) -> str:
    """Return the message of the error for a broker that did not answer."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"the broker at {endpoint.address.url} does not answer: {reason}"


def _render_headers(headers: Mapping[str, str]) -> bytes:
    return b"".join(render_header(name, value) for name, value in headers.items())


class Tries:
    """The tries of one request: which broker is asked, and what follows a failure."""

    def __init__(
        self,
        endpoints: Endpoints,
        policy: RetryPolicy,
        affinity: str,
        doubt: Doubt | None,
        *,
        is_repeatable: bool = True,
    ) -> None:
        self._is_repeatable: Final = is_repeatable
        self._endpoints: Final = endpoints
        self._policy: Final = policy
        self._affinity: Final = affinity
        self._doubt: Final = doubt
        self._tried: Final[set[Endpoint]] = set()
        self._failures = 0

    def choose(self) -> Endpoint:
        """Return the broker to ask next."""
        return self._endpoints.choose(self._affinity, monotonic(), self._tried)

    def fail(self, endpoint: Endpoint, outcome: Answer | Unreachable) -> float:
        """Note a failure; return how long to wait before the next try.

        Raises:
            SkepError: There is none.
        """
        status = outcome.status if isinstance(outcome, Answer) else None
        # A full queue is full at every broker; only one that cannot serve is passed over.
        if status is None or status in GATEWAY_STATUSES:
            self._endpoints.report_failure(endpoint, monotonic())
            if self._doubt is not None and not isinstance(outcome, NotSent):
                self._doubt.is_possible = True
        self._tried.add(endpoint)
        self._failures += 1
        is_over = not self._policy.is_repeated(status) or self._is_doubtful(outcome)
        if is_over or not self._policy.has_try_left(self._failures):
            raise error_of(outcome) if isinstance(outcome, Answer) else outcome
        if self._endpoints.has_other(monotonic(), self._tried):
            return 0.0
        self._tried.clear()
        retry_after_s = outcome.retry_after_s if isinstance(outcome, Answer) else None
        return self._policy.pause_s(self._failures, retry_after_s, _random.random())

    def _is_doubtful(self, outcome: Answer | Unreachable) -> bool:
        """Whether a request that must not be done twice may have been done."""
        if self._is_repeatable or isinstance(outcome, NotSent):
            return False
        return not isinstance(outcome, Answer) or outcome.status in GATEWAY_STATUSES


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


class SessionBase(Generic[C]):
    """What a session keeps: its brokers, their idle connections, and whether it is open."""

    def __init__(self, options: SessionOptions) -> None:
        self.options: Final = options
        self.endpoints: Final = Endpoints(options.urls, cool_off_s=options.cool_off_s)
        self._idle: Final = IdleConnections[C](self.endpoints)
        self._tls = options.tls
        if self._tls is None and any(each.address.is_tls for each in self.endpoints.all):
            # Only then: reading the system's certificates takes 50 ms.
            self._tls = ssl.create_default_context()
        self._headers: Final = _render_headers(options.headers)
        self._is_closed = False
        self.patient: Final = replace(options.retry, retries=None)
        """The retry policy that never gives up: for consumers and buffers."""

    def check_open(self, stop: StopBase | None) -> None:
        """Check that requests may still be sent.

        Raises:
            Stopped: The session is closed, or the caller was asked to stop.
        """
        if self._is_closed:
            raise Stopped("the client is closed: make a new one")
        if stop is not None and stop.is_set:
            raise Stopped

    def _render(
        self, endpoint: Endpoint, method: str, path: str, body: bytes | None, headers: bytes
    ) -> bytes:
        """Return the bytes of a request to a broker, with the headers and the token of all."""
        address = endpoint.address
        return render_request(
            method,
            address.prefix + path,
            host=address.host_header,
            headers=self._headers + _render_headers(self._bearer()) + headers,
            body=body,
        )

    def _bearer(self) -> dict[str, str]:
        token = self.options.token
        if token is None:
            return {}
        return {"Authorization": f"Bearer {token if isinstance(token, str) else token()}"}

    def _open_link(self, endpoint: Endpoint, path: str) -> LiveLink:
        return LiveLink.open(
            endpoint.address,
            path,
            headers={**self.options.headers, **self._bearer()},
            tls=self._tls,
            timeout_s=self.options.connect_timeout_s,
        )
