"""Say in the log that handlers fail: with the traceback once, then in few words.

Failures are of one kind if they happen at the same place: the same queue or job, the same type of
error, raised by the same line. The first of a kind has a traceback, which begins at the handler;
the next ones have a line each. Beyond `TOLD_EACH` a line stands for many: one for ten times as
many, and one a minute.
"""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Final

TOLD_EACH: Final = 10
QUIET_S: Final = 60.0
KINDS_MAX: Final = 1_000
_OWN: Final = str(Path(__file__).parents[1]) + os.sep


@dataclass(slots=True)
class _Kind:
    count: int = 0
    told: int = 0
    told_at: float = 0.0


class FailureLog:
    """The failures of one worker, on their way to a logger; any thread may tell it."""

    def __init__(self, log: logging.Logger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._log: Final = log
        self._clock: Final = clock
        self._lock: Final = Lock()
        self._kinds: Final[dict[tuple[object, ...], _Kind]] = {}

    def tell(self, level: int, where: str, what: str, error: BaseException) -> None:
        """Say that a handler raised.

        Args:
            level: Of the line.
            where: The queue or job, which failures of one kind share.
            what: What failed, and what becomes of it.
            error: What was raised.
        """
        frames = _frames_of_handler(error.__traceback__)
        now = self._clock()
        with self._lock:
            kind = self._kind((level, where, type(error), _line(frames)))
            kind.count += 1
            passed_s, more = now - kind.told_at, kind.count - kind.told - 1
            if kind.count > TOLD_EACH and passed_s < QUIET_S and not _is_round(kind.count):
                return
            kind.told, kind.told_at = kind.count, now
        text = f"{what}: {type(error).__name__}: {error}"
        if more:
            text += f" ({more:,} more like it in the last {passed_s:.0f} s)"
        is_first = kind.count == 1
        self._log.log(
            level, "%s", text, exc_info=(type(error), error, frames) if is_first else None
        )

    def _kind(self, key: tuple[object, ...]) -> _Kind:
        if key not in self._kinds and len(self._kinds) >= KINDS_MAX:
            del self._kinds[next(iter(self._kinds))]
        return self._kinds.setdefault(key, _Kind())


def _is_round(count: int) -> bool:
    return str(count).rstrip("0") == "1"


def _frames_of_handler(frames: TracebackType | None) -> TracebackType | None:
    """Leave out our frames before the handler's; keep all if there are no others."""
    own = frames
    while own is not None and own.tb_frame.f_code.co_filename.startswith(_OWN):
        own = own.tb_next
    return own or frames


def _line(frames: TracebackType | None) -> tuple[str, int] | None:
    """Return where an error was raised."""
    if frames is None:
        return None
    while frames.tb_next is not None:
        frames = frames.tb_next
    return frames.tb_frame.f_code.co_filename, frames.tb_lineno
