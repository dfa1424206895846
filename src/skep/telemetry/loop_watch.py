"""How late the event loop is: a timer that looks at its own delay."""

import asyncio
from collections import deque
from typing import Final

from skep.telemetry.histograms import Histogram

PERIOD_S: Final = 0.25
RECENT_MAX: Final = 2_400
"""Delays kept for whoever asks; ten minutes of them, should nobody do so."""


class LoopWatch:
    """Measures the delay of the running loop, four times a second."""

    def __init__(self, lags: Histogram) -> None:
        self._lags: Final = lags
        self._loop: Final = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._recent: Final[deque[float]] = deque(maxlen=RECENT_MAX)

    def start(self) -> None:
        """Begin to watch."""
        self._due_at = self._loop.time() + PERIOD_S
        self._timer = self._loop.call_at(self._due_at, self._look)

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()

    def take_recent(self) -> list[float]:
        """Return the delays, in seconds, since this was last asked."""
        recent = list(self._recent)
        self._recent.clear()
        return recent

    def _look(self) -> None:
        lag_s = max(self._loop.time() - self._due_at, 0.0)
        self._lags.observe(lag_s)
        self._recent.append(lag_s)
        self.start()
