"""A push under way: its request, and the writes in which its items wait for a call."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from skep.broker.directory import Partition, QueueLabels
from skep.engine.driver import Work
from skep.model.envelopes import LooseEnvelope, build_envelope, check_headers, end_of_life
from skep.model.errors import BadRequest, SkepError, Unavailable
from skep.model.ids import new_transaction_id
from skep.model.limits import TRANSACTION_ID_CHARS_MAX
from skep.model.names import check_optional_name, refuse_transaction_id
from skep.model.wire import LoosePushItem, PushItem
from skep.spill.records import SpillRecord

if TYPE_CHECKING:
    from skep.broker.failover.diversion import Diversion
    from skep.engine.fusion import WorkUnit

NULL: Final = b"null"
"""The trace id of an item that has none."""

_encode = msgspec.json.encode

Entry: TypeAlias = "tuple[PushRequest, int, bytes, bytes, bytes, bytes]"
"""One item under way: request, position, key, envelope, transaction id and trace id as JSON."""

Answer: TypeAlias = Callable[["PushRequest"], None]


class PushRequest(Struct, eq=False, kw_only=True):
    """One push, and the results of its items so far. A Struct because every push makes one."""

    results: list[bytes]
    pending: int
    error: SkepError | None = None
    errors: dict[int, SkepError] | None = None
    """Why items are not stored, by position; None while no item has failed."""

    def settle(self, position: int, result: bytes, *, error: SkepError | None = None) -> None:
        """Note the result of an item, and answer the request if it was the last."""
        self.results[position] = result
        if error is not None:
            self.error = error
            if self.errors is None:
                self.errors = {}
            self.errors[position] = error
        self.pending -= 1
        if not self.pending:
            self.finish()

    def unsettled(self, positions: Iterable[int]) -> list[int]:
        """Return those of these positions whose item has no result yet."""
        return [position for position in positions if not self.results[position]]

    def finish(self) -> None:
        """Answer the request; every item has its result."""
        raise NotImplementedError


class CalledPush(PushRequest):
    """A push whose results go to a callback."""

    answer: Answer

    def finish(self) -> None:
        """Call back."""
        self.answer(self)

    @classmethod
    def of(cls, item_count: int, answer: Answer) -> "CalledPush":
        """Return a push of so many items."""
        return cls(answer, results=[b""] * item_count, pending=item_count)


@dataclass(slots=True, eq=False)
class PendingWrite(Work):
    """The items of all requests that wait to be pushed into one partition."""

    partition: Partition
    entries: list[Entry]
    diversion: "Diversion | None" = None
    """Takes it when the database is away; without one it fails."""
    known_to: int | None = None
    """A call with it was lost: what that stored lies above this offset."""
    was_tried: bool = False
    """An earlier call carried it, so some of its items may have their results."""
    are_new: bool = False
    """All its transaction ids were made here: before the first call none of them is stored."""
    unit: "WorkUnit[Any] | None" = None
    """Where it waits in the engine; None once it is on its way."""

    def split(self) -> Sequence["PendingWrite"]:
        """Return a write for each request, or nothing when there is only one."""
        by_request: dict[PushRequest, list[Entry]] = {}
        for entry in self.entries:
            by_request.setdefault(entry[0], []).append(entry)
        if len(by_request) < 2:
            return []
        return [
            PendingWrite(self.partition, entries, self.diversion, self.known_to, was_tried=True)
            for entries in by_request.values()
        ]

    def fail(self, error: SkepError) -> None:
        """Answer every item without a result with the error, or keep it on disk."""
        self.is_settled = True
        if isinstance(error, Unavailable) and self.diversion is not None:
            self.diversion.divert_write(self)
            return
        for entry in self.unanswered():
            fail_entry(self.partition, entry, error)

    def unanswered(self) -> list[Entry]:
        """Return the entries that have no result yet."""
        return [entry for entry in self.entries if not entry[0].results[entry[1]]]


def check_labels(item: PushItem) -> None:
    """Check the namespace and task that an item gives to the queue it creates."""
    check_optional_name("namespace", item.namespace)
    check_optional_name("task", item.task)


def queue_labels(items: Iterable[PushItem | SpillRecord]) -> QueueLabels:
    """Return the namespace and task that items give to the queues they create."""
    return {
        item.queue: (item.namespace, item.task)
        for item in items
        if item.namespace is not None or item.task is not None
    }


def checked_transaction_id(item: PushItem, default: str | None = None) -> str:
    """Return a transaction id that can be stored; a new one if none is given."""
    text = item.transaction_id or default or item.message_id or new_transaction_id()
    if len(text) > TRANSACTION_ID_CHARS_MAX or "\0" in text:
        refuse_transaction_id(text)
    return text


def item_envelope(
    item: PushItem,
    transaction_id: str,
    trace_id: str | None,
    producer: str | None,
    deliverable_at: datetime,
) -> bytes:
    """Build the envelope of an item that can be delivered from then on."""
    check_loose(item)
    envelope = build_envelope(
        transaction_id,
        bytes(item.payload),
        trace_id=trace_id,
        producer=producer,
        headers=check_headers(item.headers),
        expires_at=end_of_life(item.ttl_seconds, deliverable_at),
    )
    if isinstance(item, LoosePushItem):
        # The rules of its queue decide about it.
        envelope = LooseEnvelope(envelope)
        envelope.item = item
    return envelope


def check_loose(item: PushItem) -> None:
    """Refuse an item that is loose if no queue takes such."""
    if isinstance(item, LoosePushItem) and item.is_refused:
        raise BadRequest(item.refusal)


def fail_entry(partition: Partition, entry: Entry, error: SkepError) -> None:
    """Answer that an item is not stored."""
    request, position, _, _, transaction_id, _ = entry
    result = failed_result(position, transaction_id, error, partition.queue_json)
    request.settle(position, result, error=error)


def fail_item(request: PushRequest, position: int, item: PushItem, error: SkepError) -> None:
    """Answer that an item whose partition is not known is not stored."""
    result = failed_result(position, _encode(item.transaction_id or ""), error, _encode(item.queue))
    request.settle(position, result, error=error)


def failed_result(position: int, transaction_id: bytes, error: SkepError, queue: bytes) -> bytes:
    """Render the result of an item that is not stored; the id and the queue are JSON."""
    return b'{"index":%d,"transaction_id":%b,"status":"failed","error":%b,"queueName":%b}' % (
        position,
        transaction_id,
        _encode(error.message),
        queue,
    )
