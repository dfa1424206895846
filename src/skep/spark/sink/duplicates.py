"""Find the rows of an epoch whose messages are stored already, just before it is committed.

PostgreSQL compares keys as rows, at about a microsecond each, while everybody who wants to push
into these lanes waits. Here they are compared as arrays, and before a lane is locked. So what is
found is a statement about a moment: up to which offset each lane was compared, in a window that
begins when, and at which offset the oldest match is. `skep.checked_lanes` judges at the commit what
is left of that, and the commit compares the rest: what was pushed meanwhile, and lanes of which
nothing is said here.
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
"""How many are compared at a time, at about 60 bytes of memory each. A lane that gets more of them
in one epoch is left to PostgreSQL."""

STAGED: Final = (
    "select * from skep.staged_keys($1, $2::text::bigint, $3::text::bigint[], $4, $5, "
    "$6::text::bigint)"
)
WINDOW: Final = (
    "select partition_id, head, window_start, first, keys "
    "from skep.read_keys('{lanes}'::bigint[], 2147483647)"
)

_NOWHERE: Final = np.iinfo(np.int64).max


class CheckedLane(msgspec.Struct):
    """A lane that was compared, as `skep.checked_lanes` takes it."""

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

    lanes: list[CheckedLane] = []
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
        if lanes := portion.lane_ids():
            for batch in database.stream(WINDOW.format(lanes=array_of(lanes))):
                portion.compare(batch)
        portion.tell(findings)
        last = (rows[-1]["queue"], rows[-1]["partition"])
    return findings


class _Portion:
    """The staged segments of some lanes, as `skep.staged_keys` returns them."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self._rows: Final = rows
        lane_ids = {(row["queue"], row["partition"]): row["lane_id"] for row in rows}
        self._lanes: Final = [CheckedLane(*name, lane_id) for name, lane_id in lane_ids.items()]
        self._numbers: Final = {
            lane.id: number for number, lane in enumerate(self._lanes) if lane.id is not None
        }
        self._unread: Final = set(self._numbers)
        """Lanes of which no head was seen yet."""
        counts = [len(row["keys"]) // KEY_BYTES for row in rows]
        self._starts: Final[Any] = np.cumsum([0, *counts])
        order = {name: number for number, name in enumerate(lane_ids)}
        numbers = [order[row["queue"], row["partition"]] for row in rows]
        keys = keys_of(b"".join(row["keys"] for row in rows), np.repeat(numbers, counts))
        self._matcher: Final = KeyMatcher(keys)

    def lane_ids(self) -> list[int]:
        """Return the lanes that exist; in the others nothing is stored."""
        return list(self._numbers)

    def compare(self, batch: Any) -> None:
        """Compare with a part of what `skep.read_keys` returns."""
        ids, firsts = batch.column("partition_id").to_pylist(), batch.column("first")
        self._note_heads(batch, ids, firsts.is_null().to_pylist())
        keys = batch.column("keys")
        counts = text_lengths(keys) // KEY_BYTES
        lanes = np.repeat([self._numbers[lane_id] for lane_id in ids], counts)
        before = np.cumsum(counts) - counts
        offsets = np.repeat(firsts.fill_null(0).to_numpy() - before, counts)
        stored = keys_of(text_bytes(keys).tobytes(), lanes)
        self._matcher.compare(stored, offsets + np.arange(len(offsets)))

    def _note_heads(self, batch: Any, ids: Iterable[int], is_head: Iterable[bool]) -> None:
        """Learn up to where, and in which window, the lanes are compared that begin here."""
        heads, sinces = batch.column("head").to_pylist(), batch.column("window_start").to_pylist()
        for lane_id, is_meant, head, since in zip(ids, is_head, heads, sinces, strict=True):
            if is_meant:
                lane = self._lanes[self._numbers[lane_id]]
                lane.head, lane.since = head, since.isoformat()
                self._unread.discard(lane_id)

    def tell(self, findings: Findings) -> None:
        """Add what was found; of lanes that were deleted meanwhile nothing is said."""
        found = self._matcher.matches()
        oldest = np.full(len(self._lanes), _NOWHERE)
        np.minimum.at(oldest, found.lanes, found.offsets)
        for lane, offset in zip(self._lanes, oldest.tolist(), strict=True):
            lane.oldest = None if offset == _NOWHERE else offset
        findings.lanes += [lane for lane in self._lanes if lane.id not in self._unread]
        findings.duplicates += self._by_segment(found.duplicates)

    def _by_segment(self, places: Any) -> Iterator[DuplicatesOfSegment]:
        segments = self._starts.searchsorted(places, side="right") - 1
        indexes = places - self._starts[segments]
        bounds = np.flatnonzero(np.diff(segments, prepend=-1, append=-1)).tolist()
        for start, end in pairwise(bounds):
            row = self._rows[int(segments[start])]
            yield DuplicatesOfSegment(row["attempt"], row["number"], indexes[start:end].tolist())
