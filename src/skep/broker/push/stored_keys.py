"""Load stored keys into the key cache, so that it can prove which are absent.

A partition this process created is empty: the cache guarantees it from the start. Of a partition
found in the database the keys of its window are read before the first push into it, without its
lock, in steps that keep neither the event loop nor a connection busy for long. The same is done
where the guarantee has come to an end: other processes pushed much, or a window became longer.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from skep.broker.directory import Partition
from skep.db.access.slots import Caller
from skep.engine.key_cache.cache import ALWAYS, KEY_BYTES, NO_GUARANTEE, Guarantee, KeyCache

READ_CALL: Final = "select * from skep.read_window($1, $2, $3, $4)"
STEP_KEYS: Final = 65_536
"""Keys read at a time: a megabyte, and some 15 ms of the event loop."""
PARTITIONS_PER_STEP: Final = 64
"""Partitions of which a first, small part is read together; for most it is all."""
UNSEEN_KEYS_MAX: Final = 65_536
"""More keys than this that others stored are read before a push, not by it."""

_NEVER: Final = NO_GUARANTEE[1]


class _Load(NamedTuple):
    """What is still to be read of a partition."""

    partition: Partition
    before: Guarantee
    """What was guaranteed when it began."""
    below: int | None = None
    known: datetime = _NEVER
    """From when on everything is loaded."""


class KeyLoader:
    """Lets the key cache guarantee partitions."""

    def __init__(
        self,
        caller: Caller,
        cache: KeyCache,
        now: Callable[[], datetime],
        *,
        step_keys: int = STEP_KEYS,
        partitions_per_step: int = PARTITIONS_PER_STEP,
    ) -> None:
        self._caller: Final = caller
        self._cache: Final = cache
        self._now: Final = now
        self.loaded_keys = 0
        self._step_keys: Final = step_keys
        self._partitions_per_step: Final = partitions_per_step
        self._clock_ahead = timedelta()
        """How far the database's clock is ahead of ours."""
        self._loading: Final[dict[int, asyncio.Future[None]]] = {}

    async def prepare(
        self,
        created: Sequence[Partition],
        found: Sequence[Partition],
        on_ready: Callable[[Sequence[Partition]], None] = lambda _: None,
    ) -> None:
        """Guarantee partitions just created, and the others after reading their keys.

        `on_ready` is called whenever some of them are; those with fewer keys are first.
        """
        for partition in created:
            self._cache.begin(partition.partition_id, head=0, since=ALWAYS)
        lacking = self.lacking(found)
        ready = {*created, *found}.difference(lacking)
        if ready:
            on_ready(list(ready))
        await self.load(lacking, on_ready)

    def lacking(self, partitions: Sequence[Partition]) -> list[Partition]:
        """Return those whose window is not guaranteed, although loading it would help."""
        spans = self._cache.guarantee_each([each.partition_id for each in partitions])
        horizon, now = self._cache.horizon, self._now() + self._clock_ahead
        return [
            partition
            for partition, span in zip(partitions, spans, strict=True)
            if span is None
            or partition.head > span[0] + UNSEEN_KEYS_MAX
            or (
                span[1] > horizon
                and partition.rules.dedup_window_s
                and span[1] > now - timedelta(seconds=partition.rules.dedup_window_s)
            )
        ]

    async def load(
        self,
        partitions: Sequence[Partition],
        on_ready: Callable[[Sequence[Partition]], None] = lambda _: None,
    ) -> None:
        """Read the keys of partitions that the cache does not know yet."""
        awaited = [each for each in partitions if each.partition_id in self._loading]
        mine = [each for each in partitions if each.partition_id not in self._loading]
        if mine:
            done = asyncio.get_running_loop().create_future()
            self._loading.update((each.partition_id, done) for each in mine)
            try:
                await self._load(mine, on_ready)
            finally:
                for each in mine:
                    del self._loading[each.partition_id]
                done.set_result(None)
        for each in awaited:
            if loading := self._loading.get(each.partition_id):
                await asyncio.shield(loading)
            on_ready([each])

    async def _load(
        self, partitions: Sequence[Partition], on_ready: Callable[[Sequence[Partition]], None]
    ) -> None:
        large: list[_Load] = []
        width = self._partitions_per_step
        for start in range(0, len(partitions), width):
            part = [self._begin(each) for each in partitions[start : start + width]]
            left = await self._step(part, self._step_keys // width)
            large += left
            incomplete = {load.partition for load in left}
            if ready := [each.partition for each in part if each.partition not in incomplete]:
                on_ready(ready)
        for load in large:
            left = [load]
            while left:
                left = await self._step(left, self._step_keys)
            on_ready([load.partition])

    def _begin(self, partition: Partition) -> _Load:
        span = self._cache.guarantee(partition.partition_id)
        window = timedelta(seconds=partition.rules.dedup_window_s)
        start = self._now() + self._clock_ahead - window
        if span is None or span[1] > max(start, self._cache.horizon):
            return _Load(partition, (0, ALWAYS))
        return _Load(partition, span)  # only what others stored since is missing

    async def _step(self, loads: Sequence[_Load], keys_max: int) -> list[_Load]:
        """Read a step of each; return those of which there is more to read."""
        rows = await self._caller.call(
            READ_CALL,
            [load.partition.partition_id for load in loads],
            [load.before[0] for load in loads],
            [load.below for load in loads],
            keys_max,
        )
        by_id = {row["partition_id"]: row for row in rows}
        more = [
            self._learn(load, row)
            for load in loads
            if (row := by_id.get(load.partition.partition_id))
        ]
        return [load for load in more if load is not None]

    def _learn(self, load: _Load, row: Any) -> _Load | None:
        cache, partition = self._cache, load.partition
        id_ = partition.partition_id
        if load.below is None:
            cache.begin(id_, head=row["head"], since=_NEVER)
            partition.head = max(partition.head, row["head"])
            window = timedelta(seconds=partition.rules.dedup_window_s)
            self._clock_ahead = row["window_start"] + window - self._now()
        since: datetime = row["since"]
        self.loaded_keys += len(row["keys"] or b"") // KEY_BYTES
        if row["is_whole"]:
            since = max(since, load.before[1])
        is_known = cache.extend(
            id_,
            row["firsts"] or (),
            row["counts"] or (),
            row["keys"] or b"",
            row["newest"] or ALWAYS,
            known=load.known,
            since=since,
        )
        if not is_known or row["is_whole"]:
            return None  # read, or there is no room for more
        return load._replace(below=row["below"], known=since)
