"""Push: store messages, once each, in the order they came.

Items are sorted by partition; those of many requests gather in one write per partition until the
engine takes it into a call, with at most one call in flight per partition. Results are rendered as
they become known and answered when the last item of the request has its own.

Duplicates are found in three places: within the flush, in this process's cache (confirmed by one
look-up), and by the database. A partition that only this process pushes into goes through
`push_guaranteed`, which stores what the cache guarantees and does not look. All that is left goes
through `push_segments`, which probes what the cache does not guarantee. When it finds duplicates it
stores nothing for that partition and says which; the rest goes again.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

import msgspec
import xxhash

from skep.broker.cluster.wakeups import Announcer
from skep.broker.directory import (
    Directory,
    Partition,
    PartitionListener,
    PartitionProvisioner,
    PartitionWish,
)
from skep.broker.failover.diversion import Diversion
from skep.broker.push.enforcement import Enforcer
from skep.broker.push.flush import (
    NULL,
    Flush,
    answer_duplicates,
    answer_stored,
    body_of,
    by_partition,
    refuse_deferred,
)
from skep.broker.push.items import (
    Answer,
    Entry,
    PendingWrite,
    PushRequest,
    fail_entry,
    fail_item,
)
from skep.broker.push.rules import QueueRules, RuleBook
from skep.broker.scheduled.accept import (
    Moment,
    Schedule,
    ScheduleItem,
    ScheduleOutcome,
    parse_moment,
    render_outcome,
)
from skep.db.access.errors import RulesChanged
from skep.db.access.slots import Caller
from skep.engine.dedup.cache import DedupCache, Guarantee
from skep.engine.driver import Engine
from skep.model.envelopes import build_envelope, check_headers, end_of_life
from skep.model.errors import BadRequest, Overloaded, SkepError, Unavailable
from skep.model.limits import PUSH_ITEMS_MAX, TRANSACTION_ID_CHARS_MAX
from skep.model.names import check_name, refuse_transaction_id
from skep.model.wire import DEFAULT_PARTITION, PushItem
from skep.telemetry.meters import Meters

PUSH_CALL: Final = "select * from skep.push_segments($1, $2, $3, $4, $5, $6, $7, $8, $9)"
PUSH_GUARANTEED_CALL: Final = "select * from skep.push_guaranteed($1, $2, $3, $4, $5, $6, $7, $8)"
CONFIRM_CALL: Final = "select * from skep.confirm_duplicates($1, $2, $3)"

_NO_WORD: Final = (0, datetime.max.replace(tzinfo=UTC))
"""What a broker guarantees that guarantees nothing."""

_ENTRY_WEIGHT: Final = 512
"""Bytes an item costs beyond its envelope: objects, key, answer."""

_encode = msgspec.json.encode
_digest = xxhash.xxh3_128_digest


class _Later(NamedTuple):
    """An item that is to be delivered later."""

    partition: Partition
    entry: Entry
    transaction_id: str
    moment: Moment


class _Sorted(NamedTuple):
    """The items of a request."""

    entries_by_partition: dict[Partition, list[Entry]]
    later: list[_Later]
    missing: set[tuple[str, str]]
    """Partitions to wait for. Their items are not among the others."""


class Push:
    """Accept push requests."""

    def __init__(
        self,
        engine: Engine,
        directory: Directory,
        schedule: Schedule,
        *,
        diversion: Diversion,
        hash_seed: int,
        now: Callable[[], datetime],
        meters: Meters | None = None,
    ) -> None:
        self._engine: Final = engine
        self._queues: Final = (meters or Meters()).queues
        self._directory: Final = directory
        self._schedule: Final = schedule
        self._diversion: Final = diversion
        self._hash_seed: Final = hash_seed
        self._now: Final = now
        # The last write of each partition that has not left yet; later pushes join it.
        self._open: Final[dict[int, PendingWrite]] = {}
        # How many requests wait for a partition to be provisioned. Until the last of them is
        # through, later ones queue up behind them, although the partition may be known by then.
        self._awaited: Final[Counter[tuple[str, str]]] = Counter()

    def push_messages(
        self, items: Sequence[PushItem], answer: Answer, *, size: int, producer: str | None = None
    ) -> None:
        """Store the items; `answer` is called once, when every item has a result.

        Args:
            items: What to store, in this order.
            answer: Gets the request back, with its results.
            size: Bytes of the request, which count evenly for its items.
            producer: Who sent them, if that is known.

        Raises:
            BadRequest: The request as a whole is refused and nothing is stored.
            Overloaded: The engine is full and nothing is stored.
        """
        if len(items) > PUSH_ITEMS_MAX:
            raise BadRequest(f"more than {PUSH_ITEMS_MAX} items in one request")
        request = PushRequest(len(items), answer)
        entry_weight = _ENTRY_WEIGHT + size // (len(items) or 1)
        if self._diversion.is_needed:
            self._push_around(request, items, producer, entry_weight, may_hold=True)
        else:
            self._push_live(request, items, range(len(items)), producer, entry_weight)

    def _push_around(
        self,
        request: PushRequest,
        items: Sequence[PushItem],
        producer: str | None,
        entry_weight: int,
        *,
        may_hold: bool,
    ) -> None:
        """Push while some partitions, or all, go to disk."""

        def again() -> None:
            try:
                self._push_around(request, items, producer, entry_weight, may_hold=False)
            except SkepError as error:
                request.fail(error)

        positions = self._diversion.take(request, items, producer, again if may_hold else None)
        if not positions:
            return
        try:
            self._push_live(request, items, positions, producer, entry_weight)
        except SkepError as error:
            if len(positions) == len(items):
                raise
            for position in positions:  # the others are on their way to the disk
                fail_item(request, position, items[position], error)

    def _push_live(
        self,
        request: PushRequest,
        items: Sequence[PushItem],
        positions: Sequence[int],
        producer: str | None,
        entry_weight: int,
    ) -> None:
        """Push the items at these positions into the database."""
        in_order = self._sort(request, items, positions, producer, self._awaited)
        missing = in_order.missing
        if not missing:
            self._submit(in_order, entry_weight)
            return

        def proceed(error: SkepError | None) -> None:
            self._stop_awaiting(missing)
            try:
                if isinstance(error, Unavailable) and self._diversion.is_usable:
                    self._diversion.divert_items(request, items, positions, producer)
                    return
                if error is not None:
                    raise error
                self._submit(self._sort(request, items, positions, producer, ()), entry_weight)
            except SkepError as refusal:
                request.fail(refusal)

        wish = PartitionWish(list(missing), proceed)
        self._engine.submit("provision", None, _ENTRY_WEIGHT * len(missing), wish)
        self._awaited.update(missing)

    @property
    def is_diverting(self) -> bool:
        """Whether some partitions, or all, go to disk now."""
        return self._diversion.is_needed

    def prepare(
        self, items: Sequence[PushItem], producer: str | None
    ) -> dict[Partition, list[Entry]]:
        """Check the items and sort them by partition, for somebody else to store.

        All partitions must be known, and none of the items be for later.

        Raises:
            BadRequest: The request as a whole is refused.
        """
        request = PushRequest(len(items), lambda _: None)
        in_order = self._sort(request, items, range(len(items)), producer, ())
        assert not in_order.missing, "the partitions were to be provisioned"
        assert not in_order.later, "messages for later do not wait in a partition"
        return in_order.entries_by_partition

    def close(self, write: PendingWrite) -> None:
        """Let nobody join a write any more: it is on its way."""
        # Also breaks the circle of write and place, which only the cycle collector could free.
        write.place = None
        partition_id = write.partition.partition_id
        if self._open.get(partition_id) is write:
            del self._open[partition_id]

    def _stop_awaiting(self, keys: Iterable[tuple[str, str]]) -> None:
        awaited = self._awaited
        for key in keys:
            awaited[key] -= 1
            if not awaited[key]:
                del awaited[key]

    def _sort(
        self,
        request: PushRequest,
        items: Sequence[PushItem],
        positions: Sequence[int],
        producer: str | None,
        awaited: Collection[tuple[str, str]],
    ) -> _Sorted:
        """Check the items and sort them by partition.

        One long loop on purpose: it runs for every item of every push, and calls cost there.
        """
        partitions, seed = self._directory.partitions, self._hash_seed
        producer_json = NULL if producer is None else _encode(producer)
        untraced = b',"traceId":null,"producerSub":%b,"data":' % producer_json
        entries_by_partition: dict[Partition, list[Entry]] = {}
        later: list[_Later] = []
        missing: set[tuple[str, str]] = set()
        for position in positions:
            item = items[position]
            transaction_id = item.transaction_id
            if not transaction_id:
                transaction_id = item.transaction_id = str(uuid4())
            elif len(transaction_id) > TRANSACTION_ID_CHARS_MAX or "\0" in transaction_id:
                refuse_transaction_id(transaction_id)
            trace_json, middle = NULL, untraced
            if item.trace_id:
                trace_json = _checked_trace_id(item.trace_id)
                middle = b',"traceId":%b,"producerSub":%b,"data":' % (trace_json, producer_json)
            key = (item.queue, item.partition or DEFAULT_PARTITION)
            partition = partitions.get(key)
            if partition is None or (awaited and key in awaited):
                check_name("queue", item.queue)
                check_name("partition", key[1])
                missing.add(key)
                continue
            id_json = _encode(transaction_id)
            if (
                item.headers is not None
                or item.ttl_seconds is not None
                or item.deliver_at is not None
                or item.delay_seconds is not None
            ):
                entry, moment = self._with_options(request, position, item, producer)
                if moment is not None:
                    later.append(_Later(partition, entry, transaction_id, moment))
                    continue
                entries_by_partition.setdefault(partition, []).append(entry)
                continue
            entry = (
                request,
                position,
                _digest(transaction_id.encode(), seed),
                b"".join((b'{"transactionId":', id_json, middle, item.payload, b"}")),
                id_json,
                trace_json,
            )
            entries = entries_by_partition.get(partition)
            if entries is None:
                entries_by_partition[partition] = [entry]
            else:
                entries.append(entry)
        return _Sorted(entries_by_partition, later, missing)

    def _with_options(
        self, request: PushRequest, position: int, item: PushItem, producer: str | None
    ) -> tuple[Entry, Moment | None]:
        """Prepare an item with headers, an end or a time of delivery; return that time as well."""
        assert item.transaction_id
        now = self._now()
        moment = parse_moment(item.deliver_at, item.delay_seconds, now)
        trace_json = _checked_trace_id(item.trace_id) if item.trace_id else NULL
        envelope = build_envelope(
            item.transaction_id,
            bytes(item.payload),
            trace_id=msgspec.json.decode(trace_json),
            producer=producer,
            headers=check_headers(item.headers),
            expires_at=end_of_life(item.ttl_seconds, _birth(moment, now)),
        )
        key = _digest(item.transaction_id.encode(), self._hash_seed)
        id_json = _encode(item.transaction_id)
        return (request, position, key, envelope, id_json, trace_json), moment

    def _submit(self, in_order: _Sorted, entry_weight: int) -> None:
        """Add the entries of each partition to the write that waits for it, or start one."""
        engine, open_writes = self._engine, self._open
        for queue in {partition.key[0] for partition in in_order.entries_by_partition}:
            self._queues.of(queue).push_requests += 1
        diversion = self._diversion if self._diversion.is_usable else None
        is_first = True
        if in_order.later:
            self._submit_later(in_order.later)
            is_first = False
        for partition, entries in in_order.entries_by_partition.items():
            weight = entry_weight * len(entries)
            write = open_writes.get(partition.partition_id)
            place = write.place if write is not None else None
            try:
                if write is not None and place is not None and engine.enlarge(place, weight):
                    write.entries += entries
                else:
                    write = PendingWrite(partition, entries, diversion=diversion)
                    write.place = engine.submit("push", partition.partition_id, weight, write)
                    open_writes[partition.partition_id] = write
            except Overloaded as error:
                if is_first:
                    raise
                # What was accepted will be stored; say of the rest that it was not. Without the
                # frames, which hold the request: together they would wait for the collector.
                PendingWrite(partition, entries).fail(error.with_traceback(None))
            is_first = False

    def _submit_later(self, later: Sequence[_Later]) -> None:
        """Let items wait for their time."""

        def answer(outcomes: Sequence[ScheduleOutcome] | None, error: SkepError | None) -> None:
            if isinstance(error, Unavailable) and self._diversion.is_usable:
                self._diversion.divert_later(
                    [(each.partition, each.entry, each.moment) for each in later]
                )
                return
            for number, (partition, entry, _, _) in enumerate(later):
                if outcomes is None:
                    fail_entry(partition, entry, error or Overloaded())
                else:
                    _answer_later(partition, entry, outcomes[number])

        items = [
            ScheduleItem(
                partition.queue_id, partition.key[1], entry[2], transaction_id, entry[3], moment
            )
            for partition, entry, transaction_id, moment in later
        ]
        self._schedule.schedule_messages(items, answer)


def _answer_later(partition: Partition, entry: Entry, outcome: ScheduleOutcome) -> None:
    request, position, _, _, transaction_id, trace_id = entry
    result = render_outcome(
        outcome,
        position=position,
        transaction_id=transaction_id,
        trace_id=trace_id,
        partition_uuid=partition.uuid,
        queue=partition.queue_json,
    )
    request.settle(position, result, error=outcome.refusal)


def _birth(moment: Moment | None, now: datetime) -> datetime:
    """Return from when on a message may be delivered."""
    if moment is None:
        return now
    return max(now, moment.deliver_at or now + timedelta(seconds=moment.delay_s or 0))


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
        """Store the writes; what an earlier try stored is recognised by its keys."""
        for write in batch:
            self._push.close(write)
        try:
            await self._store(batch, is_repeated=is_repeated)
        except (Unavailable, asyncio.CancelledError):
            self._note_what_is_known(batch)
            raise

    def _note_what_is_known(self, writes: Sequence[PendingWrite]) -> None:
        """A call may have stored some of the writes: remember where that would have to lie."""
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
                rows = await self._call(pending, is_repeated=is_repeated)
            except RulesChanged:
                await self._follow_rules(flushes, is_repeated=is_repeated)
                continue
            flushes = await self._apply(rows, flushes, is_repeated=is_repeated)

    async def _follow_rules(self, flushes: dict[int, Flush], *, is_repeated: bool) -> None:
        """A queue was configured anew: read its rules and apply them to what is under way."""
        await self._rule_book.read(flush.partition.queue_id for flush in flushes.values())
        for flush in flushes.values():
            flush.gather()
        await self._enforcer.enforce(flushes, is_repeated=is_repeated)

    async def _push_guaranteed(self, flushes: dict[int, Flush]) -> None:
        """Store and take out what can be stored on this process's word alone."""
        sure, rules = self._find_sure(flushes)
        if not sure:
            return
        try:
            rows = await self._caller.call(
                PUSH_GUARANTEED_CALL,
                [flush.partition.partition_id for flush, _ in sure],
                [len(flush.entries) for flush, _ in sure],
                [to if flush.partition.rules.dedup_window_s else None for flush, (to, _) in sure],
                [flush.keys for flush, _ in sure],
                [body_of(flush) for flush, _ in sure],
                [each.queue_id for each in rules],
                [each.version for each in rules],
                max(since for _, (_, since) in sure),
            )
        except RulesChanged:
            await self._follow_rules(flushes, is_repeated=False)
            return
        stored: list[tuple[Flush, int, datetime]] = []
        for partition_id, first, created_at in rows:
            stored.append((flushes.pop(partition_id), first, created_at))
        self._settle_stored(stored)

    def _find_sure(
        self, flushes: dict[int, Flush]
    ) -> tuple[list[tuple[Flush, Guarantee]], list[QueueRules]]:
        """Return, by partition id, what goes to partitions that nobody else seems to push into."""
        partition_ids = sorted(flushes)
        spans = self._cache.guarantee_each(partition_ids)
        now = self._now()
        window_start: dict[QueueRules, datetime] = {}
        sure: list[tuple[Flush, Guarantee]] = []
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
                sure.append((flush, span))
        return sure, list(window_start)

    def _settle_stored(self, stored: Sequence[tuple[Flush, int, datetime]]) -> None:
        """Answer what was stored, remember its keys and wake those who wait for it."""
        self._cache.record_flush(
            [
                (flush.partition.partition_id, first, flush.keys, created_at)
                for flush, first, created_at in stored
            ]
        )
        partitions_by_queue = Counter([flush.partition.queue_id for flush, _, _ in stored])
        self._count_stored([flush for flush, _, _ in stored])
        for flush, first, _ in stored:
            answer_stored(flush, first)
        for queue_id, partition_count in partitions_by_queue.items():
            self._announcer.announce(queue_id, partition_count)

    def _count_stored(self, flushes: Sequence[Flush]) -> None:
        messages = 0
        for flush in flushes:
            queue = self._meters.queues.of(flush.partition.key[0])
            queue.push_messages += len(flush.entries)
            queue.push_bytes += flush.body_bytes
            queue.push_duplicates += len(flush.twins)
            messages += len(flush.entries)
        if messages:
            self._meters.operations["push"].messages.observe(messages)

    def _count_duplicates(self, flush: Flush, count: int) -> None:
        self._meters.queues.of(flush.partition.key[0]).push_duplicates += count

    async def _call(self, flushes: Sequence[Flush], *, is_repeated: bool) -> Sequence[Any]:
        partition_ids = [flush.partition.partition_id for flush in flushes]
        spans = self._cache.guarantee_each(partition_ids)
        guaranteed = [
            span if span is not None and flush.is_guaranteed else _NO_WORD
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
            [body_of(flush) for flush in flushes],
            is_repeated,
            [each.queue_id for each in rules],
            [each.version for each in rules],
        )

    async def _apply(
        self, rows: Sequence[Any], flushes: dict[int, Flush], *, is_repeated: bool
    ) -> dict[int, Flush]:
        """Answer what was stored or found, and return what has to go again."""
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
            if not positions:
                refuse_deferred(flush)
                continue
            known_to = (cache.guarantee(partition_id) or _NO_WORD)[0]
            if not is_repeated:
                self._count_duplicates(flush, len(positions))
            answer_duplicates(
                flush,
                zip(positions, offsets, strict=True),
                # Above what was known before the lost try lies what that try stored.
                queued_above=(gap_first or known_to + 1) - 1 if is_repeated else None,
            )
            if flush.entries:
                again[partition_id] = flush
        self._settle_stored(stored)
        for flush in flushes.values():
            again.update(await self._find_anew(flush))
        return again

    async def _find_anew(self, flush: Flush) -> dict[int, Flush]:
        """The partition is gone, its queue was deleted: create it again under a new id."""
        self._directory.forget_partition(flush.partition)
        self._cache.forget(flush.partition.partition_id)
        await self._provisioner.provide({flush.partition.key})
        flush.partition = self._directory.partitions[flush.partition.key]
        flush.is_guaranteed = False  # its keys were looked up in the partition that is gone
        for write in flush.writes:
            write.partition = flush.partition
        return {flush.partition.partition_id: flush}

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
                # Two keys share a fingerprint: the cache cannot speak for this one.
                candidates[write].is_guaranteed = False
            elif is_in_window:
                duplicates.setdefault(write, []).append((index, offset))
        for write, found in duplicates.items():
            flush = candidates[write]
            self._count_duplicates(flush, len(found))
            answer_duplicates(flush, found, queued_above=None)
            if not flush.entries:
                del flushes[flush.partition.partition_id]


def _checked_trace_id(text: str) -> bytes:
    try:
        return b'"%b"' % str(UUID(text)).encode()
    except ValueError:
        raise BadRequest("traceId must be a UUID") from None
