"""Keep the (fingerprint, offset) pairs of one run, in memory or in a file.

A run is a hash table of fixed capacity that is filled in bulk, searched one by one, and never
changed again once it is full. Then it can be moved to an unlinked file and read through a mapping;
the kernel decides how much of that stays in memory, and nothing is left when the process ends.

Not here: which runs there are, and when one is given up.
"""

import errno
import mmap
import os
import tempfile
import weakref
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Fingerprints: TypeAlias = npt.NDArray[np.uint64]
Offsets: TypeAlias = npt.NDArray[np.int64]

ALWAYS: Final = datetime.min.replace(tzinfo=UTC)
"""Before every segment."""

SLOT_BYTES: Final = 8 + 8

# Probing by growing steps keeps clusters short; the single steps after that reach every slot.
_GROWING_STEPS: Final = 16

_LOW: Final = 0xFFFF_FFFF
_LOW_HALF: Final = np.uint64(_LOW)
_HALF: Final = np.uint64(32)
_ODD: Final = np.uint64(1)


def slots_for(key_count: int) -> int:
    """Return the slots of a table for so many keys.

    It gets three quarters full: beyond that the longest probes grow quickly.
    """
    return key_count * 4 // 3 + 1


class Table:
    """Memory for a run: open addressing in two arrays, to be cleared before use.

    A tag is a fingerprint made odd, so that 0 can mark a free slot.
    """

    __slots__ = ("offsets", "tags")

    def __init__(self, slot_count: int) -> None:
        self.tags: Final = np.empty(slot_count, np.uint64)
        self.offsets: Final = np.empty(slot_count, np.int64)

    def clear(self, slots: slice) -> None:
        """Free these slots."""
        self.tags[slots] = 0
        self.offsets[slots] = 0

    def insert(self, fingerprints: Fingerprints, offsets: Offsets) -> None:
        """Place all pairs at once: each turn settles those whose next slot is free or theirs.

        There must be a free slot for each; the larger offset stays where a tag is there already.
        """
        slot_count = len(self.tags)
        tags = fingerprints | _ODD
        slots = (((fingerprints & _LOW_HALF) * np.uint64(slot_count)) >> _HALF).astype(np.intp)
        turn = 0
        while len(tags):
            seen = self.tags.take(slots)
            # Several pairs may claim one free slot. The last wins; the others see its tag below.
            self.tags[slots] = np.where(seen == 0, tags, seen)
            is_placed = self.tags.take(slots) == tags
            placed, left = np.flatnonzero(is_placed), np.flatnonzero(~is_placed)
            homes = slots.take(placed)
            np.maximum.at(self.offsets, homes, offsets.take(placed))
            turn += 1
            tags, offsets = tags.take(left), offsets.take(left)
            slots = (slots.take(left) + _step(turn)) % slot_count


def _step(turn: int) -> int:
    return turn if turn < _GROWING_STEPS else 1


class Run:
    """One generation of pairs, known to the filter by its column."""

    __slots__ = ("_table", "column", "count", "newest", "offsets", "tags")

    def __init__(self, column: int, table: Table) -> None:
        self.column: Final = column
        self.count = 0
        self.newest = ALWAYS
        """The latest created_at of all pairs."""
        self._table: Table | None = table
        self.tags = table.tags.data
        self.offsets = table.offsets.data

    @property
    def is_on_disk(self) -> bool:
        """Whether the table's memory was given back."""
        return self._table is None

    def insert(self, fingerprints: Fingerprints, offsets: Offsets, newest: datetime) -> None:
        """Take in pairs, the latest of them created at `newest`."""
        assert self._table is not None, "a run is moved to disk only after it is full"
        self._table.insert(fingerprints, offsets)
        self.count += len(fingerprints)
        self.newest = max(self.newest, newest)

    def offset_of(self, fingerprint: int) -> int:
        """Return the offset kept for the fingerprint, or 0."""
        tags = self.tags
        tag = fingerprint | 1
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
        self.tags = mapping[:tags_bytes].cast("Q")
        self.offsets = mapping[tags_bytes:].cast("q")
        self._table = None


class SpillFile:
    """Writes a full run to an unlinked file, part by part, and then maps it.

    Written with `pwrite` and mapped only for reading: a store into a mapped page for which the
    disk has no block would kill the process instead of raising an error.
    """

    def __init__(self, run: Run, directory: Path) -> None:
        self.run: Final = run
        self._directory: Final = directory
        self._descriptor: int | None = None

    def write(self, slots: slice) -> bool:
        """Write these slots; with the last of them move the run and return True.

        Parts are written in order, and one that failed may be tried again.

        Raises:
            OSError: The file cannot be made, written or mapped.
        """
        if self._descriptor is None:
            self._descriptor = self._open()
        tags, offsets = self.run.tags, self.run.offsets
        _write_at(self._descriptor, tags[slots], slots.start * tags.itemsize)
        _write_at(self._descriptor, offsets[slots], tags.nbytes + slots.start * offsets.itemsize)
        if slots.stop < len(tags):
            return False
        self.run.move_to(memoryview(mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)))
        return True

    def _open(self) -> int:
        descriptor, name = tempfile.mkstemp(prefix="skep-keys-", dir=self._directory)
        # Closed with the last reference to this object; the mapping keeps its own descriptor.
        weakref.finalize(self, os.close, descriptor)
        Path(name).unlink()
        return descriptor


def _write_at(descriptor: int, data: memoryview, position: int) -> None:
    if os.pwrite(descriptor, data, position) < data.nbytes:
        raise OSError(errno.ENOSPC, "the disk took only a part")
