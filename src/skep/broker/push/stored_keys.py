"""Teach the duplicate cache what is already stored in lanes this process meets.

A lane this process created is empty, so its cache knows everything from the start. A lane found in
the database may hold an hour of keys; they are read before the first push into it, in bounded
portions. What cannot be learned is not vouched for, and the push procedure probes it.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from skep.broker.directory import Lane
from skep.db.access.slots import Caller
from skep.engine.dedup.cache import DedupCache

READ_CALL: Final = "select * from skep.read_keys($1, $2)"
SEGMENTS_MAX: Final = 2_000
"""Segments learned of one lane. Older ones are left to the procedure's own probe."""
LANES_PER_CALL: Final = 200

_ALWAYS: Final = datetime.min.replace(tzinfo=UTC)


class Vouching:
    """Prepares the duplicate cache for lanes."""

    def __init__(self, caller: Caller, cache: DedupCache) -> None:
        self._caller: Final = caller
        self._cache: Final = cache

    async def prepare(self, created: Sequence[Lane], found: Sequence[Lane]) -> None:
        """Begin to vouch for lanes just created, and for older ones after reading their keys."""
        for lane in created:
            self._cache.begin(lane.partition_id, head=0, since=_ALWAYS)
        # A lane whose name was forgotten may still be vouched for, with a push under way.
        unknown = [lane.partition_id for lane in found if not self._cache.vouch(lane.partition_id)]
        for start in range(0, len(unknown), LANES_PER_CALL):
            part = unknown[start : start + LANES_PER_CALL]
            self._learn(await self._caller.call(READ_CALL, part, SEGMENTS_MAX))

    def _learn(self, rows: Sequence[Any]) -> None:
        at = 0
        while at < len(rows):
            partition_id, head, window_start = rows[at][:3]
            end = at + 1
            while end < len(rows) and rows[end][3] is not None:
                end += 1
            self._learn_lane(partition_id, head, window_start, rows[at + 1 : end])
            at = end

    def _learn_lane(
        self, partition_id: int, head: int, window_start: datetime, segments: Sequence[Any]
    ) -> None:
        """Vouch from the oldest segment read; from the window's start if that was all of it."""
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
