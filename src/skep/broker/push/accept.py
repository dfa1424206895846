"""Accept pushes: check their items, sort them by partition and hand them to the engine.

The items of many requests gather in one write per partition until the engine takes it into a call,
with at most one call in flight per partition; `execute` stores it. Items whose partition is not
known wait until it is provisioned; those of the same request for other partitions do not wait for
them. A request is answered when the last of its items has a result. Pushes that find no room branch
off to `skep.broker.overload.fallback`, those that cannot go to the database to
`skep.broker.failover.diversion`.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

import msgspec
import xxhash

from skep.broker.directory import Directory, Partition, PartitionRequest
from skep.broker.failover.diversion import Diversion
from skep.broker.overload.fallback import Client, Fallback, PushAttempt
from skep.broker.push.request import (
    NULL,
    Answer,
    CalledPush,
    Entry,
    PendingWrite,
    PushRequest,
    check_labels,
    check_loose,
    checked_transaction_id,
    fail_entry,
    fail_item,
    item_envelope,
    queue_labels,
)
from skep.broker.scheduled.accept import (
    Moment,
    Schedule,
    ScheduleItem,
    ScheduleOutcome,
    new_nonce,
    parse_moment,
    render_outcome,
)
from skep.engine.driver import Engine, Execute
from skep.model.envelopes import (
    DATA_MARK,
    UNTRACED_MARK,
    check_headers,
    checked_trace_id,
    end_of_life,
)
from skep.model.errors import BadRequest, Overloaded, SkepError, Unavailable
from skep.model.limits import PUSH_ITEMS_MAX, TRANSACTION_ID_CHARS_MAX
from skep.model.names import check_name, refuse_transaction_id
from skep.model.priorities import Priority
from skep.model.wire import DEFAULT_PARTITION, PushItem
from skep.telemetry.defects import error_of
from skep.telemetry.meters import Meters

_ENTRY_WEIGHT: Final = 512
"""Bytes an item costs beyond its envelope: objects, key, answer."""

_UNTRACED: Final = UNTRACED_MARK + DATA_MARK
"""What stands between transaction id and payload where there is neither trace nor producer."""

_encode = msgspec.json.encode
_digest = xxhash.xxh3_128_digest

Key: TypeAlias = tuple[str, str]
"""Names of a queue and a partition."""


class _Later(NamedTuple):
    """An item that is to be delivered later."""

    partition: Partition
    entry: Entry
    moment: Moment
    nonce: int


class _Sorted(msgspec.Struct, eq=False):
    """The items of a request."""

    entry_count: int
    """Of the partitions that are known."""
    entries_by_partition: dict[Partition, list[Entry]]
    later: list[_Later]
    missing: dict[Key, list[tuple[Entry, Moment | None]]]
    """The items of partitions to wait for, each with its time of delivery."""
    are_new: bool = False
    """All transaction ids were made here, just now."""


class _ClientPush(PushRequest):
    """A push with a client that waits for its answer."""

    push: "Push"
    items: Sequence[PushItem]
    client: Client
    size: int
    producer: str | None

    def finish(self) -> None:
        """Answer, unless some items are to be tried again or stored as operations."""
        if self.error is None:
            self.client.respond(201, b"[%b]" % b",".join(self.results))
        else:
            self.attempt().resume(self)

    def attempt(self) -> PushAttempt:
        """Return what goes on with it when there was no room."""
        push = self.push
        return PushAttempt(push.fallback, self.items, self.client, push, self.size, self.producer)


@dataclass(slots=True, eq=False, frozen=True)
class _Waiting:
    """The items of a request whose partitions are being provisioned."""

    request: PushRequest
    items: Sequence[PushItem]
    producer: str | None
    entry_weight: int
    missing: dict[Key, list[tuple[Entry, Moment | None]]]


@dataclass(slots=True, eq=False)
class Push:
    """Accept push requests."""

    engine: Engine
    directory: Directory
    schedule: Schedule
    fallback: Fallback
    diversion: Diversion
    hash_seed: int
    now: Callable[[], datetime]
    meters: Meters = field(default_factory=Meters)
    _open: dict[int, PendingWrite] = field(default_factory=dict[int, PendingWrite], init=False)
    """The last write of each partition that is not on its way yet; later pushes join it."""
    _awaited: dict[Key, list[_Waiting]] = field(
        default_factory=dict[Key, list[_Waiting]], init=False
    )
    """What waits for a partition to be provisioned, in the order it came. Until all of it went on,
    later items join it, although the partition may be known by then."""

    def push(
        self, items: Sequence[PushItem], client: Client, *, size: int, producer: str | None = None
    ) -> None:
        """Store the items, now or, if there is no room, later; the client is answered once.

        Raises:
            BadRequest: The request as a whole is refused and nothing is stored.
        """
        count = len(items)
        request = _ClientPush(
            self, items, client, size, producer, results=[b""] * count, pending=count
        )
        fallback = self.fallback
        kind = None if fallback.is_idle else fallback.push_waited_for(items)
        if kind is None:
            try:
                self._push(request, items, size, producer)
            except Overloaded:
                kind = Priority.PUSH
            else:
                return
        request.attempt().fall_back(kind)

    def push_messages(
        self, items: Sequence[PushItem], answer: Answer, *, size: int, producer: str | None = None
    ) -> None:
        """Store the items; `answer` is called once, when every item has a result.

        `size` is the bytes of the request, divided evenly among its items.

        Raises:
            BadRequest: The request as a whole is refused and nothing is stored.
            Overloaded: The engine is full and nothing is stored.
        """
        self._push(CalledPush.of(len(items), answer), items, size, producer)

    def _push(
        self, request: PushRequest, items: Sequence[PushItem], size: int, producer: str | None
    ) -> None:
        if len(items) > PUSH_ITEMS_MAX:
            raise BadRequest(f"more than {PUSH_ITEMS_MAX} items in one request")
        entry_weight = _ENTRY_WEIGHT + size // (len(items) or 1)
        if self.diversion.is_needed:
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
            push = partial(
                self._push_diverted, request, items, producer, entry_weight, may_hold=False
            )
            if error := error_of(push):
                _fail_items(request, items, range(len(items)), error)

        positions = self.diversion.take(
            request, items, producer, retry if may_hold else None, self._is_under_way
        )
        if not positions:
            return
        try:
            self._push_live(request, items, positions, producer, entry_weight)
        except SkepError as error:
            if len(positions) == len(items):
                raise
            _fail_items(request, items, positions, error)  # the others are on their way to disk

    def _push_live(
        self,
        request: PushRequest,
        items: Sequence[PushItem],
        positions: Sequence[int],
        producer: str | None,
        entry_weight: int,
    ) -> None:
        """Push the items at these positions into the database."""
        try:
            in_order = self._sort(request, items, positions, producer, self._awaited)
        except BadRequest:
            in_order = self._sort_good(request, items, positions, producer)
        later, missing = in_order.later, in_order.missing
        try:
            self._admit(in_order, entry_weight)
        except Overloaded as error:
            if not later:
                raise
            # Messages for later have room of their own.
            self._submit_later(later)
            scheduled = {each.entry[1] for each in later}
            _fail_items(request, items, [at for at in positions if at not in scheduled], error)
            return
        self._submit(in_order, entry_weight)
        queues = {partition.key[0] for partition in in_order.entries_by_partition}
        if missing:
            queues.update([queue for queue, _ in missing])
        for queue in queues:
            self.meters.queues.of(queue).push_requests += 1
        if missing:
            self._await(_Waiting(request, items, producer, entry_weight, missing))

    def _admit(self, in_order: _Sorted, entry_weight: int) -> None:
        """Check that there is room for everything that is not for later."""
        entries = in_order.entry_count
        if in_order.missing:
            moments = [each[1] for prepared in in_order.missing.values() for each in prepared]
            self.engine.admit("provision", entry_weight * len(moments))
            entries += moments.count(None)
        if entries:
            self.engine.admit("push", entry_weight * entries)

    def _await(self, waiting: _Waiting) -> None:
        """Provision partitions; a request has its own wish, so that it always hears of the end."""
        items = waiting.items
        entries = [entry for prepared in waiting.missing.values() for entry, _ in prepared]
        weight = waiting.entry_weight * len(entries)
        for key in waiting.missing:
            self._awaited.setdefault(key, []).append(waiting)
        wish = PartitionRequest(
            list(waiting.missing),
            labels=queue_labels(items[entry[1]] for entry in entries),
            on_done=lambda error: self._end_waiting(waiting, error),
        )
        self.engine.submit("provision", None, weight, wish, is_admitted=True)

    def _end_waiting(self, waiting: _Waiting, error: SkepError | None) -> None:
        """Let items go on whose partitions are known now, and refuse the others of the request.

        With them go those of all requests that wait for the same partitions, in their order.
        """
        goes_to_disk = isinstance(error, Unavailable) and self.diversion.is_usable
        for key in tuple(waiting.missing):
            partition = None if error else self.directory.partitions.get(key)
            if partition is not None or goes_to_disk:
                for each in self._awaited[key]:  # answers may bring more, which go last
                    error_of(partial(self._go_on, each, key, partition))  # none strands the others
                del self._awaited[key]
        refusal = error or Unavailable("the queue was deleted meanwhile; push again")
        for key, prepared in tuple(waiting.missing.items()):
            del waiting.missing[key]
            self._awaited[key].remove(waiting)
            if not self._awaited[key]:
                del self._awaited[key]
            positions = [entry[1] for entry, _ in prepared]
            error_of(partial(_fail_items, waiting.request, waiting.items, positions, refusal))

    def _go_on(self, waiting: _Waiting, key: Key, partition: Partition | None) -> None:
        """Push the items for a partition, or refuse them; None is on disk."""
        prepared = waiting.missing.pop(key)
        positions = [entry[1] for entry, _ in prepared]
        if partition is None or self.diversion.keeps(key):
            send = partial(
                self.diversion.divert_items,
                waiting.request,
                waiting.items,
                positions,
                waiting.producer,
            )
        else:
            send = partial(self._submit_known, partition, prepared, waiting.entry_weight)
        if refusal := error_of(send):
            _fail_items(waiting.request, waiting.items, positions, refusal)

    def _submit_known(
        self,
        partition: Partition,
        prepared: Sequence[tuple[Entry, Moment | None]],
        entry_weight: int,
    ) -> None:
        """Push items whose partition is known now; they were admitted before."""
        now = [entry for entry, moment in prepared if moment is None]
        later = [
            _Later(partition, entry, moment, new_nonce()) for entry, moment in prepared if moment
        ]
        in_order = _Sorted(len(now), {partition: now} if now else {}, later, {})
        self._submit(in_order, entry_weight, is_admitted=True)

    def is_awaited(self, keys: Iterable[Key]) -> bool:
        """Tell whether pushes wait for any of these partitions to be provisioned."""
        return any(key in self._awaited for key in keys)

    def _is_under_way(self, key: Key) -> bool:
        """Tell whether earlier pushes into a partition wait to be provisioned or stored."""
        return key in self._awaited or any(
            self.engine.is_under_way("push", partition.partition_id)
            for partition in self.directory.under_way(key)
        )

    @property
    def is_diverting(self) -> bool:
        """Whether some partitions, or all, are kept on disk now."""
        return self.diversion.is_needed

    def refusals(self, items: Sequence[PushItem], positions: Iterable[int]) -> dict[int, SkepError]:
        """Return why items at these positions can never be stored, by position."""
        now = self.now()
        refusals: dict[int, SkepError] = {}
        for position in positions:
            try:
                _check(items[position], now)
            except BadRequest as error:
                refusals[position] = error.with_traceback(None)
        return refusals

    def prepare(
        self, items: Sequence[PushItem], positions: Sequence[int], producer: str | None
    ) -> dict[Key, list[Entry]]:
        """Sort items without a refusal by the names of their partitions, for the caller to store.

        No item may have a time of delivery.
        """
        request = CalledPush.of(len(items), lambda _: None)
        in_order = self._sort(request, items, positions, producer, ())
        assert not in_order.later, "scheduled messages do not wait in a partition"
        known = in_order.entries_by_partition.items()
        prepared = {partition.key: entries for partition, entries in known}
        for key, missing in in_order.missing.items():
            prepared[key] = [entry for entry, _ in missing]
        return prepared

    def divert_first(self, execute: Execute) -> Execute:
        """Let writes go to disk whose partitions are kept there when a call would carry them."""

        async def execute_others(batch: Sequence[PendingWrite], *, is_repeated: bool) -> None:
            others = [write for write in batch if self.leaves(write)]
            if not others:
                raise Unavailable  # no call was made whose duration could be learned from
            await execute(others, is_repeated=is_repeated)

        return execute_others

    def leaves(self, write: PendingWrite) -> bool:
        """Let no more pushes join a write: it is on its way. Tell whether to the database."""
        # Also breaks the cycle of write and unit, which only the cycle collector could free.
        write.unit = None
        partition_id = write.partition.partition_id
        if self._open.get(partition_id) is write:
            del self._open[partition_id]
        if write.diversion is None or not write.diversion.keeps(write.partition.key):
            return True
        write.fail(Unavailable())
        return False

    def _sort_good(
        self,
        request: PushRequest,
        items: Sequence[PushItem],
        positions: Sequence[int],
        producer: str | None,
    ) -> _Sorted:
        """Sort the items that can be stored, and fail the others, each alone."""
        refusals = self.refusals(items, positions)
        for position, error in refusals.items():
            fail_item(request, position, items[position], error)
        good = [position for position in positions if position not in refusals]
        return self._sort(request, items, good, producer, self._awaited)

    def _sort(
        self,
        request: PushRequest,
        items: Sequence[PushItem],
        positions: Sequence[int],
        producer: str | None,
        awaited: Collection[Key],
    ) -> _Sorted:
        """Check the items and sort them by partition.

        Those that are not known, or `awaited` by earlier items, are missing. One long loop on
        purpose: it runs for every item of every push, and calls cost there.
        """
        partitions, seed = self.directory.partitions, self.hash_seed
        producer_json, untraced = NULL, _UNTRACED
        if producer is not None:
            producer_json = _encode(producer)
            untraced = b',"traceId":null,"producerSub":%b,"data":' % producer_json
        entry_count = made_count = 0
        entries_by_partition: dict[Partition, list[Entry]] = {}
        later: list[_Later] = []
        missing: dict[Key, list[tuple[Entry, Moment | None]]] = {}
        for position in positions:
            item = items[position]
            transaction_id = item.transaction_id
            if not transaction_id:
                transaction_id = item.transaction_id = checked_transaction_id(item)
                made_count += not item.message_id
            elif len(transaction_id) > TRANSACTION_ID_CHARS_MAX or "\0" in transaction_id:
                refuse_transaction_id(transaction_id)
            trace_json, middle = NULL, untraced
            if item.trace_id:
                trace_json = _checked_trace_id(item.trace_id)
                middle = b',"traceId":%b,"producerSub":%b,"data":' % (trace_json, producer_json)
            moment = None
            if (
                item.headers is not None
                or item.ttl_seconds is not None
                or item.deliver_at is not None
                or item.delay_seconds is not None
            ):
                entry, moment = self._with_options(request, position, item, producer)
            else:
                id_json = _encode(transaction_id)
                entry = (
                    request,
                    position,
                    _digest(transaction_id.encode(), seed),
                    b"".join((b'{"transactionId":', id_json, middle, item.payload, b"}")),
                    id_json,
                    trace_json,
                )
            key = (item.queue, item.partition or DEFAULT_PARTITION)
            partition = partitions.get(key)
            if partition is None or (awaited and key in awaited):
                check_name("queue", item.queue)
                check_name("partition", key[1])
                check_labels(item)
                missing.setdefault(key, []).append((entry, moment))
            elif moment is not None:
                later.append(_Later(partition, entry, moment, new_nonce()))
            else:
                entry_count += 1
                entries = entries_by_partition.get(partition)
                if entries is None:
                    entries_by_partition[partition] = [entry]
                else:
                    entries.append(entry)
        are_new = made_count == len(positions)
        return _Sorted(entry_count, entries_by_partition, later, missing, are_new)

    def _with_options(
        self, request: PushRequest, position: int, item: PushItem, producer: str | None
    ) -> tuple[Entry, Moment | None]:
        """Prepare an item with headers, a TTL or a time of delivery, which is returned as well."""
        assert item.transaction_id
        now = self.now()
        moment = parse_moment(item.deliver_at, item.delay_seconds, now)
        deliverable_at = max(now, moment.due_at(now)) if moment else now
        trace_json = _checked_trace_id(item.trace_id) if item.trace_id else NULL
        trace_id = msgspec.json.decode(trace_json)
        envelope = item_envelope(item, item.transaction_id, trace_id, producer, deliverable_at)
        key = _digest(item.transaction_id.encode(), self.hash_seed)
        id_json = _encode(item.transaction_id)
        return (request, position, key, envelope, id_json, trace_json), moment

    def _submit(self, in_order: _Sorted, entry_weight: int, *, is_admitted: bool = False) -> None:
        """Add the entries of each partition to the write that waits for it, or start one.

        There must be room for them. Items for later, unless they are admitted as well, come first.

        Raises:
            Overloaded: There is no room for items for later; nothing was added.
        """
        engine, open_writes = self.engine, self._open
        if in_order.later:
            self._submit_later(in_order.later, is_admitted=is_admitted)
        diversion = self.diversion if self.diversion.is_usable else None
        for partition, entries in in_order.entries_by_partition.items():
            weight = entry_weight * len(entries)
            write = open_writes.get(partition.partition_id)
            unit = write.unit if write is not None else None
            if write is not None and unit is not None and engine.enlarge(unit, weight):
                write.entries += entries
                write.are_new = write.are_new and in_order.are_new
            else:
                write = PendingWrite(partition, entries, diversion, are_new=in_order.are_new)
                write.unit = engine.submit(
                    "push", partition.partition_id, weight, write, is_admitted=True
                )
                open_writes[partition.partition_id] = write

    def _submit_later(self, later: Sequence[_Later], *, is_admitted: bool = False) -> None:
        """Schedule items that have a time of delivery."""

        def answer(outcomes: Sequence[ScheduleOutcome] | None, error: SkepError | None) -> None:
            if isinstance(error, Unavailable) and self.diversion.is_usable:
                self.diversion.divert_later(later)
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
                partition.queue_id,
                partition.key[1],
                entry[2],
                msgspec.json.decode(entry[4], type=str),
                entry[3],
                moment,
                nonce,
            )
            for partition, entry, moment, nonce in later
        ]
        self.schedule.schedule_messages(items, answer, is_admitted=is_admitted)


def _fail_items(
    request: PushRequest, items: Sequence[PushItem], positions: Iterable[int], error: SkepError
) -> None:
    """Answer that those items at these positions that have no result are not stored."""
    # Without the frames, which hold the request: together they would wait for the cycle collector.
    error = error.with_traceback(None)
    for position in request.unsettled(positions):
        fail_item(request, position, items[position], error)


def _check(item: PushItem, now: datetime) -> None:
    """Check all of an item, for paths that are not hot; raise `BadRequest`."""
    check_name("queue", item.queue)
    check_name("partition", item.partition or DEFAULT_PARTITION)
    check_labels(item)
    check_loose(item)
    checked_transaction_id(item)
    checked_trace_id(item.trace_id)
    moment = parse_moment(item.deliver_at, item.delay_seconds, now)
    check_headers(item.headers)
    end_of_life(item.ttl_seconds, max(now, moment.due_at(now)) if moment else now)


def _checked_trace_id(text: str) -> bytes:
    try:
        return b'"%b"' % str(UUID(text)).encode()
    except ValueError:
        raise BadRequest("traceId must be a UUID") from None
