"""Limits of connections, when they may read, and what the connections of a server share."""

from asyncio import AbstractEventLoop, Transport
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from skep.server.hot.exchange import HotRoutes

if TYPE_CHECKING:
    from skep.server.edge.protocol import FastPathProtocol

READ_BYTES_MAX: Final = 256 * 1024
"""The largest read of asyncio and uvloop. Limits that are checked between reads may be exceeded by
this much."""

WIRE_BYTES_PER_BODY_BYTE: Final = 8
"""A chunked body of one-byte chunks takes six bytes on the wire for each of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of a connection. The keep-alive timeout is uvicorn's setting."""

    body_bytes_max: int
    connections_max: int = 10_000
    """Per server. Further connections are answered 503 and closed."""
    head_bytes_max: int = 64 * 1024
    queue_length_max: int = 64
    """Unanswered requests after which reading stops; at least 2."""
    read_timeout_s: float = 30.0
    """From a request's first byte to its last; extended while a body makes progress."""
    write_timeout_s: float = 30.0
    """How long a client may not read its answers."""
    linger_s: float = 2.0
    """How long input is dropped after a refusal before the connection is closed."""

    def __post_init__(self) -> None:
        if self.queue_length_max < 2:
            raise ValueError("queue_length_max must be at least 2")


CHUNK_LINE_BYTES_MAX: Final = 64
"""How much of the line before a chunk is looked at."""


def announced_bytes(before: bytes) -> int:
    """Return how large a chunk is to become, by what was read before it; 0 if that does not tell.

    The parser does not tell either.
    """
    line = before.removesuffix(b"\r\n").rpartition(b"\r\n")[2]
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        return 0


class Edge:
    """What all connections of one server share: routes, limits, first lines of answers."""

    def __init__(
        self, routes: HotRoutes, limits: ConnectionLimits, on_drain: Callable[[], None] | None
    ) -> None:
        self.routes = routes
        self.limits = limits
        self.wire_bytes_max = WIRE_BYTES_PER_BODY_BYTE * limits.body_bytes_max + READ_BYTES_MAX
        self.is_draining = False
        self.departure: Callable[[FastPathProtocol], None] | None = None
        """Where connections go that have just been answered, while some are to leave."""
        self._on_drain = on_drain
        self._headers_source: list[tuple[bytes, bytes]] | None = None
        self._first_lines: dict[int, bytes] = {}

    def first_lines(self, status: int, default_headers: list[tuple[bytes, bytes]]) -> bytes:
        """Return the status line and the server's own headers, joined once per status.

        uvicorn replaces the list every second to move the date on, so its identity is its version.
        """
        if default_headers is not self._headers_source:
            self._headers_source = default_headers
            self._first_lines.clear()
        lines = self._first_lines.get(status)
        if lines is None:
            headers = b"".join(b"%b: %b\r\n" % header for header in default_headers)
            lines = self._first_lines[status] = STATUS_LINE[status] + headers
        return lines

    def drain(self, loop: AbstractEventLoop) -> None:
        """Call `on_drain` once, so that waiting exchanges are answered.

        It runs in the next iteration of the loop: by then uvicorn has notified all connections, and
        the answers carry `connection: close`.
        """
        if not self.is_draining:
            self.is_draining = True
            if self._on_drain is not None:
                loop.call_soon(self._on_drain)


class ReadGate(FlowControl):
    """Decides when a connection may read.

    Three conditions stop it: an ASGI application has not consumed its body, too many requests are
    unanswered, or the client does not read its answers. uvicorn's own flow control has one flag,
    so that each of them would overrule the others. While not reading, a disconnect goes unnoticed.
    """

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._is_body_unread = False
        self.is_queue_full = False

    def pause_reading(self) -> None:
        """Stop until the ASGI application has consumed its body so far."""
        self._is_body_unread = True
        self._apply()

    def resume_reading(self) -> None:
        """Continue with the ASGI body."""
        self._is_body_unread = False
        self._apply()

    def note_queue(self, *, is_full: bool) -> None:
        """Stop or continue because of the number of unanswered requests."""
        self.is_queue_full = is_full
        self._apply()

    def pause_writing(self) -> None:
        """Stop until the client reads its answers."""
        super().pause_writing()
        self._apply()

    def resume_writing(self) -> None:
        """Continue: the client has read its answers."""
        super().resume_writing()
        self._apply()

    def _apply(self) -> None:
        if self._is_body_unread or self.is_queue_full or self.write_paused:
            super().pause_reading()
        else:
            super().resume_reading()
