"""Find the rows of an epoch whose messages are stored already, just before it is committed.

PostgreSQL compares keys as rows, at about a microsecond each, while everybody who wants to push
into these partitions waits. Here they are compared as arrays, and before a partition is locked. So
what is found is a statement about a moment: up to which offset each partition was compared, in a
window that begins when, and at which offset the oldest match is. `skep.checked_partitions` judges
at the commit what is left of that, and the commit compares the rest: what was pushed meanwhile, and
partitions of which nothing is said here.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np

from skep.spark.runtime.postgres import Database
from skep.spark.sink.key_matching import KEY_BYTES, KeyMatcher, keys_of
from skep.spark.sink.segments import Place
from skep.spark.sink.text_bytes import text_bytes, text_lengths
from skep.spark.source.log import array_of

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
    """Compare what these attempts of an epoch staged with the log, and with each other.

    Raises:
        SkepError: The database is away, or refuses.
    """
    findings = Findings()
    whose = (place.write_id, str(place.epoch), array_of(attempts))
    last = ("", "")
    while rows := database.rows(STAGED, *whose, *last, str(keys_max)):
        portion = _Portion(rows)
        if partitions := portion.partition_ids():
            for batch in database.stream(WINDOW.format(partitions=array_of(partitions))):
                portion.compare(batch)
        portion.tell(findings)
        last = (rows[-1]["queue"], rows[-1]["partition"])
    return findings


class _Portion:
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
