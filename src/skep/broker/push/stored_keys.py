"""Load stored keys into the key cache, so that it can prove which are absent.

A partition this process created is empty: the cache guarantees it from the start. A partition found
in the database may hold an hour of keys; they are read before the first push into it, in bounded
batches. The push procedure probes what was not read.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from skep.broker.directory import Partition
from skep.db.access.slots import Caller
from skep.engine.key_cache.cache import KeyCache

READ_CALL: Final = "select * from skep.read_keys($1, $2)"
SEGMENTS_MAX: Final = 2_000
"""Segments read of one partition; the push procedure probes older ones."""
PARTITIONS_PER_CALL: Final = 200

_ALWAYS: Final = datetime.min.replace(tzinfo=UTC)


class KeyLoader:
    """Lets the key cache guarantee partitions."""

    def __init__(self, caller: Caller, cache: KeyCache) -> None:
        self._caller: Final = caller
        self._cache: Final = cache

    async def prepare(self, created: Sequence[Partition], found: Sequence[Partition]) -> None:
        """Guarantee partitions just created, and the others after reading their keys."""
        for partition in created:
            self._cache.begin(partition.partition_id, head=0, since=_ALWAYS)
        # A partition whose name was forgotten may still be guaranteed, with a push under way.
        ids = [partition.partition_id for partition in found]
        spans = self._cache.guarantee_each(ids)
        unknown = [each for each, span in zip(ids, spans, strict=True) if span is None]
        for start in range(0, len(unknown), PARTITIONS_PER_CALL):
            part = unknown[start : start + PARTITIONS_PER_CALL]
            for partition, *segments in _by_partition(
                await self._caller.call(READ_CALL, part, SEGMENTS_MAX)
            ):
                self._learn(partition, segments)

    def _learn(self, partition: Any, segments: Sequence[Any]) -> None:
        """Guarantee from the oldest segment read; from the window's start if that was all of it."""
        partition_id, head, since = (
            partition["partition_id"],
            partition["head"],
            partition["window_start"],
        )
        if segments:
            oldest = segments[-1]
            head = oldest["first"] - 1
            if len(segments) >= SEGMENTS_MAX:
                # Segments that were not read may have the same time as the oldest that was.
                since = oldest["created_at"] + timedelta(microseconds=1)
        self._cache.begin(partition_id, head=head, since=since)
        for row in reversed(segments):
            self._cache.adopt(partition_id, row["first"], row["keys"], row["created_at"])


def _by_partition(rows: Sequence[Any]) -> list[list[Any]]:
    """Return the rows of each partition: one about itself, then its segments, newest first."""
    groups: list[list[Any]] = []
    for row in rows:
        if row["first"] is None:
            groups.append([])
        groups[-1].append(row)
    return groups
