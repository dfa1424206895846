"""Hold millions of (fingerprint, offset) pairs in bounded memory, oldest out first.

Pairs are poured into the open run; when it is full it is sealed and the next one opened. The runs
of a *shelf* are of one size, and one filter stands in front of them, so that a look-up costs the
same however many there are. When a shelf is full and its oldest run is still needed, a shelf of
four times the size is opened above it; what the old one holds is dropped when it is needed no more.
So in the long run there is one shelf, large enough for the rate. Only when the memory does not
allow another is the run with the oldest contents dropped although it is needed. Nothing is ever
sorted or merged.

Promises:

* No false negative: a pair is found until its run is dropped, and then `horizon` has moved past
  everything the run held. Fingerprints that differ only in their last bit count as one.
* No long stall: the work that grows with the size of a run (clearing the next table or shelf,
  wiping the filter's bits of dropped runs, writing a sealed run to disk) is done in proportion to
  the pairs poured, and is complete when the open run is full.
* Memory stays below its bound. With a spill directory sealed runs live in files; when those cannot
  be written, runs are dropped instead.

Not here: what a fingerprint is made of, partitions, and what may be guaranteed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np

from skep.engine.key_cache.filter import COLUMNS_MAX, WORD_BYTES, WORDS_PER_KEY, RunFilter, mix
from skep.engine.key_cache.table import (
    ALWAYS,
    SLOT_BYTES,
    Fingerprints,
    Offsets,
    Run,
    SpillFile,
    Table,
    slots_for,
)

INSTANT: Final = timedelta(microseconds=1)
"""The resolution of PostgreSQL's timestamps: what is after `t` is at or after `t + INSTANT`."""

_COLUMNS_IN_USE: Final = 2
"""Of a shelf: one run is open, one is being wiped."""

COLUMNS_MIN: Final = 4
"""One open, one being wiped, and two that remember."""

_RUN_OBJECT_BYTES: Final = 1_200
"""What a run takes besides its table: objects, views, array headers, the mapping."""

_SPILLING_TABLES: Final = 3
"""The open run's, the next one's, and that of the run being written."""

_GROWTH: Final = 4
"""How much larger the runs of the next shelf are. A look-up costs 0.2 us more per shelf."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """How many runs of which size."""

    run_keys: int
    columns: int
    memory_bytes: int
    """What they take when all are full."""

    @classmethod
    def plan(
        cls, memory_bytes: int, *, is_spilling: bool, run_keys: int | None = None
    ) -> "Geometry":
        """Plan runs that stay within the memory.

        Args:
            memory_bytes: For filter, tables and the objects around them.
            is_spilling: Sealed runs go to disk; in memory there are only their filter bits.
            run_keys: Capacity of a run; by default such that the most runs fill the memory.
        """
        if run_keys is None:
            run_keys = cls._run_keys_within(memory_bytes, is_spilling=is_spilling)
        left = memory_bytes - run_keys * WORDS_PER_KEY * WORD_BYTES
        table_bytes = slots_for(run_keys) * SLOT_BYTES
        if is_spilling:
            columns = (left - _SPILLING_TABLES * table_bytes) // _RUN_OBJECT_BYTES
        else:
            columns = left // (table_bytes + _RUN_OBJECT_BYTES)
        if run_keys < 1 or columns < COLUMNS_MIN:
            raise ValueError(f"{memory_bytes} bytes are too few for {COLUMNS_MIN} runs of keys")
        columns = min(columns, COLUMNS_MAX)
        tables = _SPILLING_TABLES if is_spilling else columns
        taken = tables * table_bytes + columns * _RUN_OBJECT_BYTES
        return cls(run_keys, columns, run_keys * WORDS_PER_KEY * WORD_BYTES + taken)

    @staticmethod
    def _run_keys_within(memory_bytes: int, *, is_spilling: bool) -> int:
        tables = _SPILLING_TABLES if is_spilling else COLUMNS_MAX
        fixed = COLUMNS_MAX * (_RUN_OBJECT_BYTES + SLOT_BYTES)
        per_key = WORDS_PER_KEY * WORD_BYTES + tables * SLOT_BYTES * 4 / 3
        return int((memory_bytes - fixed) / per_key)


class _Shelf:
    """Runs of one size, and the filter in front of them."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry: Final = geometry
        self.slot_count: Final = slots_for(geometry.run_keys)
        self.filter: Final = RunFilter(geometry.run_keys, geometry.columns)
        self.held: Final[dict[int, Run]] = {}
        """By column."""
        self.spare: Table | None = Table(self.slot_count)
        """Of the next run, cleared while the open one is filled; None if none will follow."""

    @property
    def memory_bytes(self) -> int:
        """Memory taken; what runs on disk have in the page cache is the kernel's to take back."""
        tables = (self.spare is not None) + sum(not run.is_on_disk for run in self.held.values())
        objects = len(self.held) * _RUN_OBJECT_BYTES
        return self.filter.memory_bytes + tables * self.table_bytes + objects

    @property
    def table_bytes(self) -> int:
        """Memory of one table."""
        return self.slot_count * SLOT_BYTES

    def open_spare(self) -> Run:
        """Return a run to fill, in the spare table."""
        assert self.spare is not None, "after its last run a shelf is followed by the next"
        column = self.filter.take_column()
        run = self.held[column] = Run(column, self.spare)
        self.spare = None
        return run

    def newest_offset(self, word: int, fingerprint: int) -> int:
        """Return the newest offset of a fingerprint in the runs of these columns, or 0."""
        newest = 0
        while word:
            column = (word & -word).bit_length() - 1
            word &= word - 1
            # A dropped run's bits stay in the filter until they are wiped.
            if run := self.held.get(column):
                newest = max(newest, run.offset_of(fingerprint))
        return newest


class KeyRuns:
    """The shelves, and the chores that go along with pouring.

    Args:
        geometry: Of the first shelf.
        memory_bytes_max: Bound on all shelves; without room for a second one there is none.
        needed_since: Returns the time from which on pairs are needed.
        spill_dir: Where sealed runs go.
    """

    def __init__(
        self,
        geometry: Geometry,
        *,
        memory_bytes_max: int = 0,
        needed_since: Callable[[], datetime] = lambda: ALWAYS,
        spill_dir: Path | None = None,
    ) -> None:
        self.horizon = ALWAYS
        """Of what was poured, everything created at or after it is still held."""
        self._memory_bytes_max: Final = memory_bytes_max
        self._needed_since: Final = needed_since
        self._spill_dir: Final = spill_dir
        self._outgoing: SpillFile | None = None
        self._next: _Shelf | None = None
        """Made ready while the last run of the top shelf is filled."""
        top = _Shelf(geometry)
        top.filter.clear(slice(None))
        assert top.spare is not None
        top.spare.clear(slice(None))
        self._shelves: list[_Shelf] = [top]
        """The oldest first; only the last, the top, has a run to fill."""
        self._open = top.open_spare()
        top.spare = Table(top.slot_count)

    @property
    def memory_bytes(self) -> int:
        """Memory taken by all shelves."""
        coming = self._next.memory_bytes if self._next is not None else 0
        return coming + sum(shelf.memory_bytes for shelf in self._shelves)

    @property
    def disk_bytes(self) -> int:
        """Size of the files."""
        return sum(
            shelf.table_bytes
            for shelf in self._shelves
            for run in shelf.held.values()
            if run.is_on_disk
        )

    @property
    def key_count(self) -> int:
        """Pairs held that are needed."""
        since = self._needed_since()
        runs = [run for shelf in self._shelves for run in shelf.held.values()]
        return sum([run.count for run in runs if run.newest >= since])

    @property
    def key_count_max(self) -> int:
        """Pairs that the memory has room for: as many per byte as in the top shelf."""
        geometry = self._shelves[-1].geometry
        kept = geometry.run_keys * (geometry.columns - _COLUMNS_IN_USE)
        return kept * max(self._memory_bytes_max, geometry.memory_bytes) // geometry.memory_bytes

    def pour(self, fingerprints: Fingerprints, offsets: Offsets, newest: datetime) -> None:
        """Take in pairs; `newest` is the latest created_at among them."""
        start = 0
        while start < len(fingerprints):
            top = self._shelves[-1]
            before, run_keys = self._open.count, top.geometry.run_keys
            stop = start + run_keys - before
            self._open.insert(fingerprints[start:stop], offsets[start:stop], newest)
            top.filter.add(fingerprints[start:stop], self._open.column)
            self._do_chores(before / run_keys, self._open.count / run_keys)
            if self._open.count == run_keys:
                self._seal()
            start = stop

    def find(self, fingerprints: Fingerprints) -> dict[int, int]:
        """Return the newest offset, by index, of those fingerprints that are held."""
        mixed = mix(fingerprints)
        found: dict[int, int] = {}
        for shelf in self._shelves:
            words = shelf.filter.words_of(mixed)
            for index in np.flatnonzero(words).tolist():
                if offset := shelf.newest_offset(int(words[index]), int(fingerprints[index])):
                    found[index] = max(offset, found.get(index, 0))
        return found

    def find_one(self, fingerprint: int) -> int:
        """Return its newest offset, or 0. The quicker way for a handful of fingerprints."""
        newest = 0
        for shelf in self._shelves:
            if word := shelf.filter.word_of(fingerprint):
                newest = max(newest, shelf.newest_offset(word, fingerprint))
        return newest

    def _seal(self) -> None:
        """Open the next run, and make sure of a place for the one after it."""
        top = self._shelves[-1]
        if self._spill_dir is not None:
            self._outgoing = SpillFile(self._open, self._spill_dir)
        top.filter.finish_wiping()
        if self._next is not None:
            top = self._next
            self._shelves.append(top)
            self._next = None
        self._open = top.open_spare()
        self._drop_needless()
        if not top.filter.has_column_to_come:
            self._next = self._plan_shelf()
            if self._next is None:
                self._drop(self._oldest(top))
        top.filter.start_wiping()
        # Only now: the memory is planned for the tables there are after a run was dropped.
        if self._next is None:
            top.spare = Table(top.slot_count)

    def _plan_shelf(self) -> _Shelf | None:
        """Return the shelf to follow the top one, unless its oldest run is not needed any more.

        It is four times as large if the memory allows it, and not worth it below half the size.
        """
        top = self._shelves[-1]
        if self._oldest(top).newest < self._needed_since():
            return None
        # The table that is freed when the open run has been written is not there yet.
        left = self._memory_bytes_max - self.memory_bytes
        is_spilling = self._spill_dir is not None
        try:
            most = Geometry.plan(left, is_spilling=is_spilling)
            if most.run_keys < top.geometry.run_keys // 2:
                return None
            run_keys = min(most.run_keys, top.geometry.run_keys * _GROWTH)
            return _Shelf(Geometry.plan(left, is_spilling=is_spilling, run_keys=run_keys))
        except ValueError:
            return None

    def _do_chores(self, before: float, after: float) -> None:
        """Do the share of the work per run that falls to this part of the open run."""

        def share(total: int) -> slice:
            return slice(int(total * before), int(total * after))

        top = self._shelves[-1]
        top.filter.wipe(share(top.filter.word_count))
        ready = top if self._next is None else self._next
        assert ready.spare is not None
        ready.spare.clear(share(ready.slot_count))
        if self._next is not None:
            ready.filter.clear(share(ready.filter.word_count))
        self._write_outgoing(share)

    def _write_outgoing(self, share: Callable[[int], slice]) -> None:
        while self._outgoing is not None:
            try:
                if self._outgoing.write(share(len(self._outgoing.run.tags))):
                    self._outgoing = None
            except OSError:
                # Of all runs the oldest is worth least, and dropping it gives its blocks back.
                # In the end the outgoing run is itself the oldest.
                self._drop(self._oldest(*self._shelves))
            else:
                return

    def _oldest(self, *shelves: _Shelf) -> Run:
        runs = [run for shelf in shelves for run in shelf.held.values() if run is not self._open]
        return min(runs, key=lambda run: run.newest)

    def _drop(self, run: Run) -> None:
        """Drop a run, and all others that hold nothing newer."""
        self._drop_until(run.newest, self._shelves)

    def _drop_needless(self) -> None:
        """Drop what is not needed of the shelves below the top; there it makes room soon enough."""
        below = self._shelves[:-1]
        if below:
            needed_since = self._needed_since()
            old = [run.newest for shelf in below for run in shelf.held.values()]
            if needless := [newest for newest in old if newest < needed_since]:
                self._drop_until(max(needless), below)

    def _drop_until(self, newest: datetime, shelves: list[_Shelf]) -> None:
        self.horizon = max(self.horizon, newest + INSTANT)
        for shelf in shelves:
            for run in tuple(shelf.held.values()):
                if run is self._open or run.newest > newest:
                    continue
                shelf.filter.release_column(run.column)
                del shelf.held[run.column]
                if self._outgoing is not None and self._outgoing.run is run:
                    self._outgoing = None
        self._shelves = [shelf for shelf in self._shelves if shelf.held]
