"""Tell all processes to read something again that they may have cached.

The database holds the truth, and everything works without a single change being received: caches
are checked by version or expire. A change only shortens the time for which processes differ, so it
names what to read, never its content.

Listeners are coroutines that read from the database. One runs for each change at a time; if the
same change comes meanwhile it runs once more.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeAlias

from skep.broker.cluster.notices import Change
from skep.model.errors import SkepError

_log = logging.getLogger(__name__)

RULES: Final = "rules"
"""A queue was configured: its rules."""

QUEUE: Final = "queue"
"""A queue was deleted: everything cached of it."""

MAINTENANCE: Final = "maintenance"
"""The installation began or ended maintenance."""

Listener: TypeAlias = Callable[[int], Awaitable[None]]
Tell: TypeAlias = Callable[[Sequence[Change]], None]


class ChangeAnnouncer(Protocol):
    """Announces changes to other processes."""

    def announce(self, topic: str, subject: int = 0) -> None:
        """Tell the other processes to read this again."""
        ...


class Changes:
    """The changes that one process announces and receives."""

    def __init__(self, tell: Sequence[Tell] = ()) -> None:
        self._tell: Final = list(tell)
        self._listeners: Final[dict[str, list[Listener]]] = {}
        self._running: Final[dict[Change, asyncio.Task[None]]] = {}
        self._again: Final[set[Change]] = set()

    def tell_also(self, tell: Tell) -> None:
        """Add a way to other processes."""
        self._tell.append(tell)

    def listen(self, topic: str, listener: Listener) -> None:
        """Call `listener` with the id of each change of this topic that is received."""
        self._listeners.setdefault(topic, []).append(listener)

    def announce(self, topic: str, subject: int = 0) -> None:
        """Tell the other processes, of this and of other instances."""
        change = (Change(topic, subject),)
        for tell in self._tell:
            tell(change)

    def heard(self, changes: Sequence[Change]) -> None:
        """Let the listeners read again what others changed; unknown topics are ignored."""
        for change in changes:
            if change.topic not in self._listeners:
                continue
            if change in self._running:
                self._again.add(change)
            else:
                self._begin(change)

    async def stop(self) -> None:
        """Stop receiving."""
        self._listeners.clear()
        self._again.clear()
        for task in tuple(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _begin(self, change: Change) -> None:
        task = asyncio.get_running_loop().create_task(self._read(change))
        self._running[change] = task
        task.add_done_callback(lambda _: self._end(change))

    def _end(self, change: Change) -> None:
        self._running.pop(change, None)
        if change in self._again:
            self._again.discard(change)
            self._begin(change)

    async def _read(self, change: Change) -> None:
        for listener in self._listeners.get(change.topic, ()):
            try:
                await listener(change.id)
            except SkepError as error:
                _log.debug("could not read %s %d again: %s", change.topic, change.id, error)
