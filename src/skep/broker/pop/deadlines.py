"""Answer polls whose time is over while they are trying: the database is away, silent or slow.

A parked poll has its own alarm, and a call that returns answers its polls. This is for the others:
those whose call waits for a connection or for an answer that does not come. A poll that waits is
told that there is nothing, because consumers go on polling after that and may end at an error; one
that does not wait is refused, because nothing is known. What its call claims after all is given
back.
"""

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple, Protocol

from skep.telemetry.defects import error_of

LOOK_S: Final = 0.05
"""How often to look at the polls that are trying, while there are any."""

AWAY_S: Final = 1.0
"""How long a poll that does not wait may wait for the database."""

LATE_S: Final = 4.0
"""How much later a database that answers others may answer a poll: clients wait longer than they
say."""


class Trying(Protocol):
    """Something that a client waits for until a deadline."""

    deadline: float

    def run_out(self) -> None:
        """Answer it: its time is over."""
        ...


class _Time(NamedTuple):
    began_at: float
    late_s: float

    def is_over(self, deadline: float, now: float, *, is_away: bool) -> bool:
        # A deadline that was over when it began to try is that of a poll that does not wait.
        answer_by = deadline if deadline > self.began_at else self.began_at + AWAY_S
        return now >= answer_by + (0.0 if is_away else self.late_s)


class Deadlines:
    """The polls of one process that are trying."""

    def __init__(self, is_away: Callable[[], bool]) -> None:
        """Take what tells whether the database answers nothing at present."""
        self._is_away: Final = is_away
        self._loop: Final = asyncio.get_running_loop()
        self._times: Final[dict[Trying, _Time]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, trying: Trying, *, has_own_end: bool = False) -> None:
        """Watch a poll that begins to try, or goes on.

        One that has its own end is only watched for a database that answers nothing.
        """
        late_s = inf if has_own_end else LATE_S
        before = self._times.get(trying)
        if before is None or before.late_s != late_s:
            self._times[trying] = _Time(self._loop.time(), late_s)
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def end(self, trying: Trying) -> None:
        """Watch a poll no more: it was answered, or is parked."""
        self._times.pop(trying, None)

    def _look(self) -> None:
        self._timer = None
        now, is_away = self._loop.time(), self._is_away()
        for trying, time in tuple(self._times.items()):
            if time.is_over(trying.deadline, now, is_away=is_away):
                self._times.pop(trying, None)
                error_of(trying.run_out)  # one that fails must not keep the others waiting
        if self._times:
            self._timer = self._loop.call_later(LOOK_S, self._look)
