"""Sockets, waiting and concurrency with threads: what `blocking` needs from the outside world.

The same names as `io_async`, without waiting for an event loop.
"""

import signal
import socket
import ssl
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from types import FrameType
from typing import Any, Final, TypeVar

from skep.client.endpoints import Address
from skep.client.http import Answer, AnswerReader
from skep.client.io_shared import STOP_SIGNALS, InboxBase, StopBase, open_socket

T = TypeVar("T")

_READ_BYTES: Final = 256 * 1024

Condition = threading.Condition


class Stop(StopBase):
    """A request to end. Waiting ends at once, and requests in flight are cut off."""

    def __init__(self) -> None:
        self._event: Final = threading.Event()
        super().__init__(self._event.set)

    def pause(self, seconds: float) -> None:
        """Wait so long, or until the end is requested."""
        self._event.wait(seconds)


class Connection:
    """One keep-alive connection to a broker, with at most one request in flight."""

    def __init__(self, link: socket.socket) -> None:
        self._link: Final = link
        self._reader: Final = AnswerReader()
        self.is_open = True
        self.was_used = False
        """Whether it carried a request before: then the other side may have closed it meanwhile."""

    @classmethod
    def open(cls, address: Address, tls: ssl.SSLContext | None, timeout_s: float) -> "Connection":
        """Connect.

        Raises:
            OSError: No server listens there, or not in time.
        """
        return cls(open_socket(address, tls, timeout_s))

    def exchange(self, request: bytes, timeout_s: float, stop: Stop | None = None) -> Answer:
        """Send a request and return its answer; the connection is not usable after an error.

        Raises:
            OSError: The connection ended, or nothing came in time.
        """
        if not self.is_open:
            raise ConnectionResetError("the connection is closed")
        if stop is not None:
            stop.add_callback(self.abort)
        try:
            self._link.settimeout(timeout_s)
            self._link.sendall(request)
            answer = self._read(monotonic() + timeout_s)
        except BaseException:
            self.abort()
            raise
        finally:
            self.was_used = True
            if stop is not None:
                stop.remove_callback(self.abort)
        if not self._reader.is_reusable:
            self.close()
        return answer

    def _read(self, until_s: float) -> Answer:
        while data := self._link.recv(_READ_BYTES):
            if (answer := self._reader.feed(data)) is not None:
                return answer
            # The limit is on the whole answer, not on each part of it.
            self._link.settimeout(max(until_s - monotonic(), 0.001))
        if (answer := self._reader.end()) is not None:
            self.is_open = False
            return answer
        raise ConnectionResetError("the broker closed the connection")

    def abort(self) -> None:
        """Cut the connection; a pending request fails."""
        self.is_open = False
        # Closing alone would not wake a thread that reads.
        with suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        self._link.close()

    def close(self) -> None:
        """End the connection."""
        self.is_open = False
        self._link.close()


class Inbox(InboxBase):
    """What another thread brings, taken out one after the other. None says that it is the end."""

    def __init__(self) -> None:
        super().__init__()
        # Reentrant: a signal handler may wake the very thread that waits.
        self._changed: Final = threading.Condition(threading.RLock())

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def take(self, timeout_s: float, stop: Stop | None = None) -> bytes | None:
        """Take out the next, or None at the end.

        Raises:
            TimeoutError: Nothing came in time, or until it was asked to stop.
        """
        if stop is not None:
            stop.add_callback(self._wake)
        try:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._texts or (stop is not None and stop.is_set), timeout_s
                )
        finally:
            if stop is not None:
                stop.remove_callback(self._wake)
        return self._next()


def run_aside(work: Callable[[], T]) -> T:
    """Do something that blocks."""
    return work()


class Background:
    """Something that runs beside its owner, who waits for its end."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._error: BaseException | None = None
        self._work: Final = work
        self._thread: Final = threading.Thread(target=self._run, daemon=True, name="skep-client")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 (raised again by `join`)
            self._error = error

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the end, and raise what went wrong; return False if it takes longer."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True


def wait_on(condition: Condition, timeout_s: float | None) -> None:
    """Wait, holding the condition, until a notification or the timeout."""
    condition.wait(timeout_s)


def run_together(works: Sequence[Callable[[], None]], stop: Stop) -> None:
    """Run all until all have ended; when one fails the others are asked to stop, and it raises."""

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException:
            stop.set()
            raise

    threads = [Background(partial(run, work)) for work in works]
    errors: list[BaseException] = []
    for thread in threads:
        try:
            thread.join()
        except BaseException as error:  # noqa: BLE001 (raised below, when all have ended)
            errors.append(error)
    if errors:
        raise errors[0]


def invoke(handler: Callable[[Any], Any], argument: Any) -> Any:
    """Call a handler."""
    return handler(argument)


@contextmanager
def stopping_on_signals(stop: Callable[[], None]) -> Generator[None]:
    """Call this on the first SIGINT or SIGTERM; a second one does what it always does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def obey(_number: int, _frame: FrameType | None) -> None:
        restore()
        stop()

    for number in STOP_SIGNALS:
        signal.signal(number, obey)
    try:
        yield
    finally:
        restore()
