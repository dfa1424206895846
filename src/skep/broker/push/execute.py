"""Store a batch of pushes in few calls, each message once.

Duplicates are found in three places: within the flush, in this process's cache (confirmed by one
look-up), and by the database. Partitions that only this process pushes into go through
`push_guaranteed`, which stores what the cache guarantees without a look-up. The rest goes through
`push_segments`, which probes what the cache does not guarantee. Where that finds duplicates it
stores nothing for the partition and returns their positions; the other messages are sent again.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from skep.broker.cluster.wakeups import Announcer
from skep.broker.directory import Directory, PartitionListener, PartitionProvisioner
from skep.broker.push.accept import Push
from skep.broker.push.pending_writes import Flush, PendingWrite, by_partition
from skep.broker.push.rules import Enforcer, QueueRules, RuleBook
from skep.db.access.errors import RulesChanged
from skep.db.access.slots import Caller
from skep.engine.dedup.cache import DedupCache, Guarantee
from skep.model.errors import PartitionDeferred, Unavailable
from skep.telemetry.meters import Meters

PUSH_CALL: Final = "select * from skep.push_segments($1, $2, $3, $4, $5, $6, $7, $8, $9)"
PUSH_GUARANTEED_CALL: Final = "select * from skep.push_guaranteed($1, $2, $3, $4, $5, $6, $7, $8)"
CONFIRM_CALL: Final = "select * from skep.confirm_duplicates($1, $2, $3)"

_NO_GUARANTEE: Final = (0, datetime.max.replace(tzinfo=UTC))


class PushExecutor:
    """Executor of the operation `push`."""

    def __init__(
        self,
        caller: Caller,
        *,
        push: Push,
        directory: Directory,
        provisioner: PartitionProvisioner,
        listener: PartitionListener,
        rule_book: RuleBook,
        enforcer: Enforcer,
        cache: DedupCache,
        announcer: Announcer,
        now: Callable[[], datetime],
        meters: Meters | None = None,
    ) -> None:
        self._caller: Final = caller
        self._meters: Final = meters or Meters()
        self._push: Final = push
        self._rule_book: Final = rule_book
        self._enforcer: Final = enforcer
        self._now: Final = now
        self._directory: Final = directory
        self._provisioner: Final = provisioner
        self._listener: Final = listener
        self._cache: Final = cache
        self._announcer: Final = announcer

    async def execute(self, batch: Sequence[PendingWrite], *, is_repeated: bool) -> None:
        """Store the writes; what an earlier attempt stored is recognised by its keys."""
        for write in batch:
            self._push.close(write)
        try:
            await self._store(batch, is_repeated=is_repeated)
        except (Unavailable, asyncio.CancelledError):
            self._note_known_offsets(batch)
            raise

    def _note_known_offsets(self, writes: Sequence[PendingWrite]) -> None:
        """A lost call may have stored some of the writes: note the offset that would lie above."""
        spans = self._cache.guarantee_each([write.partition.partition_id for write in writes])
        for write, span in zip(writes, spans, strict=True):
            if write.known_to is None and span is not None:
                write.known_to = span[0]

    async def _store(self, batch: Sequence[PendingWrite], *, is_repeated: bool) -> None:
        flushes = by_partition(batch)
        spans = self._cache.guarantee_each(flushes)
        forgotten = [
            flush.partition
            for flush, span in zip(flushes.values(), spans, strict=True)
            if span is None
        ]
        if forgotten:
            await self._listener.prepare((), forgotten)
        await self._answer_cached_duplicates(flushes)
        await self._enforcer.enforce(flushes, is_repeated=is_repeated)
        if not is_repeated:
            await self._push_guaranteed(flushes)
        while flushes:
            pending = [flushes[partition_id] for partition_id in sorted(flushes)]
            try:
                rows = await self._push_probed(pending, is_repeated=is_repeated)
            except RulesChanged:
                await self._follow_rules(flushes, is_repeated=is_repeated)
                continue
            flushes = await self._apply(rows, flushes, is_repeated=is_repeated)

    async def _answer_cached_duplicates(self, flushes: dict[int, Flush]) -> None:
        """Take out what the cache knows to be stored, once the database confirms it."""
        candidates = list(flushes.values())
        hits = self._cache.find(
            [(flush.partition.partition_id, flush.keys) for flush in candidates]
        )
        if not hits:
            return
        verdicts = await self._caller.call(
            CONFIRM_CALL,
            [candidates[write].partition.partition_id for write, _, _ in hits],
            [offset for _, _, offset in hits],
            [candidates[write].entries[index][2] for write, index, _ in hits],
        )
        duplicates: dict[int, list[tuple[int, int]]] = {}
        for number, is_same_key, is_in_window in verdicts:
            write, index, offset = hits[int(number) - 1]
            if not is_same_key:
                # Two keys share a fingerprint: the cache cannot prove that this one is absent.
                candidates[write].is_guaranteed = False
            elif is_in_window:
                duplicates.setdefault(write, []).append((index, offset))
        for write, found in duplicates.items():
            flush = candidates[write]
            self._count_duplicates(flush, len(found))
            flush.answer_duplicates(found, queued_above=None)
            if not flush.entries:
                del flushes[flush.partition.partition_id]

    async def _push_guaranteed(self, flushes: dict[int, Flush]) -> None:
        """Store and take out what the cache guarantees in partitions without other writers."""
        guaranteed, rules = self._find_guaranteed(flushes)
        if not guaranteed:
            return
        try:
            rows = await self._caller.call(
                PUSH_GUARANTEED_CALL,
                [flush.partition.partition_id for flush, _ in guaranteed],
                [len(flush.entries) for flush, _ in guaranteed],
                [
                    to if flush.partition.rules.dedup_window_s else None
                    for flush, (to, _) in guaranteed
                ],
                [flush.keys for flush, _ in guaranteed],
                [flush.join_body() for flush, _ in guaranteed],
                [each.queue_id for each in rules],
                [each.version for each in rules],
                max(since for _, (_, since) in guaranteed),
            )
        except RulesChanged:
            await self._follow_rules(flushes, is_repeated=False)
            return
        self._settle_stored(
            [
                (flushes.pop(partition_id), first, created_at)
                for partition_id, first, created_at in rows
            ]
        )

    def _find_guaranteed(
        self, flushes: dict[int, Flush]
    ) -> tuple[list[tuple[Flush, Guarantee]], list[QueueRules]]:
        """Return, by partition id, the flushes whose whole window the cache guarantees.

        Partitions that another process pushes into are not among them.
        """
        partition_ids = sorted(flushes)
        spans = self._cache.guarantee_each(partition_ids)
        now = self._now()
        window_start: dict[QueueRules, datetime] = {}
        guaranteed: list[tuple[Flush, Guarantee]] = []
        for partition_id, span in zip(partition_ids, spans, strict=True):
            flush = flushes[partition_id]
            partition = flush.partition
            if partition.is_contested or span is None or not flush.is_guaranteed:
                continue
            start = window_start.get(partition.rules)
            if start is None:
                start = now - timedelta(seconds=partition.rules.dedup_window_s)
                window_start[partition.rules] = start
            if span[1] <= start:
                guaranteed.append((flush, span))
        return guaranteed, list(window_start)

    async def _push_probed(self, flushes: Sequence[Flush], *, is_repeated: bool) -> Sequence[Any]:
        """Store what has no duplicates; the database probes what the cache does not guarantee."""
        partition_ids = [flush.partition.partition_id for flush in flushes]
        spans = self._cache.guarantee_each(partition_ids)
        guaranteed = [
            span if span is not None and flush.is_guaranteed else _NO_GUARANTEE
            for flush, span in zip(flushes, spans, strict=True)
        ]
        rules = {flush.partition.rules for flush in flushes}
        return await self._caller.call(
            PUSH_CALL,
            partition_ids,
            [len(flush.entries) for flush in flushes],
            [to for to, _ in guaranteed],
            [since for _, since in guaranteed],
            [flush.keys for flush in flushes],
            [flush.join_body() for flush in flushes],
            is_repeated,
            [each.queue_id for each in rules],
            [each.version for each in rules],
        )

    async def _follow_rules(self, flushes: dict[int, Flush], *, is_repeated: bool) -> None:
        """Read the rules of reconfigured queues and apply them to what is under way."""
        await self._rule_book.read(flush.partition.queue_id for flush in flushes.values())
        for flush in flushes.values():
            flush.gather()
        await self._enforcer.enforce(flushes, is_repeated=is_repeated)

    async def _apply(
        self, rows: Sequence[Any], flushes: dict[int, Flush], *, is_repeated: bool
    ) -> dict[int, Flush]:
        """Answer what was stored or found, and return what has to be sent again."""
        again: dict[int, Flush] = {}
        stored: list[tuple[Flush, int, datetime]] = []
        cache = self._cache
        for row in rows:
            partition_id, first, created_at, positions, offsets, gap_first, gap_keys, gap_at = row
            flush = flushes.pop(partition_id)
            flush.partition.is_contested = gap_keys is not None
            if gap_keys is not None:
                cache.adopt(partition_id, gap_first, gap_keys, gap_at)
            if first is not None:
                stored.append((flush, first, created_at))
                continue
            if not positions:  # operations wait for the partition
                flush.refuse_all(PartitionDeferred(partition_id=partition_id))
                continue
            known_to = (cache.guarantee(partition_id) or _NO_GUARANTEE)[0]
            if not is_repeated:
                self._count_duplicates(flush, len(positions))
            flush.answer_duplicates(
                zip(positions, offsets, strict=True),
                # Above what was known before the lost attempt lies what that attempt stored.
                queued_above=(gap_first or known_to + 1) - 1 if is_repeated else None,
            )
            if flush.entries:
                again[partition_id] = flush
        self._settle_stored(stored)
        for flush in flushes.values():  # their partitions are gone
            await self._provision_again(flush)
            again[flush.partition.partition_id] = flush
        return again

    def _settle_stored(self, stored: Sequence[tuple[Flush, int, datetime]]) -> None:
        """Answer what was stored, remember its keys and wake the consumers that wait for it."""
        self._cache.record_flush(
            [
                (flush.partition.partition_id, first, flush.keys, created_at)
                for flush, first, created_at in stored
            ]
        )
        partitions_by_queue = Counter([flush.partition.queue_id for flush, _, _ in stored])
        messages = 0
        for flush, first, _ in stored:
            queue = self._meters.queues.of(flush.partition.key[0])
            queue.push_messages += len(flush.entries)
            queue.push_bytes += flush.body_bytes
            queue.push_duplicates += len(flush.repeats)
            messages += len(flush.entries)
            flush.answer_stored(first)
        if messages:
            self._meters.operations["push"].messages.observe(messages)
        for queue_id, partition_count in partitions_by_queue.items():
            self._announcer.announce(queue_id, partition_count)

    def _count_duplicates(self, flush: Flush, count: int) -> None:
        self._meters.queues.of(flush.partition.key[0]).push_duplicates += count

    async def _provision_again(self, flush: Flush) -> None:
        """Create the partition of a deleted queue again, under a new id."""
        self._directory.forget_partition(flush.partition)
        self._cache.forget(flush.partition.partition_id)
        await self._provisioner.provide({flush.partition.key})
        flush.partition = self._directory.partitions[flush.partition.key]
        flush.is_guaranteed = False  # its keys were looked up in the partition that is gone
        for write in flush.writes:
            write.partition = flush.partition
