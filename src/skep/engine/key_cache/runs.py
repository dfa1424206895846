"""Hold millions of (fingerprint, offset) pairs in bounded memory, oldest out first.

Pairs are poured into the open run; when it is full it is sealed and the next one opened, and when
there is no room for another, the run with the oldest contents is dropped whole. One filter stands
in front of all runs, so that a look-up costs the same however many there are. Nothing is ever
sorted or merged.

Promises:

* No false negative: a pair is found until its run is dropped, and then `horizon` has moved past
  everything the run held. Fingerprints that differ only in their last bit count as one.
* No long stall: the work that grows with the size of a run (clearing the next table, wiping the
  filter's bits of dropped runs, writing a sealed run to disk) is done in proportion to the pairs
  poured, and is complete when the open run is full.
* Memory stays below what the `Geometry` was planned for. With a spill directory sealed runs live
  in files; when those cannot be written, runs are dropped instead.

Not here: what a fingerprint is made of, partitions, and what may be guaranteed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np

from skep.engine.key_cache.filter import COLUMNS_MAX, WORD_BYTES, WORDS_PER_KEY, RunFilter
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

COLUMNS_MIN: Final = 4
"""One open, one being wiped, and two that remember."""

_RUN_OBJECT_BYTES: Final = 1_200
"""What a run takes besides its table: objects, views, array headers, the mapping."""

_SPILLING_TABLES: Final = 3
"""The open run's, the next one's, and that of the run being written."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """How many runs of which size."""

    run_keys: int
    columns: int

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
        return cls(run_keys, min(columns, COLUMNS_MAX))

    @staticmethod
    def _run_keys_within(memory_bytes: int, *, is_spilling: bool) -> int:
        tables = _SPILLING_TABLES if is_spilling else COLUMNS_MAX
        fixed = COLUMNS_MAX * (_RUN_OBJECT_BYTES + SLOT_BYTES)
        per_key = WORDS_PER_KEY * WORD_BYTES + tables * SLOT_BYTES * 4 / 3
        return int((memory_bytes - fixed) / per_key)


class KeyRuns:
    """The runs, the filter in front of them, and the chores that go along with pouring."""

    def __init__(self, geometry: Geometry, *, spill_dir: Path | None = None) -> None:
        self.horizon = ALWAYS
        """Of what was poured, everything created at or after it is still held."""
        self._run_keys: Final = geometry.run_keys
        self._slot_count: Final = slots_for(geometry.run_keys)
        self._spill_dir: Final = spill_dir
        self._filter: Final = RunFilter(geometry.run_keys, geometry.columns)
        self._held: Final[dict[int, Run]] = {}
        self._outgoing: SpillFile | None = None
        first = Table(self._slot_count)
        first.clear(slice(None))
        self._open = self._hold(first)
        self._spare = Table(self._slot_count)

    @property
    def memory_bytes(self) -> int:
        """Memory taken; what runs on disk have in the page cache is the kernel's to take back."""
        tables = 1 + sum(not run.is_on_disk for run in self._held.values())
        objects = len(self._held) * _RUN_OBJECT_BYTES
        return self._filter.memory_bytes + tables * self._slot_count * SLOT_BYTES + objects

    def pour(self, fingerprints: Fingerprints, offsets: Offsets, newest: datetime) -> None:
        """Take in pairs, no fingerprint twice; `newest` is the latest created_at among them."""
        start = 0
        while start < len(fingerprints):
            before = self._open.count
            stop = start + self._run_keys - before
            self._open.insert(fingerprints[start:stop], offsets[start:stop], newest)
            self._filter.add(fingerprints[start:stop], self._open.column)
            self._do_chores(before, self._open.count)
            if self._open.count == self._run_keys:
                self._seal()
            start = stop

    def find(self, fingerprints: Fingerprints) -> Iterator[tuple[int, int]]:
        """Yield (index, newest offset) for those fingerprints that are held."""
        words = self._filter.words_of(fingerprints)
        for index in np.flatnonzero(words).tolist():
            if offset := self._newest_offset(int(words[index]), int(fingerprints[index])):
                yield index, offset

    def find_one(self, fingerprint: int) -> int:
        """Return its newest offset, or 0. The quicker way for a handful of fingerprints."""
        return self._newest_offset(self._filter.word_of(fingerprint), fingerprint)

    def _newest_offset(self, word: int, fingerprint: int) -> int:
        newest = 0
        while word:
            column = (word & -word).bit_length() - 1
            word &= word - 1
            # A dropped run's bits stay in the filter until they are wiped.
            if run := self._held.get(column):
                newest = max(newest, run.offset_of(fingerprint))
        return newest

    def _hold(self, table: Table) -> Run:
        column = self._filter.take_column()
        run = self._held[column] = Run(column, table)
        return run

    def _seal(self) -> None:
        """Open the next run, and make sure of a column for the one after it."""
        if self._spill_dir is not None:
            self._outgoing = SpillFile(self._open, self._spill_dir)
        self._filter.finish_wiping()
        self._open = self._hold(self._spare)
        if not self._filter.has_column_to_come:
            self._drop_oldest()
        self._filter.start_wiping()
        # Only now: the memory is planned for the tables there are after a run was dropped.
        self._spare = Table(self._slot_count)

    def _do_chores(self, before: int, after: int) -> None:
        """Do the share of the work per run that falls to the pairs from `before` to `after`."""

        def share(total: int) -> slice:
            return slice(total * before // self._run_keys, total * after // self._run_keys)

        self._spare.clear(share(self._slot_count))
        self._filter.wipe(share(self._filter.word_count))
        self._write_outgoing(share(self._slot_count))

    def _write_outgoing(self, slots: slice) -> None:
        while self._outgoing is not None:
            try:
                if self._outgoing.write(slots):
                    self._outgoing = None
            except OSError:
                # Of all runs the oldest is worth least, and dropping it gives its blocks back.
                # In the end the outgoing run is itself the oldest.
                self._drop_oldest()
            else:
                return

    def _drop_oldest(self) -> None:
        sealed = [run for run in self._held.values() if run is not self._open]
        run = min(sealed, key=lambda run: run.newest)
        self.horizon = max(self.horizon, run.newest + INSTANT)
        self._filter.release_column(run.column)
        del self._held[run.column]
        if self._outgoing is not None and self._outgoing.run is run:
            self._outgoing = None
