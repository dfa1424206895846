"""When things are due: polls that wait, requests in line. Pure."""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Timetable(Generic[K]):
    """When each key is due, and which is due next.

    A heap in which entries that no longer count stay until they surface or are the majority.
    """

    __slots__ = ("_entries", "_heap", "_serial")

    _STALE_MAX: Final = 64
    """Entries that no longer count in a short heap, so that it is not tidied at every step."""

    def __init__(self) -> None:
        self._entries: dict[K, tuple[float, int, K]] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._serial = count()

    def __len__(self) -> int:
        return len(self._entries)

    def set(self, key: K, at: float) -> None:
        """Let a key be due then, and no longer when it was."""
        entry = self._entries[key] = (at, next(self._serial), key)
        heappush(self._heap, entry)
        self._tidy()

    def cancel(self, key: K) -> None:
        """Let a key not be due any more, if it was."""
        if self._entries.pop(key, None) is not None:
            self._tidy()

    def next_at(self) -> float | None:
        """Return when the next key is due."""
        heap = self._heap
        while heap and not self._counts(heap[0]):
            heappop(heap)
        return heap[0][0] if heap else None

    def take_until(self, at: float) -> list[K]:
        """Remove and return the keys due by then, earliest first."""
        taken: list[K] = []
        while (next_at := self.next_at()) is not None and next_at <= at:
            key = heappop(self._heap)[2]
            del self._entries[key]
            taken.append(key)
        return taken

    def _counts(self, entry: tuple[float, int, K]) -> bool:
        return self._entries.get(entry[2]) is entry

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self._entries) + self._STALE_MAX:
            self._heap = [entry for entry in self._heap if self._counts(entry)]
            heapify(self._heap)
