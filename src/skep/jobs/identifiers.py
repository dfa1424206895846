"""Ids of chains and jobs: UUIDs (version 7), which are in the order in which they were made.

Within a process the order is strict, so that jobs of one transaction keep the order in which they
were started. Between processes it is that of their clocks, to the millisecond.
"""

import secrets
import threading
from collections.abc import Callable
from time import time_ns
from typing import Final
from uuid import UUID

_COUNTER_BITS: Final = 74
_HEADROOM: Final = 1 << (_COUNTER_BITS - 1)
"""A new millisecond begins in the lower half of its numbers: there is room to count on."""
_STEP: Final = 1 << 32


class TimeOrderedIds:
    """Makes ids that only ever grow, also when the clock steps back."""

    def __init__(self, clock_ns: Callable[[], int] = time_ns) -> None:
        self._clock_ns: Final = clock_ns
        self._lock: Final = threading.Lock()
        self._millisecond = 0
        self._count = 0

    def next(self) -> UUID:
        """Return a new id."""
        with self._lock:
            now = self._clock_ns() // 1_000_000
            if now > self._millisecond:
                self._millisecond = now
                self._count = secrets.randbits(_COUNTER_BITS) % _HEADROOM
            else:
                self._count += 1 + secrets.randbelow(_STEP)
                if self._count >> _COUNTER_BITS:
                    self._millisecond += 1
                    self._count = secrets.randbits(_COUNTER_BITS) % _HEADROOM
            return _spell(self._millisecond, self._count)


def _spell(millisecond: int, count: int) -> UUID:
    high, low = count >> 62, count & ((1 << 62) - 1)
    return UUID(int=millisecond << 80 | 7 << 76 | high << 64 | 0b10 << 62 | low)


_ids = TimeOrderedIds()


def new_id() -> UUID:
    """Return an id that no chain or job has."""
    return _ids.next()
