"""Decide when a dead worker is started again, and when to stop trying. Pure: time is given.

A worker that had been serving is always started again, after a pause that doubles from death to
death up to a bound. One that dies before it ever served is given a few tries in quick succession:
if none helps, the cause (a missing library, a wrong setting) will not go away by itself.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

PAUSE_S_FIRST: Final = 0.1
PAUSE_S_MAX: Final = 5.0
CALM_S: Final = 10.0
"""A worker that lived this long starts over with the shortest pause."""

STARTUP_DEATHS_MAX: Final = 5
STARTUP_WINDOW_S: Final = 10.0


@dataclass(slots=True)
class RestartHistory:
    """The deaths in one worker slot."""

    _pause_s: float = PAUSE_S_FIRST
    _startup_deaths: deque[float] = field(default_factory=lambda: deque(maxlen=STARTUP_DEATHS_MAX))

    def pause_after_death(self, now: float, *, lived_s: float, was_ready: bool) -> float | None:
        """Record a death; return how long to wait before the next start, None to give up."""
        if was_ready:
            self._startup_deaths.clear()
        else:
            self._startup_deaths.append(now)
            if self._is_hopeless(now):
                return None
        pause_s = PAUSE_S_FIRST if lived_s >= CALM_S else self._pause_s
        self._pause_s = min(2 * pause_s, PAUSE_S_MAX)
        return pause_s

    def _is_hopeless(self, now: float) -> bool:
        is_full = len(self._startup_deaths) == STARTUP_DEATHS_MAX
        return is_full and now - self._startup_deaths[0] <= STARTUP_WINDOW_S
