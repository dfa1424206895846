"""Teach the duplicate cache what is already stored in partitions this process meets.

A partition this process created is empty, so its cache knows everything from the start. A partition
found in the database may hold an hour of keys; they are read before the first push into it, in
bounded portions. What cannot be learned is not guaranteed, and the push procedure probes it.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from skep.broker.directory import Partition
from skep.db.access.slots import Caller
from skep.engine.dedup.cache import DedupCache

READ_CALL: Final = "select * from skep.read_keys($1, $2)"
SEGMENTS_MAX: Final = 2_000
"""Segments learned of one partition. Older ones are left to the procedure's own probe."""
PARTITIONS_PER_CALL: Final = 200

_ALWAYS: Final = datetime.min.replace(tzinfo=UTC)


class KeyLoader:
    """Prepares the duplicate cache for partitions."""

    def __init__(self, caller: Caller, cache: DedupCache) -> None:
        self._caller: Final = caller
        self._cache: Final = cache

    async def prepare(self, created: Sequence[Partition], found: Sequence[Partition]) -> None:
        """Begin to guarantee partitions just created, and for others after reading their keys."""
        for partition in created:
            self._cache.begin(partition.partition_id, head=0, since=_ALWAYS)
        # A partition whose name was forgotten may still be guaranteed, with a push under way.
        unknown = [
            partition.partition_id
            for partition in found
            if not self._cache.guarantee(partition.partition_id)
        ]
        for start in range(0, len(unknown), PARTITIONS_PER_CALL):
            part = unknown[start : start + PARTITIONS_PER_CALL]
            self._learn(await self._caller.call(READ_CALL, part, SEGMENTS_MAX))

    def _learn(self, rows: Sequence[Any]) -> None:
        at = 0
        while at < len(rows):
            partition_id, head, window_start = rows[at][:3]
            end = at + 1
            while end < len(rows) and rows[end][3] is not None:
                end += 1
            self._learn_partition(partition_id, head, window_start, rows[at + 1 : end])
            at = end

    def _learn_partition(
        self, partition_id: int, head: int, window_start: datetime, segments: Sequence[Any]
    ) -> None:
        """Guarantee from the oldest segment read; from the window's start if that was all of it."""
        if not segments:
            self._cache.begin(partition_id, head=head, since=window_start)
            return
        _, _, _, first, created_at, _ = segments[-1]
        is_whole_window = len(segments) < SEGMENTS_MAX
        # Segments that were not read may have the same time as the oldest that was.
        since = window_start if is_whole_window else created_at + timedelta(microseconds=1)
        self._cache.begin(partition_id, head=first - 1, since=since)
        for _, _, _, first, created_at, keys in reversed(segments):
            self._cache.adopt(partition_id, first, keys, created_at)
