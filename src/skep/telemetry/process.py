"""Resource usage of this process: CPU, memory, event loop delay."""

import asyncio
import resource
import sys
from collections import deque
from pathlib import Path
from typing import Final, NamedTuple

from skep.telemetry.histograms import Histogram

_STATM: Final = Path("/proc/self/statm")


class ProcessStats(NamedTuple):
    """CPU time used so far, and memory in use."""

    cpu_user_s: float
    cpu_system_s: float
    rss_bytes: int
    virtual_bytes: int
    """0 if the system does not report it."""


def read_process_stats() -> ProcessStats:
    """Read the usage of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    try:
        virtual, resident = _STATM.read_text().split()[:2]
    except OSError:
        # Other systems report only the maximum so far, macOS in bytes.
        unit = 1 if sys.platform == "darwin" else 1024
        return ProcessStats(usage.ru_utime, usage.ru_stime, usage.ru_maxrss * unit, 0)
    page = resource.getpagesize()
    return ProcessStats(usage.ru_utime, usage.ru_stime, int(resident) * page, int(virtual) * page)


PERIOD_S: Final = 0.25
RECENT_MAX: Final = 2_400
"""Delays kept for `take_recent`: ten minutes of them."""


class LoopWatch:
    """Measures the delay of event loop timers, four times a second."""

    def __init__(self, lags: Histogram) -> None:
        self._lags: Final = lags
        self._loop: Final = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._recent: Final[deque[float]] = deque(maxlen=RECENT_MAX)

    def start(self) -> None:
        """Start measuring."""
        self._due_at = self._loop.time() + PERIOD_S
        self._timer = self._loop.call_at(self._due_at, self._measure)

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()

    def take_recent(self) -> list[float]:
        """Return the delays in seconds since the last call."""
        recent = list(self._recent)
        self._recent.clear()
        return recent

    def _measure(self) -> None:
        lag_s = max(self._loop.time() - self._due_at, 0.0)
        self._lags.observe(lag_s)
        self._recent.append(lag_s)
        self.start()
