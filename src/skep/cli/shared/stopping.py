"""How commands that run for long are told to end: by SIGTERM, or by Ctrl-C."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def stop_signals() -> Generator[threading.Event]:
    """Yield an event that is set when somebody asks this process to end."""
    stop = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {each: signal.signal(each, lambda _number, _frame: stop.set()) for each in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
