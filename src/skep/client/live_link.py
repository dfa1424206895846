"""One WebSocket to a broker, read by a thread of its own.

A broker pings its sockets, and takes back its messages when there is no answer. A handler may hold
up its event loop or its thread for as long as it likes, so neither may be what answers: this thread
does, for both kinds of client. The protocol itself is that of the package `websockets`, which is
imported when the first socket is opened; where it is missing there is no socket.
"""

import selectors
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from skep.client.endpoints import Address
from skep.client.io_shared import open_socket

if TYPE_CHECKING:
    from websockets.client import ClientProtocol

PING_AFTER_S: Final = 20.0
"""How long it may be quiet before we ask for a sign of life; after twice that it is dead."""

_SEND_S_MAX: Final = 10.0
_READ_BYTES: Final = 256 * 1024
_WAITS: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class LinkRefused(Exception):
    """No WebSocket: the broker, a proxy or this installation has none."""


class LiveLink:
    """An open WebSocket: all handshakes are done."""

    def __init__(self, connection: socket.socket, protocol: "ClientProtocol") -> None:
        self._connection: Final = connection
        self._protocol: Final = protocol
        self._lock: Final = threading.Lock()
        self._parts: Final[list[bytes]] = []
        self._is_ended = False

    @classmethod
    def open(
        cls,
        address: Address,
        path: str,
        *,
        headers: Mapping[str, str],
        tls: ssl.SSLContext | None,
        timeout_s: float,
    ) -> "LiveLink":
        """Connect, and agree on the protocol.

        Raises:
            OSError: No server listens there, or not in time.
            LinkRefused: The server has no WebSocket.
        """
        protocol = _new_protocol(address, path)
        connection = open_socket(address, tls, timeout_s)
        try:
            _shake_hands(connection, protocol, headers, monotonic() + timeout_s)
            connection.setblocking(False)
        except BaseException:
            connection.close()
            raise
        return cls(connection, protocol)

    def start(self, hear: Callable[[bytes], None], end: Callable[[], None]) -> None:
        """Begin to read: the thread calls `hear` with each text and `end` once."""
        threading.Thread(
            target=self._serve, args=(hear, end), daemon=True, name="skep-live-link"
        ).start()

    def send(self, *texts: bytes) -> None:
        """Send texts, each as a frame.

        Raises:
            OSError: The socket is closed, or does not take it in time.
        """
        with self._lock:
            self._check_open()
            for text in texts:
                self._protocol.send_text(text)
            self._write_out()

    def close(self) -> None:
        """Say goodbye, and let the thread end."""
        with self._lock, suppress(OSError):
            self._check_open()
            self._is_ended = True
            self._protocol.send_close()
            self._write_out()
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _check_open(self) -> None:
        if self._is_ended or self._protocol.state != _OPEN:
            raise ConnectionResetError("the socket is closed")

    def _serve(self, hear: Callable[[bytes], None], end: Callable[[], None]) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._connection, selectors.EVENT_READ)
                self._pass_on(hear)
                self._read_all(selector, hear)
        except OSError:
            pass
        finally:
            self._is_ended = True
            self._connection.close()
            end()

    def _read_all(self, selector: selectors.BaseSelector, hear: Callable[[bytes], None]) -> None:
        """Read until the other side ends, or is quiet for too long."""
        is_asked = False
        while True:
            if selector.select(PING_AFTER_S):
                is_asked = False
                has_more = self._read()
                self._pass_on(hear)
                if not has_more:
                    return
            elif is_asked:
                return
            else:
                is_asked = True
                with self._lock:
                    self._check_open()
                    self._protocol.send_ping(b"")
                    self._write_out()

    def _read(self) -> bool:
        """Read what is there; return whether there may be more later."""
        with self._lock:
            try:
                # TLS may hold decrypted bytes that no selector knows of, so read all there is.
                while data := self._connection.recv(_READ_BYTES):
                    self._protocol.receive_data(data)
            except _WAITS:
                self._write_out()  # answers to pings
                return not self._protocol.close_expected()
            return False

    def _pass_on(self, hear: Callable[[bytes], None]) -> None:
        for event in self._protocol.events_received():
            text = self._join(event)
            if text is not None:
                hear(text)

    def _join(self, frame: Any) -> bytes | None:
        """Return a text once all parts of it are there; other events are ignored."""
        if getattr(frame, "opcode", None) not in _DATA_OPCODES:
            return None
        if frame.fin and not self._parts:
            return bytes(frame.data)
        self._parts.append(bytes(frame.data))
        if not frame.fin:
            return None
        text = b"".join(self._parts)
        self._parts.clear()
        return text

    def _write_out(self) -> None:
        """Send what the protocol has to say. Holding the lock."""
        rest = memoryview(b"".join(self._protocol.data_to_send()))
        until_s = monotonic() + _SEND_S_MAX
        while rest:
            try:
                rest = rest[self._connection.send(rest) :]
            except _WAITS:
                self._await_room(until_s - monotonic())

    def _await_room(self, timeout_s: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection, selectors.EVENT_WRITE | selectors.EVENT_READ)
            if timeout_s <= 0 or not selector.select(timeout_s):
                raise TimeoutError("the broker takes nothing")


_CONNECTING: Final = 0
_OPEN: Final = 1
"""States of the protocol; their names cannot be imported before it is."""

_DATA_OPCODES: Final = {0, 1, 2}
"""Continuation, text and binary of RFC 6455."""


def _new_protocol(address: Address, path: str) -> "ClientProtocol":
    try:
        from websockets.client import ClientProtocol  # noqa: PLC0415 (optional, see above)
        from websockets.uri import parse_uri  # noqa: PLC0415
    except ImportError:
        raise LinkRefused("the package websockets is not installed") from None
    scheme = "wss" if address.is_tls else "ws"
    uri = parse_uri(f"{scheme}://{address.host_header}{address.prefix}{path}")
    return ClientProtocol(uri, max_size=None)


def _shake_hands(
    connection: socket.socket,
    protocol: "ClientProtocol",
    headers: Mapping[str, str],
    until_s: float,
) -> None:
    request = protocol.connect()
    request.headers.update(headers)
    protocol.send_request(request)
    connection.sendall(b"".join(protocol.data_to_send()))
    while protocol.handshake_exc is None and protocol.state == _CONNECTING:
        connection.settimeout(max(until_s - monotonic(), 0.001))
        data = connection.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        protocol.receive_data(data)
    if protocol.handshake_exc is not None:
        raise _refusal(protocol.handshake_exc)


def _refusal(error: Exception) -> Exception:
    """Tell a broker that is busy or starting from one that has no WebSocket."""
    status = getattr(getattr(error, "response", None), "status_code", 0)
    if status == 429 or status >= 500:
        return ConnectionRefusedError(str(error))
    return LinkRefused(str(error))
