"""Hold millions of (fingerprint, offset) pairs in bounded memory, oldest out first.

A *run* is one generation: a hash table of fixed capacity. Pairs are poured into the open run; when
it is full it is sealed and a new one opened, and when there is no room for another, the run with
the oldest contents is dropped whole. One filter stands in front of all runs: each of its 64-bit
words has a bit for every run, so the few words of a fingerprint, and-ed, name the runs that may
hold it, however many there are. Nothing is ever sorted or merged.

Promises:

* No false negative: a pair is found until its run is dropped, and then `horizon` has moved past
  everything the run held. False positives are possible: two fingerprints that agree in the bits a
  run keeps share one entry, and one offset stands for both.
* No long stall: the work that grows with the size of a run (clearing the next table and the filter
  bits of dropped runs, writing a sealed run to disk) is done piecemeal, in proportion to the pairs
  poured, and is complete when the open run is full.
* Memory stays below what `Geometry` was planned for. With a spill directory sealed runs live in
  unlinked files mapped for reading; when those cannot be written, runs are dropped instead.

Not here: what a fingerprint is made of, partitions, and what may be vouched for.
"""

import errno
import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Fingerprints: TypeAlias = npt.NDArray[np.uint64]
Offsets: TypeAlias = npt.NDArray[np.int64]

ALWAYS: Final = datetime.min.replace(tzinfo=UTC)
"""Before every segment."""

INSTANT: Final = timedelta(microseconds=1)
"""The resolution of PostgreSQL's timestamps: what is after `t` is at or after `t + INSTANT`."""

COLUMNS_MAX: Final = 64
COLUMNS_MIN: Final = 4
"""One open, one being wiped, and two that remember."""

# At 16 words per key and six of them probed, a key that is in no run passes for one run in 1,060:
# 6% of new keys cost a look into one table (0.7 us) when 64 runs are full. Four words are no
# quicker to gather, eight make pouring slower than they make finding quicker.
_WORDS_PER_KEY: Final = 16
_PROBES: Final = 6
_WORD_BYTES: Final = 8

_SLOT_BYTES: Final = 4 + 8
_RUN_OBJECT_BYTES: Final = 1_200
"""What a run takes besides its table: objects, views, array headers, the mapping."""

# Probing by growing steps keeps clusters short; single steps after that reach every slot.
_GROWING_STEPS: Final = 16

_LOW: Final = 0xFFFF_FFFF
_LOW_HALF: Final = np.uint64(_LOW)
_HALF: Final = np.uint64(32)
_ODD: Final = np.uint64(1)
_PROBE_NUMBERS: Final = np.arange(_PROBES, dtype=np.uint64)[:, None]


def _slot_count(run_keys: int) -> int:
    # Three quarters full at most: above it the longest probes grow quickly. Even, so that the
    # offsets, which follow the tags in a file, are aligned.
    return (run_keys * 4 // 3 + 2) & ~1


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
            memory_bytes: For tables, filter and the objects around them.
            is_spilling: Sealed runs go to disk; only the filter knows them in memory.
            run_keys: Capacity of a run; by default such that 64 of them fill the memory.

        Raises:
            ValueError: The memory is too small for the fewest runs that are of use.
        """
        if run_keys is None:
            tables = 3 if is_spilling else COLUMNS_MAX
            fixed = COLUMNS_MAX * (_RUN_OBJECT_BYTES + 2 * _SLOT_BYTES)
            per_key = _WORDS_PER_KEY * _WORD_BYTES + tables * _SLOT_BYTES * 4 / 3
            run_keys = int((memory_bytes - fixed) / per_key)
        if run_keys < 1:
            raise ValueError(f"{memory_bytes} bytes are too few for runs of keys")
        table_bytes = _slot_count(run_keys) * _SLOT_BYTES
        left = memory_bytes - run_keys * _WORDS_PER_KEY * _WORD_BYTES
        if is_spilling:
            columns = (left - 3 * table_bytes) // _RUN_OBJECT_BYTES
        else:
            columns = left // (table_bytes + _RUN_OBJECT_BYTES)
        if columns < COLUMNS_MIN:
            raise ValueError(f"{memory_bytes} bytes are too few for runs of {run_keys} keys")
        return cls(run_keys, min(columns, COLUMNS_MAX))


class KeyRuns:
    """The runs, the filter in front of them, and the chores that go along with pouring."""

    def __init__(self, geometry: Geometry, *, spill_dir: Path | None = None) -> None:
        self.horizon = ALWAYS
        """Of what was poured, everything created at or after it is still held."""
        self.dropped_count = 0
        self.spill_failure_count = 0
        self._run_keys: Final = geometry.run_keys
        self._slot_count: Final = _slot_count(geometry.run_keys)
        self._spill_dir: Final = spill_dir
        self._filter: Final = _RunFilter(geometry)
        self._held: Final[dict[int, _Run]] = {}
        self._outgoing: _SpillFile | None = None
        first = _Table(self._slot_count)
        first.clear(slice(None))
        self._open = self._hold(first)
        self._spare = _Table(self._slot_count)

    @property
    def keys_held(self) -> int:
        """Pairs that can still be found."""
        return sum(run.count for run in self._held.values())

    @property
    def runs_held(self) -> int:
        """Runs that can still be searched, the open one included."""
        return len(self._held)

    @property
    def memory_bytes(self) -> int:
        """Memory taken; what spilled runs have in the page cache is the kernel's to take back."""
        tables = 1 + sum(not run.is_on_disk for run in self._held.values())
        objects = len(self._held) * _RUN_OBJECT_BYTES
        return self._filter.memory_bytes + tables * self._slot_count * _SLOT_BYTES + objects

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

    def expire(self, before: datetime) -> None:
        """Drop the sealed runs that hold nothing created at or after `before`."""
        for run in self._sealed():
            if run.newest < before:
                self._drop(run)

    def _newest_offset(self, word: int, fingerprint: int) -> int:
        newest = 0
        while word:
            column = (word & -word).bit_length() - 1
            word &= word - 1
            # A dropped run's bits stay in the filter until they are wiped.
            if run := self._held.get(column):
                newest = max(newest, run.offset_of(fingerprint))
        return newest

    def _hold(self, table: "_Table") -> "_Run":
        column = self._filter.take_column()
        run = self._held[column] = _Run(column, table)
        return run

    def _sealed(self) -> "list[_Run]":
        return [run for run in self._held.values() if run is not self._open]

    def _seal(self) -> None:
        """Open the next run, and make sure of a column for the one after it."""
        if self._spill_dir is not None:
            self._outgoing = _SpillFile(self._open, self._spill_dir)
        self._filter.finish_wiping()
        self._open = self._hold(self._spare)
        if not self._filter.has_column_to_come:
            self._drop_oldest()
        self._filter.start_wiping()
        self._spare = _Table(self._slot_count)

    def _do_chores(self, before: int, after: int) -> None:
        """Do the share of the work per run that falls to the pairs from `before` to `after`."""
        slots = _share(self._slot_count, before, after, self._run_keys)
        self._spare.clear(slots)
        self._filter.wipe(before, after)
        while self._outgoing is not None:
            try:
                if self._outgoing.write(slots):
                    self._outgoing = None
            except OSError:
                # Of all runs the oldest is worth least, and dropping it gives its blocks back.
                # At last the outgoing run is itself the oldest.
                self.spill_failure_count += 1
                self._drop_oldest()
            else:
                return

    def _drop_oldest(self) -> None:
        self._drop(min(self._sealed(), key=lambda run: run.newest))

    def _drop(self, run: "_Run") -> None:
        self.horizon = max(self.horizon, run.newest + INSTANT)
        self.dropped_count += 1
        self._filter.release_column(run.column)
        del self._held[run.column]
        if self._outgoing is not None and self._outgoing.run is run:
            self._outgoing = None


def _share(total: int, before: int, after: int, whole: int) -> slice:
    """Return the part of `total` that corresponds to `before` to `after` out of `whole`."""
    return slice(total * before // whole, total * after // whole)


class _RunFilter:
    """A Bloom filter for each run, sliced so that one word holds the same bit of all of them.

    A column is one run's bit. It is taken clean, released dirty, and wiped before it is taken
    again; wiping passes over all words, so it goes along with the filling of a run.
    """

    def __init__(self, geometry: Geometry) -> None:
        self._run_keys: Final = geometry.run_keys
        self._word_count: Final = geometry.run_keys * _WORDS_PER_KEY
        self._words: Final = np.empty(self._word_count, np.uint64)
        # Not np.zeros: its pages would be faulted in at random by the first pour, all at once.
        self._words.fill(0)
        self._word_view: Final = self._words.data
        self._clean = (1 << geometry.columns) - 1
        self._dirty = 0
        self._wiping = 0

    @property
    def memory_bytes(self) -> int:
        return self._words.nbytes

    def add(self, fingerprints: Fingerprints, column: int) -> None:
        positions = self._positions(fingerprints).ravel()
        # A word that occurs twice gets the same bit twice: no need for an unbuffered `or`.
        self._words[positions] = self._words.take(positions) | np.uint64(1 << column)

    def words_of(self, fingerprints: Fingerprints) -> npt.NDArray[np.uint64]:
        """Return for each fingerprint the columns of the runs that may hold it."""
        return np.bitwise_and.reduce(self._words.take(self._positions(fingerprints)), axis=0)

    def word_of(self, fingerprint: int) -> int:
        """Return the same for one, without numpy's cost per call."""
        low, high = fingerprint & _LOW, fingerprint >> 32 | 1
        word = -1
        for probe in range(_PROBES):
            word &= self._word_view[((low + probe * high & _LOW) * self._word_count) >> 32]
            if not word:
                break
        return word

    def _positions(self, fingerprints: Fingerprints) -> npt.NDArray[np.intp]:
        """Return one row per probe: along the fingerprints numpy is three times as quick."""
        mixed = (fingerprints >> _HALF | _ODD) * _PROBE_NUMBERS
        mixed += fingerprints
        mixed &= _LOW_HALF
        mixed *= np.uint64(self._word_count)
        mixed >>= _HALF
        return mixed.view(np.intp)

    @property
    def has_column_to_come(self) -> bool:
        """Whether a column is clean, or will be when the dirty ones are wiped."""
        return bool(self._clean | self._dirty)

    def take_column(self) -> int:
        bit = self._clean & -self._clean
        assert bit, "a column is made available whenever the last clean one is taken"
        self._clean ^= bit
        return bit.bit_length() - 1

    def release_column(self, column: int) -> None:
        self._dirty |= 1 << column

    def start_wiping(self) -> None:
        """Decide what the next passage over the words wipes; later releases wait for theirs."""
        self._wiping, self._dirty = self._dirty, 0

    def wipe(self, before: int, after: int) -> None:
        if self._wiping:
            part = _share(self._word_count, before, after, self._run_keys)
            self._words[part] &= ~np.uint64(self._wiping)

    def finish_wiping(self) -> None:
        self._clean |= self._wiping
        self._wiping = 0


class _Table:
    """An open-addressing hash table in numpy arrays. A tag of 0 marks a free slot."""

    __slots__ = ("offsets", "tags")

    def __init__(self, slot_count: int) -> None:
        self.tags: Final = np.empty(slot_count, np.uint32)
        self.offsets: Final = np.empty(slot_count, np.int64)

    def clear(self, slots: slice) -> None:
        self.tags[slots] = 0
        self.offsets[slots] = 0

    def insert(self, fingerprints: Fingerprints, offsets: Offsets) -> None:
        """Place all pairs at once: each turn settles those whose next slot is free or theirs."""
        slot_count = len(self.tags)
        tags = (fingerprints >> _HALF | _ODD).astype(np.uint32)
        slots = (((fingerprints & _LOW_HALF) * np.uint64(slot_count)) >> _HALF).astype(np.intp)
        turn = 0
        while len(tags):
            seen = self.tags.take(slots)
            # Several pairs may claim one free slot. The last wins; the others see its tag below.
            self.tags[slots] = np.where(seen == 0, tags, seen)
            is_placed = self.tags.take(slots) == tags
            placed, left = np.flatnonzero(is_placed), np.flatnonzero(~is_placed)
            homes = slots.take(placed)
            self.offsets[homes] = np.maximum(self.offsets.take(homes), offsets.take(placed))
            turn += 1
            tags, offsets = tags.take(left), offsets.take(left)
            slots = (slots.take(left) + _step(turn)) % slot_count


def _step(turn: int) -> int:
    return turn if turn < _GROWING_STEPS else 1


class _Run:
    """One generation of pairs: in a table while it is filled, later maybe in a file."""

    __slots__ = ("_table", "column", "count", "newest", "offsets", "tags")

    def __init__(self, column: int, table: _Table) -> None:
        self.column: Final = column
        self.count = 0
        self.newest = ALWAYS
        self._table: _Table | None = table
        self.tags = table.tags.data
        self.offsets = table.offsets.data

    @property
    def is_on_disk(self) -> bool:
        return self._table is None

    def insert(self, fingerprints: Fingerprints, offsets: Offsets, newest: datetime) -> None:
        assert self._table is not None, "only the open run is filled, and it is in memory"
        self._table.insert(fingerprints, offsets)
        self.count += len(fingerprints)
        self.newest = max(self.newest, newest)

    def offset_of(self, fingerprint: int) -> int:
        """Return the offset kept for the fingerprint, or 0."""
        tags = self.tags
        tag = fingerprint >> 32 | 1
        slot = ((fingerprint & _LOW) * len(tags)) >> 32
        turn = 0
        while seen := tags[slot]:
            if seen == tag:
                return self.offsets[slot]
            turn += 1
            slot = (slot + _step(turn)) % len(tags)
        return 0

    def move_to(self, mapping: memoryview) -> None:
        """Read from now on the same slots in a file: all tags, then all offsets."""
        tags_bytes = self.tags.nbytes
        self.tags = mapping[:tags_bytes].cast("I")
        self.offsets = mapping[tags_bytes:].cast("q")
        self._table = None


class _SpillFile:
    """Writes a sealed run to an unlinked file, part by part, and then maps it.

    Written with `pwrite` and mapped only for reading: a store into a mapped page for which the
    disk has no block would kill the process instead of raising an error.
    """

    def __init__(self, run: _Run, directory: Path) -> None:
        self.run: Final = run
        self._directory: Final = directory
        self._descriptor: int | None = None

    def write(self, slots: slice) -> bool:
        """Write these slots; with the last of them move the run and return True."""
        if self._descriptor is None:
            self._descriptor, name = tempfile.mkstemp(prefix="skep-keys-", dir=self._directory)
            # Closed with the last reference to this object; the mapping has its own descriptor.
            weakref.finalize(self, os.close, self._descriptor)
            Path(name).unlink()
        tags, offsets = self.run.tags, self.run.offsets
        _write_at(self._descriptor, tags[slots], slots.start * tags.itemsize)
        _write_at(self._descriptor, offsets[slots], tags.nbytes + slots.start * offsets.itemsize)
        if slots.stop < len(tags):
            return False
        self.run.move_to(memoryview(mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)))
        return True


def _write_at(descriptor: int, data: memoryview, position: int) -> None:
    if os.pwrite(descriptor, data, position) < data.nbytes:
        raise OSError(errno.ENOSPC, "the disk took only a part")
