"""Tell all processes that something they may remember is to be read again.

Truth lies in the database, and everything here works without a single change being heard: what a
process remembers is checked by version or runs out. Hearing of a change only shortens the time
for which processes differ. A change therefore says what to read, never what it says now.

Listeners are coroutines that read from the database. One runs for each thing at a time; if the
thing changes again meanwhile it runs once more.
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
"""A queue was deleted: whatever is remembered of it."""

MAINTENANCE: Final = "maintenance"
"""The installation began or ended maintenance."""

Listener: TypeAlias = Callable[[int], Awaitable[None]]
Tell: TypeAlias = Callable[[Sequence[Change]], None]


class ChangeAnnouncer(Protocol):
    """Whoever passes on that something changed."""

    def announce(self, topic: str, subject: int = 0) -> None:
        """Say to the other processes that this is to be read again."""
        ...


class Changes:
    """The changes that one process makes and hears of."""

    def __init__(self, tell: Sequence[Tell] = ()) -> None:
        self._tell: Final = list(tell)
        self._listeners: Final[dict[str, list[Listener]]] = {}
        self._running: Final[dict[Change, asyncio.Task[None]]] = {}
        self._again: Final[set[Change]] = set()

    def tell_also(self, tell: Tell) -> None:
        """Add a way to other processes."""
        self._tell.append(tell)

    def listen(self, topic: str, listener: Listener) -> None:
        """Call `listener` with the id whenever a change of this topic is heard."""
        self._listeners.setdefault(topic, []).append(listener)

    def announce(self, topic: str, subject: int = 0) -> None:
        """Tell the other processes, here and in other instances; this one knows."""
        change = (Change(topic, subject),)
        for tell in self._tell:
            tell(change)

    def heard(self, changes: Sequence[Change]) -> None:
        """Let the listeners read again what others changed. Unknown topics are newer than we."""
        for change in changes:
            if change.topic not in self._listeners:
                continue
            if change in self._running:
                self._again.add(change)
            else:
                self._begin(change)

    async def stop(self) -> None:
        """Hear nothing any more."""
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
