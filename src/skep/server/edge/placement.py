"""Decide which worker of an instance a connection should be with.

The kernel spreads connections over the workers that accept. Under load that is the dearest way:
each worker then fuses a part of the requests, and all of them write into the same partitions. So
connections gather at the first workers, as few as can do the work, and spread when one uses up a
core while another core is idle (ADR 49).

Pure: what is measured comes in as arguments, and so does the time.
"""

from math import ceil
from typing import Final, NamedTuple

FRESH_S: Final = 2.0
"""Of a worker that reported nothing for so long nothing is expected: it may be gone."""

FULL: Final = 0.85
"""A worker that uses so much of a core hands connections over, if a core is idle."""

LIGHT: Final = 0.1
"""Below that a worker keeps its connections: little is gained, and they may be anything."""

WORKER_MAX: Final = 0.8
"""What a worker may use for others to hand it theirs, as a share of all that the workers use."""

CROWDED_MAX: Final = 1.5
"""The same where no core is idle: in two workers the same work costs half as much again."""


class Load(NamedTuple):
    """How busy a worker is, as a share of a core, and how many more connections it may have."""

    busy: float
    room: int


class Move(NamedTuple):
    """Hand so many of the connections that are in use to this worker."""

    worker: int
    connections: int


class Placement:
    """What one worker knows of the others, and what it makes of it."""

    def __init__(self, index: int) -> None:
        self._index: Final = index
        self._others: Final[dict[int, tuple[Load, float]]] = {}

    def hear(self, worker: int, load: Load, now: float) -> None:
        """Note what another worker reports."""
        self._others[worker] = load, now

    def is_there(self, worker: int, now: float) -> bool:
        """Tell whether a worker has reported of late, and takes connections."""
        known = self._others.get(worker)
        return known is not None and known[0].room > 0 and now - known[1] < FRESH_S

    def decide(self, busy: float, *, idle_cores: float, active: int, now: float) -> Move | None:
        """Return what this worker should hand over, whose `active` connections make it `busy`."""
        others = {
            worker: load for worker, (load, _) in self._others.items() if self.is_there(worker, now)
        }
        if busy >= FULL and idle_cores >= 1:
            return _spread(busy, active, others)
        if busy < LIGHT:
            return None
        total = busy + sum(load.busy for load in others.values())
        needed = ceil(total / (WORKER_MAX if idle_cores >= 1 else CROWDED_MAX))
        keeping = sorted([self._index, *others])[:needed]
        if self._index in keeping:
            return None
        worker = min(keeping, key=lambda each: (others[each].busy, each))
        leaving = len(others) + 1 - needed  # they all hand over at once, and share the room
        count = min(active, others[worker].room // leaving)
        return Move(worker, count) if count else None


def _spread(busy: float, active: int, others: dict[int, Load]) -> Move | None:
    """Hand half of the difference to the worker that does least."""
    if not others:
        return None
    worker, load = min(others.items(), key=lambda each: (each[1].busy, each[0]))
    full = 1 + sum(each.busy >= FULL for each in others.values())
    count = min(ceil(active * (busy - load.busy) / (2 * busy)), load.room // full)
    return Move(worker, count) if load.busy < FULL - LIGHT and count > 0 else None
