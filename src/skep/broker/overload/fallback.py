"""What becomes of a push or an ack that there was no room for: it waits, or it is deferred.

A request comes here from `intake` when the engine is full or operations wait in its partition. Its
attempt keeps the results of the items that are done; the others wait in line and are tried again,
or are stored as operations, to be carried out later. The answer speaks of every item: 201 or 200
when all of them are done or refused, 202 when some are yet to be done.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from skep.broker.ack.accept import Ack, AckRequest
from skep.broker.directory import Directory
from skep.broker.overload.deferral import (
    ACK_TYPE,
    PUSH_TYPE,
    AckDeferral,
    PendingDeferral,
    PushDeferral,
    render_accepted,
)
from skep.broker.overload.shares import PartitionOrder, is_shed
from skep.broker.overload.waiting_line import (
    DEFERRAL,
    Kind,
    Line,
    OutOfTurn,
    PartitionKey,
    PartitionWatch,
    Turn,
)
from skep.broker.push.accept import Push
from skep.broker.push.pending_writes import PushRequest, failed_result
from skep.engine.driver import Engine
from skep.model.errors import Overloaded, PartitionDeferred, QueueFull, SkepError
from skep.model.ids import parse_partition_uuid
from skep.model.priorities import Priority
from skep.model.queue_options import Deferral
from skep.model.wire import DEFAULT_PARTITION, AckItem, PushItem

DEFERRED_PARTITIONS_MAX: Final = 1_000
"""Partitions that one deferred request may have; each is an operation of its own."""

_PUSH_ITEM_WEIGHT: Final = 512
_ACK_ITEM_WEIGHT: Final = 256

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


class Fallback:
    """The requests of one process that wait, and the way to defer them."""

    def __init__(
        self,
        engine: Engine,
        line: Line,
        watch: PartitionWatch,
        directory: Directory,
        *,
        deferral: Deferral,
    ) -> None:
        self._engine: Final = engine
        self._line: Final = line
        self._watch: Final = watch
        self._directory: Final = directory
        self._deferral: Final[Deferral] = deferral
        self.is_idle = True
        """No request waits. Reading this saves every request the checks of `is_needed`, which is
        exact where this is false."""
        self.order: Final = PartitionOrder()
        """Of pushes; partitions are named by queue and partition."""

    def is_needed(self) -> bool:
        """Tell whether any request waits, or any partition is known to have operations."""
        self.is_idle = not (self._line or self._watch or self.order)
        return not self.is_idle

    def deadline(self) -> float:
        """Return until when a request that comes now is held back."""
        return self._line.deadline()

    def waited_for(
        self, priority: Priority, type_: str = "", partition_ids: Iterable[int] = ()
    ) -> Kind | None:
        """Return what earlier requests wait for that a request for these partitions needs too.

        It must not overtake them.
        """
        for partition_id in partition_ids:
            partition = PartitionKey(type_, partition_id)
            if self._line.has(partition) or self._watch.is_deferred(partition):
                return partition
        return priority if self._line.has(priority) else None

    def push_waited_for(self, items: Sequence[PushItem]) -> Kind | None:
        """Return what earlier requests wait for that a push of these items needs too."""
        kind = self.waited_for(Priority.PUSH, PUSH_TYPE, self._partition_ids(items))
        if kind is None and self.order.holds(map(_partition_key, items)):
            return Priority.PUSH
        return kind

    def ack_waited_for(self, items: Sequence[AckItem], priority: Priority) -> Kind | None:
        """Return what earlier requests wait for that acks of these items need too."""
        return self.waited_for(priority, ACK_TYPE, ack_partition_ids(items))

    def partition_under_way(self, items: Iterable[PushItem]) -> int | None:
        """Return a partition of these items that earlier pushes are on their way into."""
        for partition_id in self._partition_ids(items):
            if self._engine.is_under_way("push", partition_id):
                return partition_id
        return None

    def check_ack_room(self, priority: Priority) -> None:
        """Make sure that single acks give way to batches.

        Raises:
            Overloaded: They must.
        """
        if priority is Priority.ACK and is_shed(priority, self._engine.load):
            raise Overloaded

    def stand(self, kind: Kind, turn: Turn, *, weight: int, deadline: float) -> None:
        """Let a request stand in line; it is tried again, or refused when its time is over."""
        self.is_idle = False
        if isinstance(kind, PartitionKey) and kind.type != DEFERRAL:
            self._watch.note(kind)
        self._line.stand(kind, turn, weight=weight, deadline=deadline)

    def queue_options(self, keys: Iterable[tuple[str, str]]) -> set[Deferral]:
        """Return what the queues of these partitions say about deferral."""
        partitions = map(self._directory.partitions.get, keys)
        return {"asked" if each is None else each.rules.deferral for each in partitions}

    def may_defer(self, client: Client, options: set[Deferral]) -> bool:
        """Decide whether a client gets a 202.

        Args:
            client: It may have asked for one.
            options: Of the queues it speaks of; none may say never.
        """
        if self._deferral == "never" or "never" in options:
            return False
        return self._deferral == "always" or options == {"always"} or client.prefers_async

    def defer(self, pending: PendingDeferral) -> None:
        """Accept a request to be done later; its answer is called in any case."""
        self.is_idle = False
        try:
            self._engine.submit("defer", None, pending.weight, pending)
        except Overloaded as error:
            # Its frames hold the request that will hold it, and cycles are collected rarely.
            pending.fail(error.with_traceback(None))

    def _partition_ids(self, items: Iterable[PushItem]) -> list[int]:
        """Return the partitions of these items, as far as they are known."""
        partitions = self._directory.partitions
        known = [partitions.get(key) for key in dict.fromkeys(map(_partition_key, items))]
        return [partition.partition_id for partition in known if partition is not None]


class _Attempt(Generic[Item]):
    """One client's request that could not be done at once."""

    __slots__ = ("_client", "_deadline", "_fallback", "_items", "_positions", "_results")

    def __init__(self, fallback: Fallback, items: Sequence[Item], client: Client) -> None:
        self._fallback = fallback
        self._items = items
        self._client = client
        self._deadline = 0.0
        self._positions: Sequence[int] = range(len(items))
        """Of the items that are not done."""
        self._results: list[bytes] = [b""] * len(items)
        """Of the others."""

    def _pending(self) -> Sequence[Item]:
        return [self._items[position] for position in self._positions]

    def _stand(
        self,
        kind: Kind,
        attempt: Callable[[], None],
        refuse: Callable[[SkepError], None],
        weight: int,
    ) -> None:
        self._deadline = self._deadline or self._fallback.deadline()
        self._fallback.stand(kind, Turn(attempt, refuse), weight=weight, deadline=self._deadline)

    def _respond_accepted(self, pending: PendingDeferral) -> None:
        """Answer that operations were accepted, and what is known of the other items."""
        body, location = render_accepted(pending.accepted, filter(None, self._results))
        headers = b"preference-applied: respond-async\r\nlocation: /api/v1/operations/%b\r\n"
        self._client.respond(202, body, headers=headers % location)


class PushAttempt(_Attempt[PushItem]):
    """A push; every item is stored, deferred or refused by itself."""

    __slots__ = (
        "_error",
        "_has_stored",
        "_is_queued",
        "_partitions",
        "_producer",
        "_size",
        "_store",
    )

    def __init__(
        self,
        fallback: Fallback,
        store: Push,
        items: Sequence[PushItem],
        client: Client,
        size: int,
        producer: str | None,
    ) -> None:
        super().__init__(fallback, items, client)
        self._store = store
        self._size = size
        self._producer = producer
        self._error: SkepError | None = None
        self._has_stored = False
        self._is_queued = False
        self._partitions: list[tuple[str, str]] = []

    def resume(self, request: PushRequest) -> None:
        """Go on with the items that an attempt to store them left undone, if any."""
        errors = request.errors or {}
        left: list[int] = []
        passing: SkepError | None = None
        for at, position in enumerate(self._positions):
            error = errors.get(at)
            if is_passing(error):
                left.append(position)
                passing = passing or error
            elif error is not None:
                self._fail(position, error)
            else:
                self._results[position] = renumber(request.results[at], position)
                self._has_stored = True
        self._positions = left
        if passing is None:
            self._conclude()
        else:
            self.fall_back(kind_of(passing, Priority.PUSH, PUSH_TYPE))

    def fall_back(self, kind: Kind) -> None:
        """There is no room: have the push stored as operations, or let it stand in line."""
        pending = self._pending()
        self._partitions = list(dict.fromkeys(map(_partition_key, pending)))
        if not self._may_defer(pending):
            self._stand_in_order(kind, self._store_in_turn)
            return
        try:
            self._defer_in_turn()
        except OutOfTurn:
            under_way = self._fallback.partition_under_way(pending) or 0
            self._stand_in_order(PartitionKey(DEFERRAL, under_way), self._defer_in_turn)

    def _may_defer(self, items: Sequence[PushItem]) -> bool:
        if len(self._partitions) > DEFERRED_PARTITIONS_MAX or any(map(_is_for_later, items)):
            return False
        if self._store.is_diverting:
            return False  # what lies on disk comes first in its partition
        options = self._fallback.queue_options(self._partitions)
        return self._fallback.may_defer(self._client, options)

    def _stand_in_order(self, kind: Kind, attempt: Callable[[], None]) -> None:
        self._fallback.order.queue(self, self._partitions)
        self._is_queued = True
        weight = _PUSH_ITEM_WEIGHT * len(self._positions) + self._size
        self._stand(kind, attempt, self._give_up, weight)

    def _store_in_turn(self) -> None:
        """Try it again, after everything of its partitions that came before.

        Raises:
            BadRequest: The request as a whole is refused.
            OutOfTurn: Something that came before waits or is being deferred.
            Overloaded: There is no room.
        """
        order = self._fallback.order
        if order.has_sent(self._partitions) or not order.is_first(self, self._partitions):
            raise OutOfTurn
        self._store.push_messages(
            self._pending(), self.resume, size=self._size, producer=self._producer
        )
        self._leave_order()

    def _defer_in_turn(self) -> None:
        """Have it stored as operations, after everything of its partitions that came before.

        Raises:
            OutOfTurn: Something that came before waits or is in the engine.
        """
        partitions, items = self._partitions, self._pending()
        order = self._fallback.order
        is_under_way = self._fallback.partition_under_way(items) is not None
        if is_under_way or not order.is_first(self, partitions):
            raise OutOfTurn
        self._leave_order()
        order.send(partitions)
        self._fallback.defer(
            PushDeferral(items, self._positions, self._producer, self._size, self._end_deferral)
        )

    def _end_deferral(self, pending: PendingDeferral) -> None:
        """Answer what was accepted, if anything was."""
        assert isinstance(pending, PushDeferral)
        self._fallback.order.answered(self._partitions)
        if pending.error is not None:
            self._give_up(pending.error)
            return
        for at, error in pending.refused.items():
            self._fail(pending.positions[at], error)
        if pending.accepted:
            self._respond_accepted(pending)
        else:
            self._conclude()

    def _leave_order(self) -> None:
        if self._is_queued:
            self._fallback.order.leave(self, self._partitions)
            self._is_queued = False

    def _give_up(self, error: SkepError) -> None:
        self._leave_order()
        for position in self._positions:
            self._fail(position, error)
        self._conclude()

    def _fail(self, position: int, error: SkepError) -> None:
        self._error = error
        item = self._items[position]
        self._results[position] = failed_result(
            position, _encode(item.transaction_id), error, _encode(item.queue)
        )

    def _conclude(self) -> None:
        """Answer: every item has its result."""
        if self._has_stored or self._error is None:
            self._client.respond(201, b"[%b]" % b",".join(self._results))
        else:
            self._client.refuse(self._error)


class AckAttempt(_Attempt[AckItem]):
    """Acks. Only a batch may be deferred; a single ack is recorded in time or refused."""

    __slots__ = ("_group", "_priority", "_record")

    def __init__(
        self,
        fallback: Fallback,
        record: Ack,
        items: Sequence[AckItem],
        group: str | None,
        client: Client,
        priority: Priority,
    ) -> None:
        super().__init__(fallback, items, client)
        self._record = record
        self._group = group
        self._priority = priority

    def resume(self, request: AckRequest) -> None:
        """Go on with the items that an attempt to record them left undone, if any."""
        if request.error is not None:
            if is_passing(request.error):
                self.fall_back(self._priority)
            else:
                self._client.refuse(request.error)
            return
        # All results are kept; those of items that wait are replaced when these are done.
        positions = self._positions
        for at, position in enumerate(positions):
            self._results[position] = renumber(request.results[at], position)
        left = sorted(at for waiting in request.deferred.values() for at in waiting)
        self._positions = [positions[at] for at in left]
        if request.deferred:
            self.fall_back(PartitionKey(ACK_TYPE, next(iter(request.deferred))))
        else:
            self._conclude()

    def fall_back(self, kind: Kind) -> None:
        """There is no room: have the acks stored as operations, or let them stand in line."""
        items = self._pending()
        if self._may_defer(items):
            request = self._record.prepare(items, self._group, lambda _: None)
            ids = [item.transaction_id for item in items]
            self._fallback.defer(AckDeferral(request, ids, self._positions, self._end_deferral))
            return
        self._stand(kind, self._record_in_turn, self._give_up, _ACK_ITEM_WEIGHT * len(items))

    def _may_defer(self, items: Sequence[AckItem]) -> bool:
        if self._priority is Priority.ACK:
            return False
        if len(ack_partition_ids(items)) > DEFERRED_PARTITIONS_MAX:
            return False
        return self._fallback.may_defer(self._client, {"asked"})

    def _record_in_turn(self) -> None:
        self._fallback.check_ack_room(self._priority)
        self._record.ack_messages(self._pending(), self._group, self.resume)

    def _end_deferral(self, pending: PendingDeferral) -> None:
        """Answer what was accepted, if anything was."""
        assert isinstance(pending, AckDeferral)
        if pending.error is not None:
            self._give_up(pending.error)
            return
        for position, result in zip(pending.positions, pending.request.results, strict=True):
            self._results[position] = renumber(result, position) if result else b""
        if pending.accepted:
            self._respond_accepted(pending)
        else:
            self._conclude()

    def _give_up(self, error: SkepError) -> None:
        """Refuse the request if none of it was done; else answer which items were not."""
        if len(self._positions) == len(self._items):
            self._client.refuse(error)
        else:
            self._conclude()

    def _conclude(self) -> None:
        self._client.respond(200, b"[%b]" % b",".join(self._results))


def is_passing(error: SkepError | None) -> bool:
    """Tell whether an error means that the broker has no room now."""
    return isinstance(error, Overloaded) and not isinstance(error, QueueFull)


def kind_of(error: SkepError | None, priority: Priority, type_: str) -> Kind:
    """Return what to wait for after such an error."""
    if isinstance(error, PartitionDeferred):
        return PartitionKey(type_, error.partition_id)
    return priority


def renumber(result: bytes, position: int) -> bytes:
    """Return a rendered result as that of another position; results begin with their index."""
    return b'{"index":%d%b' % (position, result[result.index(b",") :])


def ack_partition_ids(items: Sequence[AckItem]) -> set[int]:
    """Return the partitions that acks name validly."""
    found = (parse_partition_uuid(item.partition_id) for item in items)
    return {partition_id for partition_id in found if partition_id is not None}


def _partition_key(item: PushItem) -> tuple[str, str]:
    return item.queue, item.partition or DEFAULT_PARTITION


def _is_for_later(item: PushItem) -> bool:
    return item.deliver_at is not None or item.delay_seconds is not None
