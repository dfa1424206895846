"""Processes of several brokers, each with one call under way that is committed later.

A call may wait for the locks of another process. It goes on waiting while others act, until the
process that it waits for commits or rolls back.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import asyncpg

from skep.engine.key_cache.cache import KeyCache
from tests.sql.support.log import Guarantee, Log, key_of, keys_of
from tests.sql.support.waiting import eventually

BLOCKED = "select cardinality(pg_blocking_pids($1)) > 0"
CONFIRM = "select * from skep.confirm_duplicates($1, $2, $3)"

Check = Callable[[Any], Callable[[], None] | None]
"""Looks at the answer of a call and returns what its commit does to the model, if anything."""


class Process:
    """A session, the keys its broker remembers, and the call it has under way."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.pid: int = log.connection.get_server_pid()
        self.cache = KeyCache(memory_bytes_max=1 << 18)
        self.ids: dict[str, int] = {}
        """Partitions by name, which may be out of date."""
        self._task: asyncio.Task[Any] | None = None
        self._check: Check | None = None
        self._apply: Callable[[], None] | None = None

    @property
    def is_free(self) -> bool:
        return self._task is None and not self.log.connection.is_in_transaction()

    @property
    def is_waiting(self) -> bool:
        return self._task is not None

    async def start(self, call: Coroutine[Any, Any, Any], check: Check) -> None:
        """Begin a call, which opens its transaction when it is ready for it."""
        self._check = check
        self._task = asyncio.get_running_loop().create_task(call)

    async def settle(self, observer: Log) -> None:
        """Let the call go on until it is executed, or waits for another process."""
        if self._task is None:
            return
        task, check = self._task, self._check
        await asyncio.wait({task}, timeout=0.002)

        async def is_settled() -> bool:
            return task.done() or await observer.value(BLOCKED, self.pid)

        await eventually(is_settled)
        if task.done() and check is not None:
            self._task = None
            self._apply = check(task.result())

    async def begin(self) -> None:
        await self.log.execute("begin")

    async def end(self, *, is_kept: bool) -> None:
        """Commit what was executed, or roll it back."""
        await self.log.execute("commit" if is_kept else "rollback")
        apply, self._apply = self._apply, None
        if is_kept and apply is not None:
            apply()

    async def give_up(self) -> None:
        """Roll back what is under way, because a check has failed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        if self.log.connection.is_in_transaction():
            await self.log.execute("rollback")

    async def push(self, partition_id: int, names: Sequence[str]) -> "Sent":
        """Push as a broker does: what its cache knows is confirmed, the rest guaranteed."""
        known = await self._confirm(partition_id, names)
        names = [name for name in names if name not in known]
        span = self.cache.guarantee(partition_id)
        sent = Sent(partition_id, names, known, None if span is None else Guarantee(*span))
        await self.begin()
        if not names:
            return sent
        if sent.guarantee is not None:
            to, since = sent.guarantee
            stored = await self.log.push_guaranteed(
                {partition_id: names}, {partition_id: to}, since=since
            )
            if stored:
                sent.first, sent.created_at = stored[partition_id]
                return sent
            # It has stored nothing, so it ends before the next call begins.
            await self.end(is_kept=True)
            await self.begin()
            try:
                stored, gaps = await self.log.push_contested(
                    {partition_id: names}, {partition_id: to}, since=since
                )
            except asyncpg.PostgresError as refusal:
                if refusal.sqlstate != "SK410":
                    raise
                stored, gaps = {}, []
            if stored:
                sent.first, sent.created_at = stored[partition_id]
                sent.gaps = gaps
                return sent
            await self.end(is_kept=False)
            await self.begin()
        guarantees = {partition_id: sent.guarantee} if sent.guarantee else {}
        for row in await self.log.push_writes({partition_id: names}, guarantees):
            sent.row, sent.first, sent.created_at = row, row.first, row.created_at
        return sent

    async def _confirm(self, partition_id: int, names: Sequence[str]) -> dict[str, int]:
        """Return which names are stored already, and where, by what the cache remembers."""
        hits = self.cache.find([(partition_id, keys_of(names))])
        if not hits:
            return {}
        rows = await self.log.rows(
            CONFIRM,
            [partition_id] * len(hits),
            [hit.offset for hit in hits],
            [key_of(names[hit.key_index]) for hit in hits],
        )
        found = [hits[item - 1] for item, is_same, is_recent in rows if is_same and is_recent]
        return {names[hit.key_index]: hit.offset for hit in found}

    def remember(self, sent: "Sent") -> None:
        """Take in what a push told, now that it is committed."""
        for gap in sent.gaps:
            self.cache.adopt(gap[0], gap[1], gap[3], gap[2])
        row = sent.row
        if row is not None and row.gap_keys is not None:
            self.cache.adopt(row.partition_id, row.gap_first, row.gap_keys, row.gap_created_at)
        if sent.first is not None:
            self.cache.record(sent.partition_id, sent.first, keys_of(sent.names), sent.created_at)

    def forget(self, partition_id: int) -> None:
        """Notice that a partition is gone."""
        self.cache.forget(partition_id)
        self.ids = {name: id_ for name, id_ in self.ids.items() if id_ != partition_id}


class Sent:
    """A push as it was sent, and what came of it."""

    def __init__(
        self,
        partition_id: int,
        names: Sequence[str],
        known: dict[str, int],
        guarantee: Guarantee | None,
    ) -> None:
        self.partition_id, self.names = partition_id, names
        self.known = known
        """Names that were not sent, because they were found stored."""
        self.guarantee = guarantee
        self.first: int | None = None
        self.created_at: Any = None
        self.row: Any = None
        self.gaps: Sequence[Any] = ()
        """Segments of others that the call found."""
        """What the probe returned, where the guarantee was refused or there was none."""


async def settle_all(processes: Sequence[Process], observer: Log) -> None:
    """Let all calls go on as far as they can."""
    for process in processes:
        await process.settle(observer)
