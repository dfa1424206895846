"""What becomes of a push or an ack that there was no room for: it waits, or it is deferred.

A request comes here when the engine is full or operations wait in its partition. Its attempt keeps
the results of the items that are done; the others wait in line and are tried again, or are stored
as operations, to be carried out later. The answer speaks of every item: 201 or 200 when all of them
are done or refused, 202 when some are yet to be done.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import msgspec

from skep.broker.ack.naming import named_partition
from skep.broker.directory import Directory
from skep.broker.overload.deferral import (
    ACK_TYPE,
    PUSH_TYPE,
    AckDeferral,
    DeferralReason,
    PendingDeferral,
    PushDeferral,
    render_accepted,
)
from skep.broker.overload.shares import PartitionOrder, is_shed
from skep.broker.overload.waiting_line import (
    DEFERRABLE_WAIT_S,
    DEFERRAL,
    Kind,
    Line,
    OutOfTurn,
    PartitionKey,
    PartitionWatch,
    Turn,
)
from skep.broker.push.request import PushRequest, failed_result, queue_labels
from skep.engine.driver import Engine
from skep.model.errors import Overloaded, PartitionDeferred, QueueFull, SkepError
from skep.model.priorities import Priority
from skep.model.queue_options import Deferral
from skep.model.wire import DEFAULT_PARTITION, AckItem, PushItem

if TYPE_CHECKING:
    from skep.broker.ack.accept import Ack, AckRequest
    from skep.broker.push.accept import Push

DEFERRED_PARTITIONS_MAX: Final = 1_000
"""Partitions that one deferred request may have; each is an operation of its own."""

_PUSH_ITEM_WEIGHT: Final = 512
_ACK_ITEM_WEIGHT: Final = 256
_DEFERRED_ACK_WEIGHT: Final = 512

_encode = msgspec.json.encode

Item = TypeVar("Item", PushItem, AckItem)


class Client(Protocol):
    """The sender of a request."""

    @property
    def prefers_async(self) -> bool:
        """Whether it asked for a 202 when there is no room."""
        ...

    def respond(self, status: int, body: bytes = b"", *, headers: bytes = b"") -> bool:
        """Answer; see `skep.server.hot.exchange.Exchange.respond`."""
        ...

    def refuse(self, error: SkepError) -> None:
        """Answer with an error."""
        ...


@dataclass(slots=True, eq=False)
class Fallback:
    """The requests of one process that wait, and the way to defer them."""

    engine: Engine
    line: Line
    watch: PartitionWatch
    directory: Directory
    deferral: Deferral
    is_idle: bool = True
    """No request waits, and no partition is known to have operations. While this is false it is
    only likely that some do; the methods below find out."""
    order: PartitionOrder = field(default_factory=PartitionOrder)
    """Of pushes; partitions are named by queue and partition."""

    def _is_needed(self) -> bool:
        """Tell whether any request waits, or any partition is known to have operations."""
        self.is_idle = not (self.line or self.watch or self.order)
        return not self.is_idle

    def deadline(self, at_most_s: float = inf) -> float:
        """Return until when a request that comes now is held back."""
        return self.line.deadline(at_most_s)

    def waited_for(
        self, priority: Priority, type_: str = "", partition_ids: Iterable[int] = ()
    ) -> Kind | None:
        """Return what earlier requests wait for that a request for these partitions needs too.

        It must not overtake them.
        """
        for partition_id in partition_ids:
            partition = PartitionKey(type_, partition_id)
            if self.line.has(partition) or self.watch.is_deferred(partition):
                return partition
        return priority if self.line.has(priority) else None

    def push_waited_for(self, items: Sequence[PushItem]) -> Kind | None:
        """Return what earlier requests wait for that a push of these items needs too."""
        if not self._is_needed():
            return None
        kind = self.waited_for(Priority.PUSH, PUSH_TYPE, self._partition_ids(items))
        if kind is None and self.order.holds(map(_partition_key, items)):
            return Priority.PUSH
        return kind

    def ack_waited_for(self, items: Sequence[AckItem], priority: Priority) -> Kind | None:
        """Return what earlier requests wait for that acks of these items need too."""
        if not self._is_needed():
            return None
        return self.waited_for(priority, ACK_TYPE, ack_partition_ids(items))

    def partition_under_way(self, items: Iterable[PushItem]) -> int | None:
        """Return a partition of these items that earlier pushes are on their way into."""
        for partition_id in self._partition_ids(items):
            if self.engine.is_under_way("push", partition_id):
                return partition_id
        return None

    def check_ack_room(self, priority: Priority) -> None:
        """Make sure that single acks give way to batches."""
        if priority is Priority.ACK and is_shed(priority, self.engine.load):
            raise Overloaded

    def stand(self, kind: Kind, turn: Turn, *, weight: int, deadline: float) -> None:
        """Let a request stand in line; it is tried again, or refused when its time is over."""
        self.is_idle = False
        if isinstance(kind, PartitionKey) and kind.type != DEFERRAL:
            self.watch.note(kind)
        self.line.stand(kind, turn, weight=weight, deadline=deadline)

    def queue_options(self, keys: Iterable[tuple[str, str]]) -> set[Deferral]:
        """Return what the queues of these partitions say about deferral."""
        partitions = map(self.directory.partitions.get, keys)
        return {"asked" if each is None else each.rules.deferral for each in partitions}

    def may_defer(self, client: Client, options: set[Deferral]) -> bool:
        """Decide whether a client gets a 202, by the `options` of the queues it speaks of."""
        if self.deferral == "never" or "never" in options:
            return False
        return self.deferral == "always" or options == {"always"} or client.prefers_async

    def defer(self, pending: PendingDeferral) -> None:
        """Accept a request to be done later; its answer is called in any case."""
        self.is_idle = False
        try:
            self.engine.submit("defer", None, pending.weight, pending)
        except Overloaded as error:
            # Its frames hold the request that will hold it, and cycles are collected rarely.
            pending.fail(error.with_traceback(None))

    def _partition_ids(self, items: Iterable[PushItem]) -> list[int]:
        """Return the partitions of these items, as far as they are known."""
        partitions = self.directory.partitions
        known = [partitions.get(key) for key in dict.fromkeys(map(_partition_key, items))]
        return [partition.partition_id for partition in known if partition is not None]


@dataclass(slots=True, eq=False)
class _Attempt(ABC, Generic[Item]):
    """One client's request that could not be done at once."""

    fallback: Fallback
    items: Sequence[Item]
    client: Client
    deadline: float = field(default=0.0, init=False)
    positions: Sequence[int] = field(init=False)
    """Of the items that are not done."""
    results: list[bytes] = field(init=False)
    """Of the others."""
    reason: DeferralReason = field(default="overloaded", init=False)
    """Why it could not be done at once."""
    has_waited: bool = field(default=False, init=False)
    """Whether it waited for the operations of its partition before it is deferred."""

    def __post_init__(self) -> None:
        self.positions = range(len(self.items))
        self.results = [b""] * len(self.items)

    def _note_reason(self, kind: Kind) -> None:
        is_deferred = isinstance(kind, PartitionKey)
        self.reason = "partition_deferred" if is_deferred else "overloaded"

    def _pending(self) -> Sequence[Item]:
        return [self.items[position] for position in self.positions]

    def _stand(
        self,
        kind: Kind,
        attempt: Callable[[], None],
        refuse: Callable[[SkepError], None],
        weight: int,
    ) -> None:
        self.deadline = self.deadline or self.fallback.deadline()
        self.fallback.stand(kind, Turn(attempt, refuse), weight=weight, deadline=self.deadline)

    def _must_wait(self, kind: Kind) -> bool:
        """Tell whether a request that may be deferred must wait for its partition first."""
        return isinstance(kind, PartitionKey) and not self.has_waited

    def _wait(self, kind: Kind, turn: Turn, weight: int) -> None:
        """Let a request wait for its partition for a moment, then do as the turn says."""
        self.has_waited = True
        deadline = self.fallback.deadline(DEFERRABLE_WAIT_S)
        self.fallback.stand(kind, turn, weight=weight, deadline=deadline)

    def _answer(self, pending: PendingDeferral) -> None:
        """Answer which operations were accepted, if any, and what is known of the other items."""
        if not pending.accepted:
            self._conclude()
            return
        body, location = render_accepted(pending.accepted, filter(None, self.results), self.reason)
        headers = b"preference-applied: respond-async\r\nlocation: /api/v1/operations/%b\r\n"
        self.client.respond(202, body, headers=headers % location)

    @abstractmethod
    def _conclude(self) -> None:
        """Answer: every item has its result."""


@dataclass(slots=True, eq=False)
class PushAttempt(_Attempt[PushItem]):
    """A push; every item is stored, deferred or refused by itself."""

    store: "Push"
    size: int
    producer: str | None
    error: SkepError | None = field(default=None, init=False)
    has_stored: bool = field(default=False, init=False)
    is_queued: bool = field(default=False, init=False)
    partitions: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]], init=False)

    def resume(self, request: PushRequest) -> None:
        """Go on with the items that an attempt to store them left undone, if any."""
        errors = request.errors or {}
        left: list[int] = []
        passing: SkepError | None = None
        for at, position in enumerate(self.positions):
            error = errors.get(at)
            if is_passing(error):
                left.append(position)
                passing = passing or error
            elif error is not None:
                self._fail(position, error)
            else:
                self.results[position] = renumber(request.results[at], position)
                self.has_stored = True
        self.positions = left
        if passing is None:
            self._conclude()
        else:
            self.fall_back(push_kind(passing))

    def fall_back(self, kind: Kind) -> None:
        """There is no room: have the push stored as operations, or let it stand in line."""
        self._note_reason(kind)
        pending = self._pending()
        self.partitions = list(dict.fromkeys(map(_partition_key, pending)))
        if not self._may_defer(pending):
            self._stand_in_order(kind, self._store_in_turn)
        elif self._must_wait(kind):
            self._enter_order()
            turn = Turn(self._store_in_turn, self._give_up, self._defer)
            self._wait(kind, turn, self._weight)
        else:
            self._defer()

    def _defer(self) -> None:
        """Have it stored as operations, as soon as it is its turn."""
        try:
            self._defer_in_turn()
        except OutOfTurn:
            under_way = self.fallback.partition_under_way(self._pending()) or 0
            self._stand_in_order(PartitionKey(DEFERRAL, under_way), self._defer_in_turn)

    def _may_defer(self, items: Sequence[PushItem]) -> bool:
        if len(self.partitions) > DEFERRED_PARTITIONS_MAX or any(map(_is_for_later, items)):
            return False
        if self.store.is_diverting:
            return False  # what lies on disk comes first in its partition
        options = self.fallback.queue_options(self.partitions)
        return self.fallback.may_defer(self.client, options)

    def _stand_in_order(self, kind: Kind, attempt: Callable[[], None]) -> None:
        self._enter_order()
        self._stand(kind, attempt, self._give_up, self._weight)

    def _enter_order(self) -> None:
        if not self.is_queued:
            self.fallback.order.queue(self, self.partitions)
            self.is_queued = True

    @property
    def _weight(self) -> int:
        return _PUSH_ITEM_WEIGHT * len(self.positions) + self.size

    def _store_in_turn(self) -> None:
        """Try it again, after everything of its partitions that came before."""
        order = self.fallback.order
        if order.has_sent(self.partitions) or not order.is_first(self, self.partitions):
            raise OutOfTurn
        self.store.push_messages(
            self._pending(), self.resume, size=self.size, producer=self.producer
        )
        self._leave_order()

    def _defer_in_turn(self) -> None:
        """Have it stored as operations, after everything of its partitions that came before."""
        partitions, items = self.partitions, self._pending()
        order = self.fallback.order
        is_under_way = self.fallback.partition_under_way(items) is not None
        is_first = order.is_first(self, partitions)
        if is_under_way or self.store.is_awaited(partitions) or not is_first:
            raise OutOfTurn
        refused = self.store.refusals(items, range(len(items)))
        good = [position for position in range(len(items)) if position not in refused]
        entries = self.store.prepare(items, good, self.producer)
        self._leave_order()
        order.send(partitions)
        self.fallback.defer(
            PushDeferral(
                self.positions,
                self._weight,
                self._end_deferral,
                entries_by_key=entries,
                labels=queue_labels(items[position] for position in good),
                refused=refused,
            )
        )

    def _end_deferral(self, pending: PendingDeferral) -> None:
        """Answer what was accepted, if anything was."""
        assert isinstance(pending, PushDeferral)
        self.fallback.order.answered(self.partitions)
        if pending.error is not None:
            self._give_up(pending.error)
            return
        for at, error in pending.refused.items():
            self._fail(pending.positions[at], error)
        self._answer(pending)

    def _leave_order(self) -> None:
        if self.is_queued:
            self.fallback.order.leave(self, self.partitions)
            self.is_queued = False

    def _give_up(self, error: SkepError) -> None:
        self._leave_order()
        for position in self.positions:
            self._fail(position, error)
        self._conclude()

    def _fail(self, position: int, error: SkepError) -> None:
        self.error = error
        item = self.items[position]
        self.results[position] = failed_result(
            position, _encode(item.transaction_id or ""), error, _encode(item.queue)
        )

    def _conclude(self) -> None:
        if self.has_stored or self.error is None:
            self.client.respond(201, b"[%b]" % b",".join(self.results))
        else:
            self.client.refuse(self.error)


@dataclass(slots=True, eq=False)
class AckAttempt(_Attempt[AckItem]):
    """Acks. Only a batch may be deferred; a single ack is recorded in time or refused."""

    record: "Ack"
    group: str | None
    priority: Priority

    def resume(self, request: "AckRequest") -> None:
        """Go on with the items that an attempt to record them left undone, if any."""
        if request.error is not None:
            if is_passing(request.error):
                self.fall_back(self.priority)
            else:
                self.client.refuse(request.error)
            return
        # All results are kept; those of items that wait are replaced when these are done.
        positions = self.positions
        for at, position in enumerate(positions):
            self.results[position] = renumber(request.results[at], position)
        left = sorted(at for waiting in request.deferred.values() for at in waiting)
        self.positions = [positions[at] for at in left]
        if request.deferred:
            self.fall_back(PartitionKey(ACK_TYPE, next(iter(request.deferred))))
        else:
            self._conclude()

    def fall_back(self, kind: Kind) -> None:
        """There is no room: have the acks stored as operations, or let them stand in line."""
        self._note_reason(kind)
        items = self._pending()
        weight = _ACK_ITEM_WEIGHT * len(items)
        if not self._may_defer(items):
            self._stand(kind, self._record_in_turn, self._give_up, weight)
        elif self._must_wait(kind):
            self._wait(kind, Turn(self._record_in_turn, self._give_up, self._defer), weight)
        else:
            self._defer()

    def _defer(self) -> None:
        items = self._pending()
        request = self.record.prepare(items, self.group, lambda _: None)
        ids = [(item.transaction_id, item.message_id or item.id) for item in items]
        self.fallback.defer(
            AckDeferral(
                self.positions,
                _DEFERRED_ACK_WEIGHT * len(request.rows) + 1,
                self._end_deferral,
                request=request,
                names=ids,
            )
        )

    def _may_defer(self, items: Sequence[AckItem]) -> bool:
        if self.priority is Priority.ACK:
            return False
        if len(ack_partition_ids(items)) > DEFERRED_PARTITIONS_MAX:
            return False
        return self.fallback.may_defer(self.client, {"asked"})

    def _record_in_turn(self) -> None:
        self.fallback.check_ack_room(self.priority)
        self.record.ack_messages(self._pending(), self.group, self.resume)

    def _end_deferral(self, pending: PendingDeferral) -> None:
        """Answer what was accepted, if anything was."""
        assert isinstance(pending, AckDeferral)
        if pending.error is not None:
            self._give_up(pending.error)
            return
        for position, result in zip(pending.positions, pending.request.results, strict=True):
            self.results[position] = renumber(result, position) if result else b""
        self._answer(pending)

    def _give_up(self, error: SkepError) -> None:
        """Refuse the request if none of it was done; else answer which items were not."""
        if len(self.positions) == len(self.items):
            self.client.refuse(error)
        else:
            self._conclude()

    def _conclude(self) -> None:
        self.client.respond(200, b"[%b]" % b",".join(self.results))


def is_passing(error: SkepError | None) -> bool:
    """Tell whether an error means that the broker has no room now."""
    return isinstance(error, Overloaded) and not isinstance(error, QueueFull)


def push_kind(error: SkepError) -> Kind:
    """Return what a push or a transaction has to wait for after such an error."""
    if isinstance(error, PartitionDeferred):
        return PartitionKey(error.operation_type, error.partition_id)
    return Priority.PUSH


def renumber(result: bytes, position: int) -> bytes:
    """Return a rendered result as that of another position; results begin with their index."""
    return b'{"index":%d%b' % (position, result[result.index(b",") :])


def ack_partition_ids(items: Sequence[AckItem]) -> set[int]:
    """Return the partitions that acks name validly."""
    found = map(named_partition, items)
    return {partition_id for partition_id in found if partition_id is not None}


def _partition_key(item: PushItem) -> tuple[str, str]:
    return item.queue, item.partition or DEFAULT_PARTITION


def _is_for_later(item: PushItem) -> bool:
    return item.deliver_at is not None or item.delay_seconds is not None
