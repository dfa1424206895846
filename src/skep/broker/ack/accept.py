"""Ack: record what consumers did with the messages they hold.

An item names its message by id, or by transaction id and partition; then the offset comes from the
memory of the lease, or else the database finds it. Items of one request that complete messages of
one partition under one lease are sent as one: completing an offset completes all before it, so only
the highest is sent. Everything else is sent item by item, as are acks of queues that acknowledge
one by one.

The broker acknowledges messages that it leaves out of a batch by the same call.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias
from uuid import UUID

import msgspec
import xxhash

from skep.broker.ack.naming import named_message
from skep.broker.ack.statuses import (
    REFUSAL_BY_OUTCOME,
    STATUS_BY_WORD,
    AckRow,
    spelled_offset,
    storable_error,
    unknown_status,
)
from skep.broker.overload.fallback import AckAttempt, Client, Fallback
from skep.broker.pop.lease_memory import LeaseMemory
from skep.engine.driver import Engine, Work
from skep.model.errors import BadRequest, Overloaded, SkepError
from skep.model.limits import ACK_ITEMS_MAX, NAME_CHARS_MAX
from skep.model.priorities import Priority
from skep.model.wire import QUEUE_MODE, AckItem

_log = logging.getLogger(__name__)

_EXTRA_BY_OUTCOME: Final = {
    "noop": b',"noop":true',
    "redelivered": b',"redelivered":true',
    "dropped": b',"dropped":true',
    "malformed": b',"code":"bad_request"',
}

_ITEM_WEIGHT: Final = 256

_encode = msgspec.json.encode
_digest = xxhash.xxh3_128_digest

Answer: TypeAlias = Callable[["AckRequest"], None]


@dataclass(slots=True, eq=False)
class AckRequest(Work):
    """One client's acknowledgments, and their results so far."""

    items: Sequence[AckItem]
    answer: Answer
    results: list[bytes] = field(init=False)
    rows: list[AckRow] = field(init=False)
    deferred: dict[int, list[int]] = field(init=False)
    """Items that were not recorded because operations wait in their partition, by partition."""
    error: SkepError | None = None

    def __post_init__(self) -> None:
        self.results = [b""] * len(self.items)
        self.rows = []
        self.deferred = {}

    def finish(self) -> None:
        """Answer the request."""
        self.is_settled = True
        self.answer(self)

    def fail(self, error: SkepError) -> None:
        """Answer that nothing is known to have been recorded."""
        self.error = error
        self.finish()

    def set_outcome(
        self,
        position: int,
        outcome: str,
        *,
        queue: str | None = None,
        partition: str | None = None,
        lease_released: bool = False,
        refusal: str | None = None,
    ) -> None:
        """Render the result of one item."""
        refusal = refusal or REFUSAL_BY_OUTCOME.get(outcome)
        item = self.items[position]
        extra = _EXTRA_BY_OUTCOME.get(outcome, b"")
        if item.transaction_id is None:
            extra += b',"messageId":%b' % _encode(item.message_id or item.id)
        self.results[position] = (
            b'{"index":%d,"transactionId":%b,"success":%b,"error":%b,"queueName":%b,'
            b'"partitionName":%b,"leaseReleased":%b,"dlq":%b%b}'
        ) % (
            position,
            _encode(item.transaction_id),
            b"false" if refusal else b"true",
            _encode(refusal),
            _encode(queue),
            _encode(partition),
            b"true" if lease_released else b"false",
            b"true" if outcome == "dead_lettered" else b"false",
            extra,
        )


@dataclass(slots=True, eq=False, frozen=True)
class Ack:
    """Accept acknowledgments."""

    engine: Engine
    leases: LeaseMemory
    fallback: Fallback
    hash_seed: int
    requires_lease: bool = False

    def ack(
        self, items: Sequence[AckItem], group: str | None, client: Client, *, is_batch: bool
    ) -> None:
        """Record the items, now or, if there is no room, later; the client is answered once.

        Raises:
            BadRequest: The request as a whole is refused.
        """
        fallback = self.fallback
        priority = Priority.BATCH_ACK if is_batch else Priority.ACK
        kind = None if fallback.is_idle else fallback.ack_waited_for(items, priority)
        if kind is None:

            def answer(request: AckRequest) -> None:
                if request.error is None and not request.deferred:
                    client.respond(200, b"[%b]" % b",".join(request.results))
                else:
                    AckAttempt(fallback, items, client, self, group, priority).resume(request)

            try:
                fallback.check_ack_room(priority)
                self.ack_messages(items, group, answer)
            except Overloaded:
                kind = priority
            else:
                return
        AckAttempt(fallback, items, client, self, group, priority).fall_back(kind)

    def ack_messages(self, items: Sequence[AckItem], group: str | None, answer: Answer) -> None:
        """Record the items; `answer` is called once, when every item has a result.

        `group` is the consumer group of all items; None leaves it to each.

        Raises:
            BadRequest: The request as a whole is refused.
            Overloaded: The engine is full.
        """
        request = self.prepare(items, group, answer)
        if not request.rows:
            request.finish()
            return
        self.engine.submit("ack", None, _ITEM_WEIGHT * len(request.rows), request)

    def prepare(self, items: Sequence[AckItem], group: str | None, answer: Answer) -> AckRequest:
        """Make a request of the items; those that can never succeed have their results."""
        if len(items) > ACK_ITEMS_MAX:
            raise BadRequest(f"more than {ACK_ITEMS_MAX} acknowledgments in one request")
        request = AckRequest(items, answer)
        for position, item in enumerate(items):
            self._add_row(request, position, item, group or item.consumer_group or QUEUE_MODE)
        request.rows = _merge_completed(request.rows)
        return request

    def pass_over(
        self,
        group: str,
        lease_id: UUID,
        addresses: Sequence[tuple[int, int]],
        proceed: Callable[[bool], None],
    ) -> None:
        """Record messages under lease as done that were not delivered: expired or deleted.

        `addresses` are partitions and offsets. `proceed` is called once, with whether it
        succeeded. If not, they come again when the lease ends, and are passed over then. It is done
        however full the engine is: the poll was admitted, and would meet them in its next claim.
        """

        def answer(request: AckRequest) -> None:
            if request.error is not None:
                _log.warning("messages could not be passed over: %s", request.error)
            proceed(request.error is None)

        request = AckRequest((), answer)
        request.rows = [
            AckRow(partition_id, group, lease_id, offset, b"", "expired", None, str(lease_id), [])
            for partition_id, offset in addresses
        ]
        weight = _ITEM_WEIGHT * len(request.rows)
        try:
            self.engine.submit("ack", None, weight, request, is_admitted=True)
        except SkepError as error:
            request.fail(error)

    def _add_row(self, request: AckRequest, position: int, item: AckItem, group: str) -> None:
        word = item.status or "completed"
        status = STATUS_BY_WORD.get(word)
        lease_id = _parse_lease_id(item.lease_id)
        try:
            partition_id, offset = named_message(item)
        except BadRequest as error:
            request.set_outcome(position, "malformed", refusal=error.message)
            return
        if status is None:
            request.set_outcome(position, "unknown", refusal=unknown_status(word))
        elif item.lease_id and lease_id is None:
            request.set_outcome(position, "lease_lost")
        elif self.requires_lease and lease_id is None:
            request.set_outcome(position, "lease_missing")
        elif len(group) > NAME_CHARS_MAX or "\0" in group:
            request.set_outcome(position, "no_group")
        else:
            key, lease_text = b"", item.lease_id or ""
            if offset is None:
                name = item.transaction_id or ""
                key = _digest(name.encode(), self.hash_seed)
                offset = self.leases.find(lease_text, partition_id, key)
                if offset is None:
                    offset = spelled_offset(name, partition_id)
            stands_alone = offset is None or not self.leases.is_cumulative(
                lease_text, partition_id, offset
            )
            request.rows.append(
                AckRow(
                    partition_id,
                    group,
                    lease_id,
                    offset,
                    key,
                    status,
                    storable_error(item.error),
                    lease_text,
                    [position],
                    stands_alone,
                )
            )


def _merge_completed(rows: list[AckRow]) -> list[AckRow]:
    """Let the highest completed message of a partition and lease stand for the others.

    All rows or none: beside a failure each row must keep its own offset, or the ack of a message
    below the failure would turn into one above it.
    """
    if any(row.status != "completed" or row.offset is None or row.stands_alone for row in rows):
        return rows
    merged: dict[tuple[int, str, str], AckRow] = {}
    for row in rows:
        first = merged.setdefault((row.partition_id, row.group, row.lease_text), row)
        if first is not row:
            first.positions += row.positions
            assert first.offset is not None
            assert row.offset is not None
            first.offset = max(first.offset, row.offset)
    return list(merged.values())


@lru_cache(1024)  # the acks of a batch name the same one
def _parse_lease_id(text: str | None) -> UUID | None:
    if not text:
        return None
    try:
        return UUID(text)
    except ValueError:
        return None
