"""Accept pushes: check their items, sort them by partition and hand them to the engine.

The items of many requests gather in one write per partition until the engine takes it into a call,
with at most one call in flight per partition; `execute` stores it. A request is answered when the
last of its items has a result. Pushes that cannot go to the database branch off to
`skep.broker.failover.diversion`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID, uuid4

import msgspec
import xxhash

from skep.broker.directory import Directory, Partition, PartitionRequest
from skep.broker.failover.diversion import Diversion
from skep.broker.push.pending_writes import (
    NULL,
    Answer,
    Entry,
    PendingWrite,
    PushRequest,
    fail_entry,
    fail_item,
)
from skep.broker.scheduled.accept import (
    Moment,
    Schedule,
    ScheduleItem,
    ScheduleOutcome,
    parse_moment,
    render_outcome,
)
from skep.engine.driver import Engine
from skep.model.envelopes import build_envelope, check_headers, end_of_life
from skep.model.errors import BadRequest, Overloaded, SkepError, Unavailable
from skep.model.limits import PUSH_ITEMS_MAX, TRANSACTION_ID_CHARS_MAX
from skep.model.names import check_name, refuse_transaction_id
from skep.model.wire import DEFAULT_PARTITION, PushItem
from skep.telemetry.meters import Meters

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
        # The last write of each partition that is not on its way yet; later pushes join it.
        self._open: Final[dict[int, PendingWrite]] = {}
        # Requests that wait for a partition to be provisioned. Until the last of them went on,
        # later ones queue up behind them, although the partition may be known by then.
        self._awaited: Final[Counter[tuple[str, str]]] = Counter()

    def push_messages(
        self, items: Sequence[PushItem], answer: Answer, *, size: int, producer: str | None = None
    ) -> None:
        """Store the items; `answer` is called once, when every item has a result.

        Args:
            items: What to store, in this order.
            answer: Gets the request back, with its results.
            size: Bytes of the request, divided evenly among its items.
            producer: The authenticated sender, if known.

        Raises:
            BadRequest: The request as a whole is refused and nothing is stored.
            Overloaded: The engine is full and nothing is stored.
        """
        if len(items) > PUSH_ITEMS_MAX:
            raise BadRequest(f"more than {PUSH_ITEMS_MAX} items in one request")
        request = PushRequest(len(items), answer)
        entry_weight = _ENTRY_WEIGHT + size // (len(items) or 1)
        if self._diversion.is_needed:
            self._push_diverted(request, items, producer, entry_weight, may_hold=True)
        else:
            self._push_live(request, items, range(len(items)), producer, entry_weight)

    def _push_diverted(
        self,
        request: PushRequest,
        items: Sequence[PushItem],
        producer: str | None,
        entry_weight: int,
        *,
        may_hold: bool,
    ) -> None:
        """Push while some partitions, or all, are kept on disk."""

        def retry() -> None:
            try:
                self._push_diverted(request, items, producer, entry_weight, may_hold=False)
            except SkepError as error:
                request.fail(error)

        positions = self._diversion.take(request, items, producer, retry if may_hold else None)
        if not positions:
            return
        try:
            self._push_live(request, items, positions, producer, entry_weight)
        except SkepError as error:
            if len(positions) == len(items):
                raise
            for position in positions:  # the others are being written to disk
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

        wish = PartitionRequest(list(missing), proceed)
        self._engine.submit("provision", None, _ENTRY_WEIGHT * len(missing), wish)
        self._awaited.update(missing)

    @property
    def is_diverting(self) -> bool:
        """Whether some partitions, or all, are kept on disk now."""
        return self._diversion.is_needed

    def prepare(
        self, items: Sequence[PushItem], producer: str | None
    ) -> dict[Partition, list[Entry]]:
        """Check the items and sort them by partition, for the caller to store.

        All partitions must be known, and no item may have a time of delivery.

        Raises:
            BadRequest: The request as a whole is refused.
        """
        request = PushRequest(len(items), lambda _: None)
        in_order = self._sort(request, items, range(len(items)), producer, ())
        assert not in_order.missing, "the caller provisions the partitions first"
        assert not in_order.later, "scheduled messages do not wait in a partition"
        return in_order.entries_by_partition

    def close(self, write: PendingWrite) -> None:
        """Let no more pushes join a write: it is on its way."""
        # Also breaks the cycle of write and unit, which only the cycle collector could free.
        write.unit = None
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
        """Prepare an item with headers, a TTL or a time of delivery, which is returned as well."""
        assert item.transaction_id
        now = self._now()
        moment = parse_moment(item.deliver_at, item.delay_seconds, now)
        deliverable_at = max(now, moment.due_at(now)) if moment else now
        trace_json = _checked_trace_id(item.trace_id) if item.trace_id else NULL
        envelope = build_envelope(
            item.transaction_id,
            bytes(item.payload),
            trace_id=msgspec.json.decode(trace_json),
            producer=producer,
            headers=check_headers(item.headers),
            expires_at=end_of_life(item.ttl_seconds, deliverable_at),
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
            unit = write.unit if write is not None else None
            try:
                if write is not None and unit is not None and engine.enlarge(unit, weight):
                    write.entries += entries
                else:
                    write = PendingWrite(partition, entries, diversion=diversion)
                    write.unit = engine.submit("push", partition.partition_id, weight, write)
                    open_writes[partition.partition_id] = write
            except Overloaded as error:
                if is_first:
                    raise
                # What was accepted will be stored; the rest fails. Without the frames, which hold
                # the request: together they would wait for the cycle collector.
                PendingWrite(partition, entries).fail(error.with_traceback(None))
            is_first = False

    def _submit_later(self, later: Sequence[_Later]) -> None:
        """Schedule items that have a time of delivery."""

        def answer(outcomes: Sequence[ScheduleOutcome] | None, error: SkepError | None) -> None:
            if isinstance(error, Unavailable) and self._diversion.is_usable:
                self._diversion.divert_later(
                    [(each.partition, each.entry, each.moment) for each in later]
                )
                return
            for number, (partition, entry, _, _) in enumerate(later):
                if outcomes is None:
                    fail_entry(partition, entry, error or Overloaded())
                    continue
                request, position, _, _, transaction_id, trace_id = entry
                outcome = outcomes[number]
                result = render_outcome(
                    outcome,
                    position=position,
                    transaction_id=transaction_id,
                    trace_id=trace_id,
                    partition_uuid=partition.uuid,
                    queue=partition.queue_json,
                )
                request.settle(position, result, error=outcome.refusal)

        items = [
            ScheduleItem(
                partition.queue_id, partition.key[1], entry[2], transaction_id, entry[3], moment
            )
            for partition, entry, transaction_id, moment in later
        ]
        self._schedule.schedule_messages(items, answer)


def _checked_trace_id(text: str) -> bytes:
    try:
        return b'"%b"' % str(UUID(text)).encode()
    except ValueError:
        raise BadRequest("traceId must be a UUID") from None
