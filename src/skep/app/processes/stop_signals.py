"""Signals as a descriptor to wait for, or as the cancellation of a task.

SIGHUP either stops the program, because the terminal is gone, or reloads its settings.
"""

import asyncio
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, Self, TypeAlias

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | signal.Handlers | None


def _only_wake(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the interpreter has already written to the wake-up descriptor."""


class StopSignals:
    """While entered, a stop signal makes this object readable instead of ending the process.

    Main thread only. The previous handlers are restored at the end.
    """

    def __init__(self, *, hangup_reloads: bool = False) -> None:
        self._hangup_reloads = hangup_reloads
        self._is_reload_asked = False
        self._received, self._written = socket.socketpair()
        self._received.setblocking(False)
        self._written.setblocking(False)
        self._previous: dict[signal.Signals, _Handler] = {}
        self._previous_fd = -1

    def __enter__(self) -> Self:
        self._previous_fd = signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            # nohup ignores SIGHUP on purpose; an ignored signal stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, _only_wake)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_fd)
        self._received.close()
        self._written.close()

    def fileno(self) -> int:
        """Return the descriptor that becomes readable."""
        return self._received.fileno()

    def take(self) -> bool:
        """Return whether a stop signal arrived since the last call."""
        numbers = b""
        with suppress(BlockingIOError):
            numbers = self._received.recv(4096)
        if self._hangup_reloads and signal.SIGHUP in numbers:
            self._is_reload_asked = True
            numbers = numbers.replace(bytes([signal.SIGHUP]), b"")
        return any(number in STOP_SIGNALS for number in numbers)

    def take_reload(self) -> bool:
        """Return whether `take` received a reload request since the last call."""
        is_asked, self._is_reload_asked = self._is_reload_asked, False
        return is_asked


@contextmanager
def ended_by_sigterm() -> Generator[None]:
    """While entered, SIGTERM cancels the task that entered.

    A handler that raises would do so in the task that happens to run.
    """
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    previous = signal.getsignal(signal.SIGTERM)
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, previous)
