"""Push: store messages, once each, in the order they came.

Items are sorted by partition; those of many requests gather in one lot per partition until the
engine takes it into a call, with at most one call in flight per partition. Results are rendered as
they become known and answered when the last item of the request has its own.

Duplicates are found in three places: within the flush, in this process's cache (confirmed by one
look-up), and by the database. A lane that only this process pushes into goes through
`push_vouched`, which stores what the cache vouches for and does not look. All that is left goes
through `push_segments`, which probes what the cache does not vouch for. When it finds duplicates it
stores nothing for that partition and says which; the rest goes again.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID, uuid4

import msgspec
import xxhash

from skep.broker.directory import Directory, Lane, LaneListener, LaneProvisioner, LaneWish
from skep.broker.names import check_name, refuse_transaction_id
from skep.broker.rules import QueueRules, RuleBook
from skep.broker.wakeups import Announcer
from skep.db.errors import RulesChanged
from skep.db.slots import Caller
from skep.engine.dedup import DedupCache, Vouch
from skep.engine.driver import Cargo, Engine
from skep.model.errors import BadRequest, Overloaded, SkepError
from skep.model.ids import OFFSET_LOW_BITS, message_id_head
from skep.model.limits import PUSH_ITEMS_MAX, TRANSACTION_ID_CHARS_MAX
from skep.model.wire import DEFAULT_PARTITION, PushItem

if TYPE_CHECKING:
    from skep.engine.fusion import Lot

PUSH_CALL: Final = "select * from skep.push_segments($1, $2, $3, $4, $5, $6, $7, $8, $9)"
PUSH_VOUCHED_CALL: Final = "select * from skep.push_vouched($1, $2, $3, $4, $5, $6, $7, $8)"
CONFIRM_CALL: Final = "select * from skep.confirm_duplicates($1, $2, $3)"

_NO_WORD: Final = (0, datetime.max.replace(tzinfo=UTC))
"""What a broker vouches for that vouches for nothing."""

_ENTRY_WEIGHT: Final = 512
"""Bytes an item costs beyond its envelope: objects, key, answer."""

_NULL: Final = b"null"

_encode = msgspec.json.encode
_digest = xxhash.xxh3_128_digest

Entry: TypeAlias = "tuple[PushRequest, int, bytes, bytes, bytes, bytes]"
"""One item under way: request, position, key, envelope, transaction id and trace id as JSON."""

Answer: TypeAlias = Callable[["PushRequest"], None]


class PushRequest:
    """One client's push, and the results of its items so far."""

    __slots__ = ("_answer", "error", "failed", "pending", "results")

    def __init__(self, item_count: int, answer: Answer) -> None:
        self.results: list[bytes] = [b""] * item_count
        self.pending = item_count
        self.failed = 0
        self.error: SkepError | None = None
        self._answer = answer

    @property
    def has_stored(self) -> bool:
        """Whether at least one item is stored."""
        return self.failed < len(self.results)

    def finish(self) -> None:
        """Answer the request; every item has its result."""
        self._answer(self)

    def fail(self, error: SkepError) -> None:
        """Answer that nothing was stored."""
        self.error = error
        self.failed = len(self.results)
        self._answer(self)


class PushLot(Cargo):
    """What waits to be pushed into one partition, whoever sent it."""

    __slots__ = ("entries", "lane", "place", "was_tried")

    def __init__(self, lane: Lane, entries: list[Entry], *, was_tried: bool = False) -> None:
        super().__init__()
        self.lane = lane
        self.entries = entries
        self.place: Lot[Any] | None = None
        self.was_tried = was_tried
        """It left with a call before, so some of its items may have their results."""

    def split(self) -> Sequence["PushLot"]:
        """Return a lot for each request, or nothing when there is only one."""
        by_request: dict[PushRequest, list[Entry]] = {}
        for entry in self.entries:
            by_request.setdefault(entry[0], []).append(entry)
        if len(by_request) < 2:
            return []
        return [PushLot(self.lane, entries, was_tried=True) for entries in by_request.values()]

    def fail(self, error: SkepError) -> None:
        """Answer every item without a result with the error."""
        self.is_settled = True
        message = _encode(error.message)
        for request, position, _, _, transaction_id, _ in self.entries:
            if request.results[position]:
                continue
            request.results[position] = (
                b'{"index":%d,"transaction_id":%b,"status":"failed","error":%b,"queueName":%b}'
                % (position, transaction_id, message, self.lane.queue_json)
            )
            request.error = error
            request.failed += 1
            request.pending -= 1
            if not request.pending:
                request.finish()


class Push:
    """Accept push requests."""

    def __init__(self, engine: Engine, directory: Directory, *, hash_seed: int) -> None:
        self._engine: Final = engine
        self._directory: Final = directory
        self._hash_seed: Final = hash_seed
        # The last lot of each partition that has not left yet; later pushes join it.
        self._open: Final[dict[int, PushLot]] = {}
        # How many requests wait for a lane to be provisioned. Until the last of them is through,
        # later ones queue up behind them, although the lane may be known by then.
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
        entries_by_lane, missing = self._sort(request, items, producer, self._awaited)
        if not missing:
            self._submit(entries_by_lane, entry_weight)
            return

        def proceed(error: SkepError | None) -> None:
            self._stop_awaiting(missing)
            try:
                if error is not None:
                    raise error
                entries_by_lane, _ = self._sort(request, items, producer, ())
                self._submit(entries_by_lane, entry_weight)
            except SkepError as refusal:
                request.fail(refusal)

        wish = LaneWish(list(missing), proceed)
        self._engine.submit("provision", None, _ENTRY_WEIGHT * len(missing), wish)
        self._awaited.update(missing)

    def close(self, lot: PushLot) -> None:
        """Let nobody join a lot any more: it is on its way."""
        # Also breaks the circle of lot and place, which only the cycle collector could free.
        lot.place = None
        partition_id = lot.lane.partition_id
        if self._open.get(partition_id) is lot:
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
        producer: str | None,
        awaited: Collection[tuple[str, str]],
    ) -> tuple[dict[Lane, list[Entry]], set[tuple[str, str]]]:
        """Check the items and sort them by lane; also return the lanes to wait for."""
        lanes, seed = self._directory.lanes, self._hash_seed
        producer_json = _NULL if producer is None else _encode(producer)
        untraced = b',"traceId":null,"producerSub":%b,"data":' % producer_json
        entries_by_lane: dict[Lane, list[Entry]] = {}
        missing: set[tuple[str, str]] = set()
        for position, item in enumerate(items):
            transaction_id = item.transaction_id
            if not transaction_id:
                transaction_id = item.transaction_id = str(uuid4())
            elif len(transaction_id) > TRANSACTION_ID_CHARS_MAX or "\0" in transaction_id:
                refuse_transaction_id(transaction_id)
            trace_json, middle = _NULL, untraced
            if item.trace_id:
                trace_json = _checked_trace_id(item.trace_id)
                middle = b',"traceId":%b,"producerSub":%b,"data":' % (trace_json, producer_json)
            key = (item.queue, item.partition or DEFAULT_PARTITION)
            lane = lanes.get(key)
            if lane is None or (awaited and key in awaited):
                check_name("queue", item.queue)
                check_name("partition", key[1])
                missing.add(key)
                continue
            id_json = _encode(transaction_id)
            entry = (
                request,
                position,
                _digest(transaction_id.encode(), seed),
                b"".join((b'{"transactionId":', id_json, middle, item.payload, b"}")),
                id_json,
                trace_json,
            )
            entries = entries_by_lane.get(lane)
            if entries is None:
                entries_by_lane[lane] = [entry]
            else:
                entries.append(entry)
        return entries_by_lane, missing

    def _submit(self, entries_by_lane: dict[Lane, list[Entry]], entry_weight: int) -> None:
        """Add the entries of each lane to the lot that waits for it, or let a new one wait."""
        engine, open_lots = self._engine, self._open
        is_first = True
        for lane, entries in entries_by_lane.items():
            weight = entry_weight * len(entries)
            lot = open_lots.get(lane.partition_id)
            place = lot.place if lot is not None else None
            try:
                if lot is not None and place is not None and engine.enlarge(place, weight):
                    lot.entries += entries
                else:
                    lot = PushLot(lane, entries)
                    lot.place = engine.submit("push", lane.partition_id, weight, lot)
                    open_lots[lane.partition_id] = lot
            except Overloaded as error:
                if is_first:
                    raise
                # What was accepted will be stored; say of the rest that it was not.
                PushLot(lane, entries).fail(error)
            is_first = False


class _Flush:
    """The entries of one call for one partition."""

    __slots__ = ("entries", "is_vouched", "keys", "lane", "lots", "offset_by_key", "twins")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.lots: list[PushLot] = []
        self.entries: list[Entry] = []
        self.keys = b""
        self.is_vouched = True
        # Entries whose key an earlier entry of the flush has, and where those earlier ones went.
        self.twins: list[Entry] = []
        self.offset_by_key: dict[bytes, int] = {}

    def join(self, entries: list[Entry]) -> None:
        """Take these entries; of those with the same key the first decides for all."""
        keys = [entry[2] for entry in entries]
        if len(set(keys)) < len(keys):
            first_by_key: dict[bytes, Entry] = {}
            for entry in entries:
                if first_by_key.setdefault(entry[2], entry) is not entry:
                    self.twins.append(entry)
            entries = list(first_by_key.values())
            keys = list(first_by_key)
        self.entries = entries
        self.keys = b"".join(keys)

    def settle(self) -> None:
        """Answer the twins, now that it is known where the first ones went, and end the lots."""
        for twin in self.twins:
            _answer_twin(self, twin, self.offset_by_key[twin[2]], b"duplicate")
        for lot in self.lots:
            lot.is_settled = True


class PushExecutor:
    """Executor of the operation `push`."""

    def __init__(
        self,
        caller: Caller,
        *,
        push: Push,
        directory: Directory,
        provisioner: LaneProvisioner,
        listener: LaneListener,
        rule_book: RuleBook,
        cache: DedupCache,
        announcer: Announcer,
        now: Callable[[], datetime],
    ) -> None:
        self._caller: Final = caller
        self._push: Final = push
        self._rule_book: Final = rule_book
        self._now: Final = now
        self._directory: Final = directory
        self._provisioner: Final = provisioner
        self._listener: Final = listener
        self._cache: Final = cache
        self._announcer: Final = announcer

    async def execute(self, cargos: Sequence[PushLot], *, is_repeated: bool) -> None:
        """Store the lots; what an earlier try stored is recognised by its keys."""
        for lot in cargos:
            self._push.close(lot)
        flushes = _by_partition(cargos)
        spans = self._cache.vouch_each(flushes)
        forgotten = [
            flush.lane for flush, span in zip(flushes.values(), spans, strict=True) if span is None
        ]
        if forgotten:
            await self._listener.prepare((), forgotten)
        await self._answer_cached_duplicates(flushes)
        if not is_repeated:
            await self._push_vouched(flushes)
        while flushes:
            pending = [flushes[partition_id] for partition_id in sorted(flushes)]
            try:
                rows = await self._call(pending, is_repeated=is_repeated)
            except RulesChanged:
                await self._rule_book.read(flush.lane.queue_id for flush in pending)
                continue
            flushes = await self._apply(rows, flushes, is_repeated=is_repeated)

    async def _push_vouched(self, flushes: dict[int, _Flush]) -> None:
        """Store and take out what can be stored on this process's word alone."""
        sure, rules = self._find_sure(flushes)
        if not sure:
            return
        try:
            rows = await self._caller.call(
                PUSH_VOUCHED_CALL,
                [flush.lane.partition_id for flush, _ in sure],
                [len(flush.entries) for flush, _ in sure],
                [to if flush.lane.rules.dedup_window_s else None for flush, (to, _) in sure],
                [flush.keys for flush, _ in sure],
                [_body_of(flush) for flush, _ in sure],
                [each.queue_id for each in rules],
                [each.version for each in rules],
                max(since for _, (_, since) in sure),
            )
        except RulesChanged:
            await self._rule_book.read(each.queue_id for each in rules)
            return
        stored: list[tuple[_Flush, int, datetime]] = []
        for partition_id, first, created_at in rows:
            stored.append((flushes.pop(partition_id), first, created_at))
        self._settle_stored(stored)

    def _find_sure(
        self, flushes: dict[int, _Flush]
    ) -> tuple[list[tuple[_Flush, Vouch]], list[QueueRules]]:
        """Return, by partition id, what goes to lanes that nobody else seems to push into."""
        partition_ids = sorted(flushes)
        spans = self._cache.vouch_each(partition_ids)
        now = self._now()
        window_start: dict[QueueRules, datetime] = {}
        sure: list[tuple[_Flush, Vouch]] = []
        for partition_id, span in zip(partition_ids, spans, strict=True):
            flush = flushes[partition_id]
            lane = flush.lane
            if lane.is_contested or span is None or not flush.is_vouched:
                continue
            start = window_start.get(lane.rules)
            if start is None:
                start = now - timedelta(seconds=lane.rules.dedup_window_s)
                window_start[lane.rules] = start
            if span[1] <= start:
                sure.append((flush, span))
        return sure, list(window_start)

    def _settle_stored(self, stored: Sequence[tuple[_Flush, int, datetime]]) -> None:
        """Answer what was stored, remember its keys and wake those who wait for it."""
        self._cache.record_flush(
            [
                (flush.lane.partition_id, first, flush.keys, created_at)
                for flush, first, created_at in stored
            ]
        )
        lanes_by_queue = Counter([flush.lane.queue_id for flush, _, _ in stored])
        for flush, first, _ in stored:
            _answer_stored(flush, first)
        for queue_id, lane_count in lanes_by_queue.items():
            self._announcer.announce(queue_id, lane_count)

    async def _call(self, flushes: Sequence[_Flush], *, is_repeated: bool) -> Sequence[Any]:
        partition_ids = [flush.lane.partition_id for flush in flushes]
        spans = self._cache.vouch_each(partition_ids)
        vouched = [
            span if span is not None and flush.is_vouched else _NO_WORD
            for flush, span in zip(flushes, spans, strict=True)
        ]
        rules = {flush.lane.rules for flush in flushes}
        return await self._caller.call(
            PUSH_CALL,
            partition_ids,
            [len(flush.entries) for flush in flushes],
            [to for to, _ in vouched],
            [since for _, since in vouched],
            [flush.keys for flush in flushes],
            [_body_of(flush) for flush in flushes],
            is_repeated,
            [each.queue_id for each in rules],
            [each.version for each in rules],
        )

    async def _apply(
        self, rows: Sequence[Any], flushes: dict[int, _Flush], *, is_repeated: bool
    ) -> dict[int, _Flush]:
        """Answer what was stored or found, and return what has to go again."""
        again: dict[int, _Flush] = {}
        stored: list[tuple[_Flush, int, datetime]] = []
        cache = self._cache
        for row in rows:
            partition_id, first, created_at, positions, offsets, gap_first, gap_keys, gap_at = row
            flush = flushes.pop(partition_id)
            flush.lane.is_contested = gap_keys is not None
            if gap_keys is not None:
                cache.adopt(partition_id, gap_first, gap_keys, gap_at)
            if first is not None:
                stored.append((flush, first, created_at))
                continue
            known_to = (cache.vouch(partition_id) or _NO_WORD)[0]
            _answer_duplicates(
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

    async def _find_anew(self, flush: _Flush) -> dict[int, _Flush]:
        """The partition is gone, its queue was deleted: create it again under a new id."""
        self._directory.forget_lane(flush.lane)
        self._cache.forget(flush.lane.partition_id)
        await self._provisioner.provide({flush.lane.key})
        flush.lane = self._directory.lanes[flush.lane.key]
        flush.is_vouched = False  # its keys were looked up in the lane that is gone
        for lot in flush.lots:
            lot.lane = flush.lane
        return {flush.lane.partition_id: flush}

    async def _answer_cached_duplicates(self, flushes: dict[int, _Flush]) -> None:
        """Take out what the cache knows to be stored, once the database confirms it."""
        candidates = list(flushes.values())
        hits = self._cache.find([(flush.lane.partition_id, flush.keys) for flush in candidates])
        if not hits:
            return
        verdicts = await self._caller.call(
            CONFIRM_CALL,
            [candidates[lot].lane.partition_id for lot, _, _ in hits],
            [offset for _, _, offset in hits],
            [candidates[lot].entries[index][2] for lot, index, _ in hits],
        )
        duplicates: dict[int, list[tuple[int, int]]] = {}
        for number, is_same_key, is_in_window in verdicts:
            lot, index, offset = hits[int(number) - 1]
            if not is_same_key:
                # Two keys share a fingerprint: the cache cannot speak for this one.
                candidates[lot].is_vouched = False
            elif is_in_window:
                duplicates.setdefault(lot, []).append((index, offset))
        for lot, found in duplicates.items():
            flush = candidates[lot]
            _answer_duplicates(flush, found, queued_above=None)
            if not flush.entries:
                del flushes[flush.lane.partition_id]


def _body_of(flush: _Flush) -> bytes:
    """Join the envelopes of a flush into the body of a segment."""
    return b"[%b]" % b",".join([entry[3] for entry in flush.entries])


def _by_partition(lots: Iterable[PushLot]) -> dict[int, _Flush]:
    """Join the lots of each partition, and answer what is twice in the same flush."""
    flushes: dict[int, _Flush] = {}
    for lot in lots:
        flush = flushes.get(lot.lane.partition_id)
        if flush is None:
            flush = flushes[lot.lane.partition_id] = _Flush(lot.lane)
        flush.lots.append(lot)
    for partition_id, flush in tuple(flushes.items()):
        flush.join(_unanswered(flush.lots))
        if not flush.entries:
            flush.settle()
            del flushes[partition_id]
    return flushes


def _unanswered(lots: Sequence[PushLot]) -> list[Entry]:
    """Return the entries of the lots; those of a lot that was tried may have been answered."""
    if len(lots) == 1 and not lots[0].was_tried:
        lots[0].was_tried = True
        return lots[0].entries
    entries: list[Entry] = []
    for lot in lots:
        if lot.was_tried:
            entries += [entry for entry in lot.entries if not entry[0].results[entry[1]]]
        else:
            entries += lot.entries
        lot.was_tried = True
    return entries


def _answer_stored(flush: _Flush, first: int) -> None:
    lane = flush.lane
    head = lane.message_id_head
    if first > OFFSET_LOW_BITS:
        head = message_id_head(lane.partition_id, first)
    low = first & OFFSET_LOW_BITS
    untraced = lane.result_end
    for request, position, _, _, transaction_id, trace_id in flush.entries:
        request.results[position] = (
            b'{"index":%d,"transaction_id":%b,"status":"queued","message_id":"%b%012x%b'
            % (
                position,
                transaction_id,
                head,
                low,
                untraced if trace_id is _NULL else _result_end(lane, trace_id),
            )
        )
        request.pending -= 1
        if not request.pending:
            request.finish()
        low += 1
    if flush.twins:
        stored_at = enumerate(flush.entries, start=first)
        flush.offset_by_key.update({entry[2]: offset for offset, entry in stored_at})
    flush.settle()


def _answer_duplicates(
    flush: _Flush, found: Iterable[tuple[int, int]], *, queued_above: int | None
) -> None:
    """Answer the entries found stored already, and leave the others in the flush.

    Args:
        flush: Its `found` entries are taken out.
        found: (index in the flush, offset where it is stored).
        queued_above: Offsets above it were stored by an earlier try of this very call.
    """
    offset_by_index = dict(found)
    for index, offset in offset_by_index.items():
        is_ours = queued_above is not None and offset > queued_above
        flush.offset_by_key[flush.entries[index][2]] = offset
        _answer_twin(flush, flush.entries[index], offset, b"queued" if is_ours else b"duplicate")
    flush.entries = [e for i, e in enumerate(flush.entries) if i not in offset_by_index]
    flush.keys = b"".join([entry[2] for entry in flush.entries])
    if not flush.entries:
        flush.settle()


def _answer_twin(flush: _Flush, entry: Entry, offset: int, status: bytes) -> None:
    request, position, _, _, transaction_id, trace_id = entry
    request.results[position] = (
        b'{"index":%d,"transaction_id":%b,"status":"%b","message_id":"%b%012x%b'
        % (
            position,
            transaction_id,
            status,
            message_id_head(flush.lane.partition_id, offset),
            offset & OFFSET_LOW_BITS,
            _result_end(flush.lane, trace_id),
        )
    )
    request.pending -= 1
    if not request.pending:
        request.finish()


def _result_end(lane: Lane, trace_id: bytes) -> bytes:
    """Render the part of a result that follows the message id."""
    return b'","partition_id":"%b","trace_id":%b,"queueName":%b}' % (
        lane.uuid,
        trace_id,
        lane.queue_json,
    )


def _checked_trace_id(text: str) -> bytes:
    try:
        return b'"%b"' % str(UUID(text)).encode()
    except ValueError:
        raise BadRequest("traceId must be a UUID") from None
