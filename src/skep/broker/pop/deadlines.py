"""Answer polls whose time is over while they are trying: the database is away, or it is silent.

A parked poll has its own alarm, and a call that returns answers its polls. This is for the others:
those whose call waits for a connection or for an answer that does not come. A poll that waits is
told that there is nothing, because consumers go on polling after that and may end at an error; one
that does not wait is refused, because the database was never asked.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from skep.telemetry.defects import error_of

LOOK_S: Final = 0.05
"""How often to look at the polls that are trying, while there are any."""

AWAY_S: Final = 1.0
"""How long a poll that does not wait may wait for an unreachable database."""

LATE_S: Final = 4.0
"""How much later a database that is there may answer a poll: clients wait longer than they say."""


class Trying(Protocol):
    """Something that a client waits for until a deadline."""

    deadline: float

    def run_out(self) -> None:
        """Answer it: its time is over."""
        ...


class Deadlines:
    """The polls of one process that are trying."""

    def __init__(self, is_away: Callable[[], bool]) -> None:
        """Take what tells whether no connection to the database is left."""
        self._is_away: Final = is_away
        self._loop: Final = asyncio.get_running_loop()
        self._since: Final[dict[Trying, float]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, trying: Trying) -> None:
        """Watch a poll that begins to try, or goes on."""
        self._since.setdefault(trying, self._loop.time())
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def end(self, trying: Trying) -> None:
        """Watch a poll no more: it was answered, or is parked."""
        self._since.pop(trying, None)

    def _look(self) -> None:
        self._timer = None
        now, is_away = self._loop.time(), self._is_away()
        for trying, since in tuple(self._since.items()):
            if is_away:
                is_over = now >= trying.deadline and (
                    trying.deadline > since or now >= since + AWAY_S
                )
            else:
                is_over = trying.deadline > since and now >= trying.deadline + LATE_S
            if is_over:
                self._since.pop(trying, None)
                error_of(trying.run_out)  # one that fails must not keep the others waiting
        if self._since:
            self._timer = self._loop.call_later(LOOK_S, self._look)
