"""A push from its arrival to its answer, in as many attempts as it takes.

What found no room waits, and only that is tried again; or it is accepted as operations. The answer
speaks of every item: 201 when at least one was stored, 202 when some are yet to be.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from skep.broker.directory import Directory
from skep.broker.overload.deferral import PUSH_TYPE, PendingDeferral, PushDeferral, render_accepted
from skep.broker.overload.fallback import Client, Relief, is_passing, kind_of, renumber
from skep.broker.overload.waiting_line import DEFERRAL, Kind, OutOfTurn, PartitionKey, Turn
from skep.broker.push.accept import Push
from skep.broker.push.items import PushRequest
from skep.model.errors import Overloaded, SkepError
from skep.model.priorities import Priority
from skep.model.wire import DEFAULT_PARTITION, PushItem

if TYPE_CHECKING:
    from skep.model.queue_options import Deferral

DEFERRED_PARTITIONS_MAX: Final = 1_000
"""Partitions that one accepted request may have; each is an operation of its own."""

_ITEM_WEIGHT: Final = 512

_encode = msgspec.json.encode


class PushIntake:
    """Takes pushes in, also when there is no room for them."""

    def __init__(self, push: Push, directory: Directory, relief: Relief) -> None:
        self.store: Final = push
        self.relief: Final = relief
        self._directory: Final = directory

    def push(
        self, items: Sequence[PushItem], client: Client, *, size: int, producer: str | None = None
    ) -> None:
        """Store the items, now or later; the client is answered once.

        Raises:
            BadRequest: The request as a whole is refused and nothing is stored.
        """
        relief = self.relief
        kind = None if relief.is_idle or not relief.is_needed() else self._waited_for(items)
        if kind is None:

            def answer(request: PushRequest) -> None:
                if request.error is None:
                    client.respond(201, b"[%b]" % b",".join(request.results))
                else:
                    PushAttempt(self, items, client, size, producer).resume(request)

            try:
                self.store.push_messages(items, answer, size=size, producer=producer)
            except Overloaded:
                kind = Priority.PUSH
            else:
                return
        PushAttempt(self, items, client, size, producer).step_aside(kind)

    def _waited_for(self, items: Sequence[PushItem]) -> Kind | None:
        """Return what others wait for who must not be overtaken by these items."""
        partition_ids = self.partitions_of(items).values()
        kind = self.relief.waited_for(Priority.PUSH, PUSH_TYPE, partition_ids)
        if kind is None and self.relief.order.holds(map(_partition_key, items)):
            return Priority.PUSH
        return kind

    def may_defer(self, items: Sequence[PushItem], client: Client) -> bool:
        """Decide whether these items may be accepted as operations."""
        keys = {_partition_key(item) for item in items}
        if len(keys) > DEFERRED_PARTITIONS_MAX or any(map(_is_for_later, items)):
            return False
        if self.store.is_diverting:
            return False  # what lies on disk comes first in its partition
        partitions = map(self._directory.partitions.get, keys)
        wishes: set[Deferral] = {
            "asked" if partition is None else partition.rules.deferral for partition in partitions
        }
        return self.relief.may_defer(client, wishes)

    def partitions_of(self, items: Iterable[PushItem]) -> dict[tuple[str, str], int]:
        """Return the partitions of these items, as far as they are known."""
        partitions = self._directory.partitions
        known = {key: partitions.get(key) for key in dict.fromkeys(map(_partition_key, items))}
        return {
            key: partition.partition_id for key, partition in known.items() if partition is not None
        }

    def partition_under_way(self, items: Iterable[PushItem]) -> int | None:
        """Return a partition of these items that earlier pushes are on their way into."""
        for partition_id in self.partitions_of(items).values():
            if self.relief.is_under_way("push", partition_id):
                return partition_id
        return None


class PushAttempt:
    """One client's push that could not be done at once."""

    __slots__ = (
        "_client",
        "_deadline",
        "_error",
        "_has_stored",
        "_intake",
        "_is_queued",
        "_items",
        "_partitions",
        "_positions",
        "_producer",
        "_results",
        "_size",
    )

    def __init__(
        self,
        intake: PushIntake,
        items: Sequence[PushItem],
        client: Client,
        size: int,
        producer: str | None,
    ) -> None:
        self._intake = intake
        self._items = items
        self._client = client
        self._size = size
        self._producer = producer
        self._deadline = 0.0
        self._error: SkepError | None = None
        self._has_stored = False
        self._is_queued = False
        self._partitions: list[tuple[str, str]] = []
        # Of what was not done at once: which items are left, and the results of the others.
        self._positions: Sequence[int] | None = None
        self._results: list[bytes] = []

    def step_aside(self, kind: Kind) -> None:
        """There is no room: have it accepted as operations, or stand in line."""
        intake = self._intake
        pending = self._pending()
        self._partitions = list(dict.fromkeys(map(_partition_key, pending)))
        if not intake.may_defer(pending, self._client):
            self._stand(kind, self._start_in_turn)
            return
        try:
            self._defer_in_turn()
        except OutOfTurn:
            self._stand(
                PartitionKey(DEFERRAL, intake.partition_under_way(pending) or 0),
                self._defer_in_turn,
            )

    def _stand(self, kind: Kind, attempt: Callable[[], None]) -> None:
        relief = self._intake.relief
        self._deadline = self._deadline or relief.deadline()
        relief.order.queue(self, self._partitions)
        self._is_queued = True
        weight = _ITEM_WEIGHT * len(self._pending_positions()) + self._size
        relief.stand(kind, Turn(attempt, self._give_up), weight=weight, deadline=self._deadline)

    def _start_in_turn(self) -> None:
        """Try it again, after everything of its partitions that came before.

        Raises:
            BadRequest: The request as a whole is refused.
            OutOfTurn: Something that came before waits or is being deferred.
            Overloaded: There is no room.
        """
        order = self._intake.relief.order
        if order.has_sent(self._partitions) or not order.is_first(self, self._partitions):
            raise OutOfTurn
        self._intake.store.push_messages(
            self._pending(), self.resume, size=self._size, producer=self._producer
        )
        self._leave_order()

    def _defer_in_turn(self) -> None:
        """Have it accepted as operations, after everything of its partitions that came before.

        Raises:
            OutOfTurn: Something that came before waits or is in the engine.
        """
        intake, partitions, pending = self._intake, self._partitions, self._pending()
        order = intake.relief.order
        if intake.partition_under_way(pending) is not None or not order.is_first(self, partitions):
            raise OutOfTurn
        self._leave_order()
        pending = PushDeferral(pending, self._pending_positions(), self._producer, self._deferred)
        order.send(partitions)
        intake.relief.defer(pending, pending.weigh(self._size))

    def _leave_order(self) -> None:
        if self._is_queued:
            self._intake.relief.order.leave(self, self._partitions)
            self._is_queued = False

    def _pending(self) -> Sequence[PushItem]:
        if self._positions is None:
            return self._items
        return [self._items[position] for position in self._positions]

    def _pending_positions(self) -> Sequence[int]:
        return range(len(self._items)) if self._positions is None else self._positions

    def resume(self, request: PushRequest) -> None:
        """Go on with what an attempt left undone, if anything."""
        error = self._take(request)
        if error is None:
            self._conclude()
        else:
            self.step_aside(kind_of(error, Priority.PUSH, PUSH_TYPE))

    def _take(self, request: PushRequest) -> SkepError | None:
        """Keep the results of what is decided; return why the rest is not, if there is any."""
        errors = request.errors or {}
        left: list[int] = []
        passing: SkepError | None = None
        self._results = self._results or [b""] * len(self._items)
        for at, position in enumerate(self._pending_positions()):
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
        return passing

    def _fail(self, position: int, error: SkepError) -> None:
        self._error = error
        item = self._items[position]
        self._results[position] = (
            b'{"index":%d,"transaction_id":%b,"status":"failed","error":%b,"queueName":%b}'
            % (position, _encode(item.transaction_id), _encode(error.message), _encode(item.queue))
        )

    def _give_up(self, error: SkepError) -> None:
        self._leave_order()
        self._results = self._results or [b""] * len(self._items)
        for position in self._pending_positions():
            self._fail(position, error)
        self._conclude()

    def _deferred(self, pending: PendingDeferral) -> None:
        """Answer what was accepted, if anything was."""
        assert isinstance(pending, PushDeferral)
        self._intake.relief.order.answered(self._partitions)
        if pending.error is not None:
            self._give_up(pending.error)
            return
        self._results = self._results or [b""] * len(self._items)
        for at, error in pending.refused.items():
            self._fail(pending.positions[at], error)
        if pending.accepted:
            respond_accepted(self._client, pending, self._results)
        else:
            self._conclude()

    def _conclude(self) -> None:
        """Every item has its result."""
        if self._has_stored or self._error is None:
            self._client.respond(201, b"[%b]" % b",".join(self._results))
        else:
            self._client.refuse(self._error)


def respond_accepted(client: Client, pending: PendingDeferral, results: Iterable[bytes]) -> None:
    """Answer that operations were accepted, and what is known of the other items."""
    body = render_accepted(pending.accepted, [result for result in results if result])
    headers = b"preference-applied: respond-async\r\nlocation: /api/v1/operations/%b\r\n" % (
        msgspec.json.decode(body)["operationId"].encode()
    )
    client.respond(202, body, headers=headers)


def _partition_key(item: PushItem) -> tuple[str, str]:
    return item.queue, item.partition or DEFAULT_PARTITION


def _is_for_later(item: PushItem) -> bool:
    return item.deliver_at is not None or item.delay_seconds is not None
