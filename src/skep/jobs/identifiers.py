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
_STEP: Final = 1 << 32


class TimeOrderedIds:
    """Makes ids that only ever grow, also when the clock steps back."""

    def __init__(self, clock_ns: Callable[[], int] = time_ns) -> None:
        self._clock_ns: Final = clock_ns
        self._lock: Final = threading.Lock()
        self._last = 0
        """The millisecond, and behind it the counter, which carries into it."""

    def next(self) -> UUID:
        """Return a new id."""
        with self._lock:
            # A new millisecond begins in the lower half of its numbers: there is room to count on.
            now = self._clock_ns() // 1_000_000 << _COUNTER_BITS
            fresh = now | secrets.randbits(_COUNTER_BITS - 1)
            is_later = now >> _COUNTER_BITS > self._last >> _COUNTER_BITS
            self._last = fresh if is_later else self._last + 1 + secrets.randbelow(_STEP)
            return _spell(self._last)


def _spell(number: int) -> UUID:
    millisecond, count = number >> _COUNTER_BITS, number & ((1 << _COUNTER_BITS) - 1)
    high, low = count >> 62, count & ((1 << 62) - 1)
    return UUID(int=millisecond << 80 | 7 << 76 | high << 64 | 0b10 << 62 | low)


new_id: Final = TimeOrderedIds().next
"""Returns an id that no chain or job has."""
