"""Remember which keys were stored where, and prove which are absent.

This is the broker's half of duplicate detection. With every push the broker guarantees a *span* of
each partition: none of the keys sent occurs there at offsets up to `to` in segments created at or
after `since`. The push procedure probes the rest of the window under the partition's lock, so
detection is exact whatever this cache holds; the cache only makes probing rare.

Promises:

* `find` finds every key inside a span that is guaranteed, at its newest offset. A hit may be
  outside the window by now, so the caller confirms it in the database. One that is not confirmed
  is new, unless two keys of the partition agree in 63 bits and the newer hides the older: a caller
  that must be exact even then pushes such a write without a guarantee.
* Memory stays below `memory_bytes_max`; it is taken in steps, as keys come. Only when it or the
  disk is used up are keys forgotten that are needed. They are taken out of the spans first.
* The cost of a call is bounded by the keys it carries; there is nothing to run in between.

It relies on the procedure for one thing: along a partition created_at never decreases. It may
stay the same over many segments, when the server's clock was set back.

Keys are 16 bytes each, uniformly distributed. Not here: hashing, SQL, and repeats within one
flush, which the caller removes.
"""

import struct
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from skep.engine.key_cache.runs import INSTANT, Geometry, KeyRuns
from skep.engine.key_cache.table import ALWAYS, Fingerprints, Offsets

KEY_BYTES: Final = 16

Segment: TypeAlias = tuple[int, int, bytes, datetime]
"""Partition id, first offset, joined keys, created_at."""

Guarantee: TypeAlias = tuple[int, datetime]
"""(to, since): every key at offsets up to `to` in segments created at or after `since` is known."""

NO_GUARANTEE: Final[Guarantee] = (0, datetime.max.replace(tzinfo=UTC))

_YOUNG_KEYS_MAX: Final = 4_096
"""Keys between two pours. One pour takes about a millisecond."""

_POURED_MAX: Final = 16_384
"""Older keys poured at once: few cost more each, many stall."""

_YOUNG_OBJECT_BYTES: Final = 48 + 32
"""The two integers of an entry; the dictionary knows its own size."""

_YOUNG_KEY_BYTES: Final = 128
"""An entry with its share of the dictionary just after it has grown."""

_SPAN_BYTES: Final = 340
"""A span with its share of the ordered dictionary just after it has grown."""

_FIXED_BYTES: Final = 4_096
"""The objects there is one of."""

# Up to these numbers doing it one by one is quicker than numpy's cost per call.
_FIND_FEW_KEYS: Final = 6
_FINGERPRINT_FEW_KEYS: Final = 32
_RECORD_FEW_SEGMENTS: Final = 8

_EMPTY: Final[Guarantee] = (0, ALWAYS)
"""True of any partition: there is nothing before the first offset, which is 1."""

_SALT: Final = 0x9E37_79B9_7F4A_7C15
_ALL_BITS: Final = 0xFFFF_FFFF_FFFF_FFFF

_first_halves = struct.Struct("<Q8x").iter_unpack


class Hit(NamedTuple):
    """A key that seems to be stored already: which one, and its newest offset."""

    write: int
    key_index: int
    offset: int


class KeyCache:
    """The keys of recent segments, and the span of each partition they are complete for.

    Args:
        memory_bytes_max: Bound on what is held in memory. An eighth is for spans (385 partitions
            per MiB), the rest for keys (about 37,000 per MiB; 290,000 with a spill directory).
        first_bytes: What the cache starts with; more is taken when that is used up and the oldest
            keys are still needed. By default all.
        needed_since: Returns the time from which on keys are needed.
        spill_dir: Where unlinked files may hold older keys, at 22 bytes per key.
        run_keys: Keys that are forgotten together; by default a 64th of what the cache starts with.

    Raises:
        ValueError: The bound is too small to be of use; a quarter of a MiB is enough.
    """

    def __init__(
        self,
        *,
        memory_bytes_max: int,
        first_bytes: int | None = None,
        needed_since: Callable[[], datetime] = lambda: ALWAYS,
        spill_dir: Path | None = None,
        run_keys: int | None = None,
    ) -> None:
        first_bytes = min(first_bytes or memory_bytes_max, memory_bytes_max)
        self.searched_count = 0
        """Keys that were looked up."""
        self.found_count = 0
        self._spans: Final[OrderedDict[int, Guarantee]] = OrderedDict()
        self._spans_max: Final = max(1, memory_bytes_max // 8 // _SPAN_BYTES)
        # The young generation: keys since the last pour, by fingerprint.
        self._young: Final[dict[int, int]] = {}
        self._young_newest = ALWAYS
        young_share = first_bytes // 16 // _YOUNG_KEY_BYTES
        self._young_keys_max: Final = max(1, min(young_share, _YOUNG_KEYS_MAX))
        fixed = self._young_keys_max * _YOUNG_KEY_BYTES + _FIXED_BYTES
        geometry = Geometry.plan(
            first_bytes - max(1, first_bytes // 8 // _SPAN_BYTES) * _SPAN_BYTES - fixed,
            is_spilling=spill_dir is not None,
            run_keys=run_keys,
        )
        self._runs: Final = KeyRuns(
            geometry,
            memory_bytes_max=memory_bytes_max - self._spans_max * _SPAN_BYTES - fixed,
            needed_since=needed_since,
            spill_dir=spill_dir,
        )

    @property
    def horizon(self) -> datetime:
        """The earliest time from which anything can be guaranteed."""
        return self._runs.horizon

    @property
    def memory_bytes(self) -> int:
        """Memory taken now, the filter's fixed part included."""
        young = sys.getsizeof(self._young) + len(self._young) * _YOUNG_OBJECT_BYTES
        return _FIXED_BYTES + young + len(self._spans) * _SPAN_BYTES + self._runs.memory_bytes

    @property
    def disk_bytes(self) -> int:
        """Size of the files."""
        return self._runs.disk_bytes

    @property
    def key_count(self) -> int:
        """Keys held that are needed."""
        return len(self._young) + self._runs.key_count

    @property
    def key_count_max(self) -> int:
        """Keys that the memory has room for, about."""
        return self._runs.key_count_max

    def guarantee(self, partition_id: int) -> Guarantee | None:
        """Return what `find` is complete for in the partition; None if for nothing.

        It holds for keys looked up since the span last grew: after an `adopt`, or an await during
        which one may have happened, look them up again before relying on it.
        """
        return self.guarantee_each((partition_id,))[0]

    def guarantee_each(self, partition_ids: Iterable[int]) -> list[Guarantee | None]:
        """Return the `guarantee` of each, at a fraction of the cost."""
        spans, horizon = self._spans, self._runs.horizon
        return [
            span if (span := spans.get(each)) is None or span[1] >= horizon else (span[0], horizon)
            for each in partition_ids
        ]

    def find(self, writes: Sequence[tuple[int, bytes]]) -> list[Hit]:
        """Return which keys of (partition id, joined keys) seem to be stored, in their order."""
        key_count = sum([len(keys) for _, keys in writes]) // KEY_BYTES
        hits = self._find_few(writes) if key_count <= _FIND_FEW_KEYS else self._find_many(writes)
        self.searched_count += key_count
        self.found_count += len(hits)
        return hits

    def begin(self, partition_id: int, *, head: int, since: datetime) -> None:
        """Guarantee the partition up to `head` in segments created at or after `since`.

        The keys of those segments are adopted, in any order, before the next `find`.
        A partition just created has head 0 and is known since `ALWAYS`.
        """
        self._set_span(partition_id, head, since)

    def record(self, partition_id: int, first: int, keys: bytes, created_at: datetime) -> None:
        """Take in a segment, from offset `first` on, that was created at `created_at`."""
        assert len(keys) % KEY_BYTES == 0, "keys are joined without anything between them"
        count = len(keys) // KEY_BYTES
        self._extend_span(partition_id, first, first + count - 1, created_at)
        self._keep(_fingerprints(partition_id, keys), range(first, first + count), created_at)

    def adopt(self, partition_id: int, first: int, keys: bytes, created_at: datetime) -> None:
        """Take in segments another broker stored; `created_at` is that of the newest of them."""
        self.record(partition_id, first, keys, created_at)

    def extend(
        self,
        partition_id: int,
        firsts: Sequence[int],
        counts: Sequence[int],
        keys: bytes,
        newest: datetime,
        *,
        known: datetime,
        since: datetime,
    ) -> bool:
        """Let a span that begins at `known` begin at `since`.

        The segments created in between have these first offsets, numbers of keys and, joined,
        keys, in the order of their offsets; the newest was created at `newest`.
        Returns False if the span begins elsewhere, or cannot begin there for lack of memory.
        """
        span = self._spans.get(partition_id)
        if span is None or span[1] != known or known <= self.horizon:
            return False
        if keys:
            befores = accumulate(counts, initial=0)
            shifts = [first - before for first, before in zip(firsts, befores, strict=False)]
            offsets = np.arange(len(keys) // KEY_BYTES, dtype=np.int64)
            offsets += np.repeat(np.array(shifts, np.int64), np.array(counts))
            fingerprints = _joined_fingerprints([(partition_id, keys)], [len(offsets)])
            self._keep_older(fingerprints, offsets, newest)
        self._spans[partition_id] = span[0], since
        return since >= self.horizon

    def record_flush(self, segments: Sequence[Segment]) -> None:
        """Take in all the segments of one call; the same as `record` for each, but cheaper."""
        if len(segments) < _RECORD_FEW_SEGMENTS:
            for segment in segments:
                self.record(*segment)
            return
        writes = [(partition_id, keys) for partition_id, _, keys, _ in segments]
        counts = [len(keys) // KEY_BYTES for _, keys in writes]
        offsets: list[int] = []
        for (partition_id, first, _, created_at), count in zip(segments, counts, strict=True):
            self._extend_span(partition_id, first, first + count - 1, created_at)
            offsets += range(first, first + count)
        # All get the newest time: it only decides how long they are guaranteed at most.
        newest = max(created_at for _, _, _, created_at in segments)
        self._keep(_joined_fingerprints(writes, counts).tolist(), offsets, newest)

    def forget(self, partition_id: int) -> None:
        """Stop guaranteeing the partition; its keys leave with the others of their age."""
        self._spans.pop(partition_id, None)

    def _find_few(self, writes: Sequence[tuple[int, bytes]]) -> list[Hit]:
        hits: list[Hit] = []
        for write, (partition_id, keys) in enumerate(writes):
            for index, fingerprint in enumerate(_fingerprints(partition_id, keys)):
                young = self._young.get(fingerprint, 0)
                if offset := max(young, self._runs.find_one(fingerprint)):
                    hits.append(Hit(write, index, offset))
        return hits

    def _find_many(self, writes: Sequence[tuple[int, bytes]]) -> list[Hit]:
        counts = [len(keys) // KEY_BYTES for _, keys in writes]
        fingerprints = _joined_fingerprints(writes, counts)
        found = self._runs.find(fingerprints)
        self._find_young(fingerprints.tolist(), found)
        if not found:
            return []
        ends = np.fromiter(accumulate(counts), np.int64, len(counts))
        positions = sorted(found)
        owners = np.searchsorted(ends, positions, side="right").tolist()
        return [
            Hit(write, position - int(ends[write]) + counts[write], found[position])
            for write, position in zip(owners, positions, strict=True)
        ]

    def _find_young(self, fingerprints: list[int], found: dict[int, int]) -> None:
        young = self._young
        if young.keys().isdisjoint(fingerprints):
            return
        for position, fingerprint in enumerate(fingerprints):
            if offset := young.get(fingerprint):
                found[position] = max(offset, found.get(position, 0))

    def _keep(
        self, fingerprints: Sequence[int], offsets: Sequence[int], created_at: datetime
    ) -> None:
        if created_at < self.horizon:
            # No span reaches that far back any more: do not evict what can be guaranteed for it.
            return
        for start in range(0, len(fingerprints), self._young_keys_max):
            end = start + self._young_keys_max
            portion = fingerprints[start:end]
            if len(self._young) + len(portion) > self._young_keys_max:
                self._pour_young()
            self._keep_young(portion, offsets[start:end])
            self._young_newest = max(self._young_newest, created_at)

    def _keep_older(
        self, fingerprints: Fingerprints, offsets: Offsets, created_at: datetime
    ) -> None:
        if len(offsets) <= self._young_keys_max:
            self._keep(fingerprints.tolist(), offsets.tolist(), created_at)
            return
        for start in range(0, len(offsets), _POURED_MAX):
            end = start + _POURED_MAX
            self._runs.pour(fingerprints[start:end], offsets[start:end], created_at)

    def _extend_span(self, partition_id: int, first: int, last: int, created_at: datetime) -> None:
        to, since = self._spans.get(partition_id, _EMPTY)
        if first <= to + 1:
            self._set_span(partition_id, max(to, last), since)
            return
        # Some segments before this one are unknown. They may have been created at the same time as
        # this one, never later, so the guarantee covers only what was created after that.
        self._set_span(partition_id, last, created_at + INSTANT)

    def _set_span(self, partition_id: int, to: int, since: datetime) -> None:
        self._spans[partition_id] = to, since
        self._spans.move_to_end(partition_id)
        if len(self._spans) > self._spans_max:
            # A partition not pushed to for long: probing it costs the database least.
            self._spans.popitem(last=False)

    def _keep_young(self, fingerprints: Sequence[int], offsets: Sequence[int]) -> None:
        young = self._young
        numbered = zip(fingerprints, offsets, strict=True)
        if young.keys().isdisjoint(fingerprints):
            young.update(numbered)
            return
        # A key stored again after its window. Segments may be learned in any order, so the later
        # call is not always the newer one.
        for fingerprint, offset in numbered:
            young[fingerprint] = max(offset, young.get(fingerprint, 0))

    def _pour_young(self) -> None:
        young = self._young
        fingerprints = np.fromiter(young.keys(), np.uint64, len(young))
        offsets = np.fromiter(young.values(), np.int64, len(young))
        self._runs.pour(fingerprints, offsets, self._young_newest)
        young.clear()
        self._young_newest = ALWAYS


def _fingerprints(partition_id: int, keys: bytes) -> list[int]:
    """Mix each key with its partition into 64 bits.

    Half of a key is random enough; the salt keeps the same key apart in different partitions.
    """
    salt = partition_id * _SALT & _ALL_BITS
    if len(keys) <= _FINGERPRINT_FEW_KEYS * KEY_BYTES:
        return [half ^ salt for (half,) in _first_halves(keys)]
    return (np.frombuffer(keys, "<u8")[::2] ^ np.uint64(salt)).tolist()


def _joined_fingerprints(writes: Sequence[tuple[int, bytes]], counts: list[int]) -> Fingerprints:
    """Return the fingerprints of all writes, one after the other."""
    halves = np.frombuffer(b"".join([keys for _, keys in writes]), "<u8")[::2]
    partition_ids = np.array([partition_id for partition_id, _ in writes], np.uint64)
    return halves ^ np.repeat(partition_ids * np.uint64(_SALT), counts)
