"""Acknowledgments from their arrival to their answer, in as many attempts as it takes.

As with pushes: what found no room, or must not overtake operations of its partition, waits alone.
Only a batch may be accepted as operations; a single ack is answered in its own time or refused.
"""

from collections.abc import Sequence
from typing import Final

from skep.broker.ack.accept import Ack, AckRequest
from skep.broker.overload.deferral import ACK_TYPE, AckDeferral, PendingDeferral
from skep.broker.overload.fallback import Client, Relief, is_passing, renumber
from skep.broker.overload.push_attempt import DEFERRED_PARTITIONS_MAX, respond_accepted
from skep.broker.overload.shares import is_shed
from skep.broker.overload.waiting_line import Kind, PartitionKey, Turn
from skep.model.errors import Overloaded, SkepError
from skep.model.ids import parse_partition_uuid
from skep.model.priorities import Priority
from skep.model.wire import AckItem

_ITEM_WEIGHT: Final = 256


class AckIntake:
    """Takes acknowledgments in, also when there is no room for them."""

    def __init__(self, ack: Ack, relief: Relief) -> None:
        self.record: Final = ack
        self.relief: Final = relief

    def ack(
        self, items: Sequence[AckItem], group: str | None, client: Client, *, is_batch: bool
    ) -> None:
        """Record the items, now or later; the client is answered once.

        Raises:
            BadRequest: The request as a whole is refused.
        """
        relief = self.relief
        priority = Priority.BATCH_ACK if is_batch else Priority.ACK
        kind = None
        if not relief.is_idle and relief.is_needed():
            kind = relief.waited_for(priority, ACK_TYPE, _partitions_of(items))
        if kind is None:

            def answer(request: AckRequest) -> None:
                if request.error is None and not request.deferred:
                    client.respond(200, b"[%b]" % b",".join(request.results))
                else:
                    AckAttempt(self, items, group, client, priority).resume(request)

            try:
                self.check_room(priority)
                self.record.ack_messages(items, group, answer)
            except Overloaded:
                kind = priority
            else:
                return
        AckAttempt(self, items, group, client, priority).step_aside(kind)

    def check_room(self, priority: Priority) -> None:
        """Make sure that single acks give way to batches.

        Raises:
            Overloaded: They must.
        """
        if priority is Priority.ACK and is_shed(priority, self.relief.load):
            raise Overloaded


class AckAttempt:
    """One client's acknowledgments that could not be recorded at once."""

    __slots__ = (
        "_client",
        "_deadline",
        "_group",
        "_intake",
        "_items",
        "_positions",
        "_priority",
        "_results",
    )

    def __init__(
        self,
        intake: AckIntake,
        items: Sequence[AckItem],
        group: str | None,
        client: Client,
        priority: Priority,
    ) -> None:
        self._intake = intake
        self._items = items
        self._group = group
        self._client = client
        self._priority = priority
        self._deadline = 0.0
        self._positions: Sequence[int] | None = None
        self._results: list[bytes] = []

    def step_aside(self, kind: Kind) -> None:
        """There is no room: have it accepted as operations, or stand in line."""
        relief = self._intake.relief
        pending = self._pending()
        if self._may_defer(pending):
            request = self._intake.record.prepare(pending, self._group, lambda _: None)
            ids = [item.transaction_id for item in pending]
            pending = AckDeferral(request, ids, self._pending_positions(), self._deferred)
            relief.defer(pending, pending.weight + 1)
            return
        self._deadline = self._deadline or relief.deadline()
        relief.stand(
            kind,
            Turn(self._try_again, self._give_up),
            weight=_ITEM_WEIGHT * len(pending),
            deadline=self._deadline,
        )

    def _try_again(self) -> None:
        self._intake.check_room(self._priority)
        self._intake.record.ack_messages(self._pending(), self._group, self.resume)

    def _may_defer(self, items: Sequence[AckItem]) -> bool:
        if self._priority is Priority.ACK or len(_partitions_of(items)) > DEFERRED_PARTITIONS_MAX:
            return False
        return self._intake.relief.may_defer(self._client, {"asked"})

    def _pending(self) -> Sequence[AckItem]:
        if self._positions is None:
            return self._items
        return [self._items[position] for position in self._positions]

    def _pending_positions(self) -> Sequence[int]:
        return range(len(self._items)) if self._positions is None else self._positions

    def resume(self, request: AckRequest) -> None:
        """Go on with what an attempt left undone, if anything."""
        if request.error is not None:
            if is_passing(request.error):
                self.step_aside(self._priority)
            else:
                self._client.refuse(request.error)
            return
        self._take(request)
        if request.deferred:
            self.step_aside(PartitionKey(ACK_TYPE, next(iter(request.deferred))))
        else:
            self._conclude(self._results)

    def _take(self, request: AckRequest) -> None:
        """Keep all results; those of items that wait are replaced when these are done."""
        self._results = self._results or [b""] * len(self._items)
        positions = self._pending_positions()
        for at, position in enumerate(positions):
            self._results[position] = renumber(request.results[at], position)
        left = sorted(at for waiting in request.deferred.values() for at in waiting)
        self._positions = [positions[at] for at in left]

    def _give_up(self, error: SkepError) -> None:
        """Refuse the request if all of it waited in vain; else say which items did."""
        if len(self._pending_positions()) == len(self._items):
            self._client.refuse(error)
        else:
            self._conclude(self._results)

    def _deferred(self, pending: PendingDeferral) -> None:
        """Answer what was accepted, if anything was."""
        assert isinstance(pending, AckDeferral)
        if pending.error is not None:
            self._give_up(pending.error)
            return
        results = self._results or [b""] * len(self._items)
        for at, result in enumerate(pending.request.results):
            results[pending.positions[at]] = (
                renumber(result, pending.positions[at]) if result else b""
            )
        if pending.accepted:
            respond_accepted(self._client, pending, results)
        else:
            self._conclude(results)

    def _conclude(self, results: Sequence[bytes]) -> None:
        self._client.respond(200, b"[%b]" % b",".join(results))


def _partitions_of(items: Sequence[AckItem]) -> set[int]:
    found = (parse_partition_uuid(item.partition_id) for item in items)
    return {partition_id for partition_id in found if partition_id is not None}
