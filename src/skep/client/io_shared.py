"""What `io_async` and `io_blocking` have in common: requests to stop, inboxes, sockets."""

import signal
import socket
import ssl
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Final

from skep.client.endpoints import Address

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopBase:
    """A request to end. Waiting ends at once, and requests in flight are cut off."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._cuts: Final = {wake}
        # Reentrant: a signal handler may call `set` while this very thread holds it.
        self._lock: Final = threading.RLock()
        self.is_set = False
        """Whether it was requested; checked with every message."""

    def set(self) -> None:
        """Request it: from any thread, but on asyncio from that of the event loop only."""
        self.is_set = True
        with self._lock:
            cuts = tuple(self._cuts)
        for cut in cuts:
            cut()

    def add_callback(self, cut: Callable[[], None]) -> None:
        """Call this when the end is requested; at once, if it was already."""
        with self._lock:
            self._cuts.add(cut)
        if self.is_set:
            cut()

    def remove_callback(self, cut: Callable[[], None]) -> None:
        """Do not call this any more."""
        with self._lock:
            self._cuts.discard(cut)


class InboxBase:
    """What another thread brings, taken out one after the other. None says that it is the end."""

    def __init__(self) -> None:
        self._texts: Final[deque[bytes | None]] = deque()

    @abstractmethod
    def _wake(self) -> None: ...

    def put(self, text: bytes | None) -> None:
        """Add something, from any thread."""
        self._texts.append(text)
        self._wake()

    def _next(self) -> bytes | None:
        if not self._texts:
            raise TimeoutError
        return self._texts.popleft()


def open_socket(address: Address, tls: ssl.SSLContext | None, timeout_s: float) -> socket.socket:
    """Connect.

    Raises:
        OSError: No server listens there, or not in time.
    """
    link = socket.create_connection((address.host, address.port), timeout_s)
    try:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address.is_tls and tls is not None:
            link = tls.wrap_socket(link, server_hostname=address.host)
    except BaseException:
        link.close()
        raise
    return link
