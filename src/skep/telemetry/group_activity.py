"""What consumer groups did in one process: who polled, who made progress, who failed.

Hot paths only add a name to a set. The broker notes in the database what is new, so that any
process can tell whether a group has consumers.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

GroupKey: TypeAlias = tuple[str, str]
"""Queue and group."""

REPEAT_S: Final = 20.0
"""What goes on is told again after so long."""


class GroupNews(NamedTuple):
    """What a group did since the last report."""

    queue: str
    group: str
    progressed: bool
    failed: bool


class GroupActivity:
    """The groups that were used since the last report."""

    def __init__(self) -> None:
        self.polled: Final[set[GroupKey]] = set()
        self.progressed: Final[set[GroupKey]] = set()
        """Messages were finished."""
        self.failed: Final[set[GroupKey]] = set()
        self._told: dict[tuple[int, GroupKey], float] = {}

    def tell(self, parked: Iterable[GroupKey], *, now: float) -> list[GroupNews]:
        """Return what is new, and what was last told `REPEAT_S` ago; forget it.

        A poll that is parked counts as a poll.
        """
        self.polled.update(parked)
        self._told = {what: at for what, at in self._told.items() if at > now - REPEAT_S}
        fresh: list[set[GroupKey]] = []
        for kind, keys in enumerate((self.polled, self.progressed, self.failed)):
            fresh.append({key for key in keys if (kind, key) not in self._told})
            self._told.update(((kind, key), now) for key in fresh[-1])
            keys.clear()
        polled, progressed, failed = fresh
        return [
            GroupNews(queue, group, (queue, group) in progressed, (queue, group) in failed)
            for queue, group in sorted(polled | progressed | failed)
        ]

    def take_back(self, news: Iterable[GroupNews]) -> None:
        """Undo `tell`: it could not be reported."""
        for each in news:
            key = (each.queue, each.group)
            self.polled.add(key)
            if each.progressed:
                self.progressed.add(key)
            if each.failed:
                self.failed.add(key)
            for kind in range(3):
                self._told.pop((kind, key), None)
