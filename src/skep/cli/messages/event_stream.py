"""Server-sent events of a broker.

When a connection ends, the stream is opened again after the last event seen, so the caller sees
every event once.
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
"""A healthy broker sends something every 15 seconds."""
PAUSE_S: Final = 0.5

OnWait: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Event:
    """One event."""

    id: str
    kind: str
    data: bytes


class EventStream:
    """Events of a path, forever or until none arrived for `idle_s`.

    Each URL is an instance of one installation, and has all events. `on_wait` is called with the
    reason of an interruption.
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
            SkepError: The first connection fails, or a later one is refused permanently.
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
        """Return how much longer to wait for an event."""
        if self._idle_s is None:
            return inf
        return self._heard_at_s + self._idle_s - monotonic()

    def _one_connection(self) -> Generator[Event]:
        address = next(self._addresses)
        with closing(_connection(address)) as connection:
            try:
                connection.connect()
            except OSError as error:
                raise NotSent(f"cannot connect to {address.url}: {error}") from error
            # The connection drops its reference when the answer begins.
            sock: Any = connection.sock
            try:
                yield from self._answered(connection, address, sock)
            except TimeoutError:
                return  # silent for too long: finished, or the connection is dead
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable(f"{address.url} closed the connection: {error}") from error

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
    """Parse events; one without data only carries a position."""
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
