"""Ack: record what consumers did with the messages they hold.

An item names its message by transaction id and partition; the offset comes from the memory of the
lease, or else the database finds it. Items of one request that complete messages of one partition
under one lease are sent as one: completing an offset completes all before it, so only the highest
is sent. Everything else is sent item by item, as are acks of queues that acknowledge one by one.

The broker acknowledges messages that it leaves out of a batch by the same call.
"""

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, TypeAlias
from uuid import UUID

import msgspec
import xxhash

from skep.broker.ack.statuses import (
    REFUSAL_BY_OUTCOME,
    STATUS_BY_WORD,
    spelled_offset,
    storable_error,
    unknown_status,
)
from skep.broker.pop.lease_memory import LeaseMemory
from skep.engine.driver import Engine, Work
from skep.model.errors import BadRequest, SkepError
from skep.model.ids import parse_partition_uuid
from skep.model.limits import ACK_ITEMS_MAX, NAME_CHARS_MAX
from skep.model.wire import QUEUE_MODE, AckItem

_log = logging.getLogger(__name__)

_EXTRA_BY_OUTCOME: Final = {
    "noop": b',"noop":true',
    "redelivered": b',"redelivered":true',
    "dropped": b',"dropped":true',
}

_ITEM_WEIGHT: Final = 256

_encode = msgspec.json.encode
_digest = xxhash.xxh3_128_digest

Answer: TypeAlias = Callable[["AckRequest"], None]


class AckRow(msgspec.Struct, gc=False):
    """One row of a call: an ack, and the items of the request it stands for."""

    partition_id: int
    group: str
    lease_id: UUID | None
    offset: int | None
    key: bytes
    status: str
    error: str | None
    positions: list[int]
    lease_text: str
    stands_alone: bool = True
    """No other ack may stand for it: its lease is individual, or not remembered here."""


class AckRequest(Work):
    """One client's acknowledgments, and their results so far."""

    __slots__ = ("_answer", "_items", "deferred", "error", "results", "rows")

    def __init__(self, items: Sequence[AckItem], answer: Answer) -> None:
        super().__init__()
        self._items = items
        self._answer = answer
        self.results: list[bytes] = [b""] * len(items)
        self.rows: list[AckRow] = []
        self.deferred: dict[int, list[int]] = {}
        """Items that were not recorded because operations wait in their partition, by partition."""
        self.error: SkepError | None = None

    def finish(self) -> None:
        """Answer the request."""
        self.is_settled = True
        self._answer(self)

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
        self.results[position] = (
            b'{"index":%d,"transactionId":%b,"success":%b,"error":%b,"queueName":%b,'
            b'"partitionName":%b,"leaseReleased":%b,"dlq":%b%b}'
        ) % (
            position,
            _encode(self._items[position].transaction_id),
            b"false" if refusal else b"true",
            _encode(refusal),
            _encode(queue),
            _encode(partition),
            b"true" if lease_released else b"false",
            b"true" if outcome == "dead_lettered" else b"false",
            _EXTRA_BY_OUTCOME.get(outcome, b""),
        )


class Ack:
    """Accept acknowledgments."""

    def __init__(
        self, engine: Engine, leases: LeaseMemory, *, hash_seed: int, requires_lease: bool = False
    ) -> None:
        self._requires_lease: Final = requires_lease
        self._engine: Final = engine
        self._leases: Final = leases
        self._hash_seed: Final = hash_seed

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
        self._engine.submit("ack", None, _ITEM_WEIGHT * len(request.rows), request)

    def prepare(self, items: Sequence[AckItem], group: str | None, answer: Answer) -> AckRequest:
        """Make a request of the items; those that can never succeed have their results.

        Raises:
            BadRequest: There are too many.
        """
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
        proceed: Callable[[], None],
    ) -> None:
        """Record messages under lease as done that were not delivered: expired or deleted.

        `addresses` are partitions and offsets. `proceed` is called once, also after a failure: then
        they come again when the lease ends, and are passed over then.
        """

        def answer(request: AckRequest) -> None:
            if request.error is not None:
                _log.warning("messages could not be passed over: %s", request.error)
            proceed()

        request = AckRequest((), answer)
        request.rows = [
            AckRow(partition_id, group, lease_id, offset, b"", "expired", None, [], str(lease_id))
            for partition_id, offset in addresses
        ]
        try:
            self._engine.submit("ack", None, _ITEM_WEIGHT * len(request.rows), request)
        except SkepError as error:
            request.fail(error)

    def _add_row(self, request: AckRequest, position: int, item: AckItem, group: str) -> None:
        word = item.status or "completed"
        status = STATUS_BY_WORD.get(word)
        partition_id = parse_partition_uuid(item.partition_id)
        lease_id = _parse_lease_id(item.lease_id)
        if status is None:
            request.set_outcome(position, "unknown", refusal=unknown_status(word))
        elif partition_id is None:
            request.set_outcome(position, "not_found")
        elif item.lease_id and lease_id is None:
            request.set_outcome(position, "lease_lost")
        elif self._requires_lease and lease_id is None:
            request.set_outcome(position, "lease_missing")
        elif len(group) > NAME_CHARS_MAX or "\0" in group:
            request.set_outcome(position, "no_group")
        else:
            key = _digest(item.transaction_id.encode(), self._hash_seed)
            lease_text = item.lease_id or ""
            offset = self._leases.find(lease_text, partition_id, key)
            request.rows.append(
                AckRow(
                    partition_id,
                    group,
                    lease_id,
                    spelled_offset(item.transaction_id, partition_id) if offset is None else offset,
                    key,
                    status,
                    storable_error(item.error),
                    [position],
                    lease_text,
                    offset is None or self._leases.is_individual(lease_text),
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
