"""Find equal keys among millions, as arrays and not one by one.

A key is 16 bytes and counts together with its partition. Both are mixed into a mark of 64 bits;
marks are sorted and searched for, which takes some nanoseconds each. Only keys with equal marks are
looked at themselves: what comes out is exact, whatever marks happen to be equal.
"""

from typing import Any, Final, NamedTuple

import numpy as np

KEY_BYTES: Final = 16
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
"""Odd and without a pattern, so that the same key has other marks in other partitions."""


class Keys(NamedTuple):
    """Keys in their order."""

    marks: Any
    """Equal for equal keys of a partition, and hardly ever for others."""
    rest: Any
    """Another 64 bits: with mark and partition they are the whole key."""
    partitions: Any
    """The numbers of their partitions."""

    def at(self, places: Any) -> "Keys":
        """Return the keys at some places."""
        return Keys(*(column[places] for column in self))


def keys_of(data: bytes, partitions: Any) -> Keys:
    """Return keys that lie one behind the other, given as many numbers of partitions."""
    words = np.frombuffer(data, np.uint64).reshape(-1, 2)
    return Keys(words[:, 0] ^ (partitions.astype(np.uint64) * _SPREAD), words[:, 1], partitions)


class Matches(NamedTuple):
    """What was found of new keys."""

    duplicates: Any
    """Places of those that are stored, or were before among the new ones; ascending."""
    partitions: Any
    offsets: Any
    """Where a key is stored that is also among the new ones: the newest place of each."""


class KeyMatcher:
    """Compares new keys with stored ones, and with each other."""

    def __init__(self, new: Keys) -> None:
        self._new: Final = new
        self._sorted: Final = np.sort(new.marks)
        self._suspects: Final = [self._sorted[1:][self._sorted[1:] == self._sorted[:-1]]]
        """Marks that occur more than once."""
        self._stored: Final[list[tuple[Keys, Any]]] = []
        """Stored keys whose marks are also among the new ones, and their offsets."""

    def compare(self, stored: Keys, offsets: Any) -> None:
        """Compare with stored keys, which lie at these offsets of their partitions."""
        chosen = _places_in(stored.marks, self._sorted)
        if len(chosen):
            found = stored.at(chosen)
            self._suspects.append(found.marks)
            self._stored.append((found, offsets[chosen]))

    def matches(self) -> Matches:
        """Return what was found by now."""
        suspects = np.concatenate(self._suspects)
        nowhere = np.empty(0, np.int64)
        if not len(suspects):
            return Matches(nowhere, nowhere, nowhere)
        places = np.sort(_places_in(self._new.marks, np.sort(suspects)))
        offsets = np.concatenate([offsets for _, offsets in self._stored] or [nowhere])
        oldest_first = np.argsort(offsets)
        parts = [keys for keys, _ in self._stored]
        stored = Keys(*map(np.concatenate, zip(*parts, strict=True))) if parts else None
        both = self._new.at(places)
        if stored is not None:
            both = Keys(*map(np.concatenate, zip(stored.at(oldest_first), both, strict=True)))
        return _matches(both, np.append(offsets[oldest_first], places), len(offsets))


def _places_in(marks: Any, wanted: Any) -> Any:
    """Return where there are wanted marks, which are sorted."""
    if not len(wanted):
        return np.empty(0, np.int64)
    order = np.argsort(marks)
    # Searching in order is quick: what is next to each other is found next to each other.
    in_order = marks[order]
    nearest = wanted.searchsorted(in_order).clip(max=len(wanted) - 1)
    return order[wanted[nearest] == in_order]


def _matches(keys: Keys, whereabouts: Any, stored: int) -> Matches:
    """Find equal keys: stored ones with their offsets, ascending, then new ones with their places.

    Sorting keeps the order of equal keys. So of each kind there are the stored ones first, the
    newest of them last; and a new one is a duplicate if anything equal is before it.
    """
    order = np.lexsort((keys.partitions, keys.rest, keys.marks))
    keys, whereabouts, is_new = keys.at(order), whereabouts[order], order >= stored
    is_repeated = np.append(
        False, np.logical_and.reduce([column[1:] == column[:-1] for column in keys])
    )
    is_duplicate = is_new & is_repeated
    is_after_stored = np.flatnonzero(is_duplicate & ~np.append(True, is_new[:-1]))
    return Matches(
        np.sort(whereabouts[is_duplicate]),
        keys.partitions[is_after_stored],
        whereabouts[is_after_stored - 1],
    )
