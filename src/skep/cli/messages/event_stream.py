"""Server-sent events of a broker, read one after the other.

Connections end: brokers are restarted, proxies lose patience. Then the stream is opened again
behind the last event that was seen, so the caller sees every event once and no seam.
"""

import http.client
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle
from math import inf
from time import monotonic, sleep
from typing import Any, Final, TypeAlias

from skep.client.endpoints import Address, parse_address
from skep.client.errors import NotSent, Unreachable, error_of
from skep.client.http import Answer
from skep.model.errors import Overloaded, Unavailable

CONNECT_TIMEOUT_S: Final = 5.0
SILENCE_S_MAX: Final = 45.0
"""A broker that is well says something every 15 seconds."""
PAUSE_S: Final = 0.5

OnWait: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Event:
    """One event."""

    id: str
    kind: str
    data: bytes


class EventStream:
    """Events of a path, for ever or until nothing came for a while.

    Args:
        urls: Of instances of one installation; any of them has all events.
        token: What says who is calling.
        path: With its query.
        idle_s: End when no event came for so long.
        on_wait: Hears why there is an interruption.
    """

    def __init__(
        self,
        urls: Sequence[str],
        token: str | None,
        path: str,
        *,
        idle_s: float | None = None,
        on_wait: OnWait,
    ) -> None:
        self._addresses: Final = cycle([parse_address(url) for url in urls])
        self._headers: Final = {"accept": "text/event-stream"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._path: Final = path
        self._idle_s: Final = idle_s
        self._on_wait: Final = on_wait
        self._last_id: str | None = None
        self._has_begun = False
        self._heard_at_s = monotonic()

    def events(self) -> Generator[Event]:
        """Yield events.

        Raises:
            SkepError: The first connection fails, or a later one is refused for good.
        """
        self._heard_at_s = monotonic()
        while True:
            reason = "the connection ended"
            try:
                yield from self._one_connection()
            except (Unavailable, Overloaded) as error:
                if not self._has_begun:
                    raise
                reason = error.message
            if self._left_s() <= 0:
                return
            self._on_wait(reason)
            sleep(min(PAUSE_S, self._left_s()))

    def _left_s(self) -> float:
        """Return how long nothing may come before this is over."""
        if self._idle_s is None:
            return inf
        return self._heard_at_s + self._idle_s - monotonic()

    def _one_connection(self) -> Generator[Event]:
        address = next(self._addresses)
        with closing(_connection(address)) as connection:
            try:
                connection.connect()
            except OSError as error:
                raise NotSent(f"no broker listens at {address.url}: {error}") from error
            # Kept, because the connection lets go of it when the answer begins.
            sock: Any = connection.sock
            try:
                yield from self._answered(connection, address, sock)
            except TimeoutError:
                return  # quiet for too long: over, or the connection is dead
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable(f"{address.url} hung up: {error}") from error

    def _answered(
        self, connection: http.client.HTTPConnection, address: Address, sock: Any
    ) -> Generator[Event]:
        last = {} if self._last_id is None else {"last-event-id": self._last_id}
        connection.request("GET", address.prefix + self._path, headers={**self._headers, **last})
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise error_of(Answer(answer.status, b"", answer.read()))
        self._has_begun = True

        def lines() -> Generator[bytes]:
            while True:
                sock.settimeout(max(min(SILENCE_S_MAX, self._left_s()), 0.001))
                line = answer.readline()
                if not line:
                    return
                yield line

        for event in parse_events(lines()):
            self._last_id = event.id or self._last_id
            if event.kind == "error":
                raise error_of(Answer(http.client.SERVICE_UNAVAILABLE, b"", event.data))
            if event.data:
                self._heard_at_s = monotonic()
                yield event


def parse_events(lines: Iterable[bytes]) -> Generator[Event]:
    """Put events together; one without data only says a position."""
    position, kind, data = "", "message", list[bytes]()
    for line in lines:
        text = line.rstrip(b"\r\n")
        if not text:
            yield Event(position, kind, b"\n".join(data))
            position, kind, data = "", "message", []
            continue
        name, _, value = text.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"id":
                position = value.decode()
            case b"event":
                kind = value.decode()
            case b"data":
                data.append(value)
            case _:
                pass  # a comment, or a field of a newer broker


def _connection(address: Address) -> http.client.HTTPConnection:
    cls = http.client.HTTPSConnection if address.is_tls else http.client.HTTPConnection
    return cls(address.host, address.port, timeout=CONNECT_TIMEOUT_S)
