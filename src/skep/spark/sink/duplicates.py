"""Find the rows of an epoch whose messages are stored already, just before it is committed.

PostgreSQL compares keys as rows, at about a microsecond each, while pushes into these partitions
wait. Here they are compared as arrays, before a partition is locked. The result holds for a moment
only: it says up to which offset each partition was compared, when the window begins, and at which
offset the oldest match is. At the commit `skep.checked_partitions` decides how much of that still
holds, and the commit compares the rest: what was pushed meanwhile, and unchecked partitions.

A key is 16 bytes and counts together with its partition. Both are mixed into a mark of 64 bits;
marks are sorted and searched for, which takes some nanoseconds each. Only keys with equal marks are
compared in full, so the result is exact.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from skep.spark.runtime.arrow import text_bytes, text_lengths
from skep.spark.runtime.postgres import Database, array_of
from skep.spark.sink.segments import Place

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


def _matches(keys: Keys, places: Any, stored: int) -> Matches:
    """Find equal keys: stored ones with their offsets, ascending, then new ones with their places.

    Sorting keeps the order of equal keys. So of each kind there are the stored ones first, the
    newest of them last; and a new one is a duplicate if anything equal is before it.
    """
    order = np.lexsort((keys.partitions, keys.rest, keys.marks))
    keys, places, is_new = keys.at(order), places[order], order >= stored
    is_repeated = np.append(
        False, np.logical_and.reduce([column[1:] == column[:-1] for column in keys])
    )
    is_duplicate = is_new & is_repeated
    is_after_stored = np.flatnonzero(is_duplicate & ~np.append(True, is_new[:-1]))
    return Matches(
        np.sort(places[is_duplicate]),
        keys.partitions[is_after_stored],
        places[is_after_stored - 1],
    )


KEYS_MAX: Final = 4_000_000
"""How many are compared at a time, at about 60 bytes of memory each. A partition that gets more
of them in one epoch is left to PostgreSQL."""

STAGED: Final = (
    "select * from skep.staged_keys($1, $2::text::bigint, $3::text::bigint[], $4, $5, "
    "$6::text::bigint)"
)
WINDOW: Final = (
    "select partition_id, head, window_start, first, keys "
    "from skep.read_keys('{partitions}'::bigint[], 2147483647)"
)

_NOWHERE: Final = np.iinfo(np.int64).max


class CheckedPartition(msgspec.Struct):
    """A partition that was compared, as `skep.checked_partitions` takes it."""

    queue: str
    partition: str
    id: int | None
    head: int = 0
    since: str = "-infinity"
    oldest: int | None = None


class DuplicatesOfSegment(msgspec.Struct):
    """Which messages of a staged segment are duplicates."""

    attempt: int
    number: int
    indexes: list[int]


class Findings(msgspec.Struct):
    """What is known of the duplicates of an epoch."""

    partitions: list[CheckedPartition] = []
    duplicates: list[DuplicatesOfSegment] = []


def find_duplicates(
    database: Database, place: Place, attempts: Sequence[int], keys_max: int = KEYS_MAX
) -> Findings:
    """Compare what these attempts of an epoch staged with the log, and with each other."""
    findings = Findings()
    whose = (place.write_id, place.epoch, attempts)
    last = ("", "")
    while rows := database.rows(STAGED, *whose, *last, keys_max):
        split = _StagedKeys(rows)
        if partitions := split.partition_ids():
            for batch in database.stream(WINDOW.format(partitions=array_of(partitions))):
                split.compare(batch)
        split.tell(findings)
        last = (rows[-1]["queue"], rows[-1]["partition"])
    return findings


class _StagedKeys:
    """The staged segments of some partitions, as `skep.staged_keys` returns them."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self._rows: Final = rows
        partition_ids = {(row["queue"], row["partition"]): row["partition_id"] for row in rows}
        self._partitions: Final = [
            CheckedPartition(*name, partition_id) for name, partition_id in partition_ids.items()
        ]
        self._numbers: Final = {
            partition.id: number
            for number, partition in enumerate(self._partitions)
            if partition.id is not None
        }
        self._unread: Final = set(self._numbers)
        """Partitions of which no head was seen yet."""
        counts = [len(row["keys"]) // KEY_BYTES for row in rows]
        self._starts: Final[Any] = np.cumsum([0, *counts])
        order = {name: number for number, name in enumerate(partition_ids)}
        numbers = [order[row["queue"], row["partition"]] for row in rows]
        keys = keys_of(b"".join(row["keys"] for row in rows), np.repeat(numbers, counts))
        self._matcher: Final = KeyMatcher(keys)

    def partition_ids(self) -> list[int]:
        """Return the partitions that exist; in the others nothing is stored."""
        return list(self._numbers)

    def compare(self, batch: Any) -> None:
        """Compare with a part of what `skep.read_keys` returns."""
        ids, firsts = batch.column("partition_id").to_pylist(), batch.column("first")
        self._note_heads(batch, ids, firsts.is_null().to_pylist())
        keys = batch.column("keys")
        counts = text_lengths(keys) // KEY_BYTES
        partitions = np.repeat([self._numbers[partition_id] for partition_id in ids], counts)
        before = np.cumsum(counts) - counts
        offsets = np.repeat(firsts.fill_null(0).to_numpy() - before, counts)
        stored = keys_of(text_bytes(keys).tobytes(), partitions)
        self._matcher.compare(stored, offsets + np.arange(len(offsets)))

    def _note_heads(self, batch: Any, ids: Iterable[int], is_head: Iterable[bool]) -> None:
        """Learn up to where, and in which window, the partitions are compared that begin here."""
        heads, sinces = batch.column("head").to_pylist(), batch.column("window_start").to_pylist()
        for partition_id, is_meant, head, since in zip(ids, is_head, heads, sinces, strict=True):
            if is_meant:
                partition = self._partitions[self._numbers[partition_id]]
                partition.head, partition.since = head, since.isoformat()
                self._unread.discard(partition_id)

    def tell(self, findings: Findings) -> None:
        """Add what was found; of partitions that were deleted meanwhile nothing is said."""
        found = self._matcher.matches()
        oldest = np.full(len(self._partitions), _NOWHERE)
        np.minimum.at(oldest, found.partitions, found.offsets)
        for partition, offset in zip(self._partitions, oldest.tolist(), strict=True):
            partition.oldest = None if offset == _NOWHERE else offset
        findings.partitions += [
            partition for partition in self._partitions if partition.id not in self._unread
        ]
        findings.duplicates += self._by_segment(found.duplicates)

    def _by_segment(self, places: Any) -> Iterator[DuplicatesOfSegment]:
        segments = self._starts.searchsorted(places, side="right") - 1
        indexes = places - self._starts[segments]
        bounds = np.flatnonzero(np.diff(segments, prepend=-1, append=-1)).tolist()
        for start, end in pairwise(bounds):
            row = self._rows[int(segments[start])]
            yield DuplicatesOfSegment(row["attempt"], row["number"], indexes[start:end].tolist())
