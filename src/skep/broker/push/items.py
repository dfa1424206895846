"""What is under way of a push: items, their requests, and the writes in which they wait.

Nothing here knows where or how messages are stored.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from skep.broker.directory import Partition
from skep.engine.driver import Work
from skep.model.errors import SkepError, Unavailable
from skep.model.wire import PushItem

if TYPE_CHECKING:
    from skep.broker.failover.diversion import Diversion
    from skep.engine.fusion import WorkUnit

_encode = msgspec.json.encode

Entry: TypeAlias = "tuple[PushRequest, int, bytes, bytes, bytes, bytes]"
"""One item under way: request, position, key, envelope, transaction id and trace id as JSON."""

Answer: TypeAlias = Callable[["PushRequest"], None]


class PushRequest:
    """One client's push, and the results of its items so far."""

    __slots__ = ("_answer", "error", "errors", "failed", "pending", "results")

    def __init__(self, item_count: int, answer: Answer) -> None:
        self.results: list[bytes] = [b""] * item_count
        self.pending = item_count
        self.failed = 0
        self.error: SkepError | None = None
        self.errors: dict[int, SkepError] | None = None
        """Why items are not stored, by position; None while all of them are."""
        self._answer = answer

    @property
    def has_stored(self) -> bool:
        """Whether at least one item is stored."""
        return self.failed < len(self.results)

    def settle(self, position: int, result: bytes, *, error: SkepError | None = None) -> None:
        """Note the result of an item, and answer the request if it was the last."""
        self.results[position] = result
        if error is not None:
            self.error = error
            self.failed += 1
            if self.errors is None:
                self.errors = {}
            self.errors[position] = error
        self.pending -= 1
        if not self.pending:
            self.finish()

    def finish(self) -> None:
        """Answer the request; every item has its result."""
        self._answer(self)

    def fail(self, error: SkepError) -> None:
        """Answer that nothing was stored."""
        self.error = error
        self.errors = dict.fromkeys(range(len(self.results)), error)
        self.failed = len(self.results)
        self._answer(self)


class PendingWrite(Work):
    """What waits to be pushed into one partition, whoever sent it."""

    __slots__ = ("diversion", "entries", "known_to", "partition", "place", "was_tried")

    def __init__(
        self,
        partition: Partition,
        entries: list[Entry],
        *,
        was_tried: bool = False,
        diversion: "Diversion | None" = None,
    ) -> None:
        super().__init__()
        self.partition = partition
        self.entries = entries
        self.place: WorkUnit[Any] | None = None
        self.diversion = diversion
        """Where it goes when the database is away; without one it fails."""
        self.known_to: int | None = None
        """A call with it was lost: what that stored lies above this offset."""
        self.was_tried = was_tried
        """It left with a call before, so some of its items may have their results."""

    def split(self) -> Sequence["PendingWrite"]:
        """Return a write for each request, or nothing when there is only one."""
        by_request: dict[PushRequest, list[Entry]] = {}
        for entry in self.entries:
            by_request.setdefault(entry[0], []).append(entry)
        if len(by_request) < 2:
            return []
        parts = [
            PendingWrite(self.partition, entries, was_tried=True, diversion=self.diversion)
            for entries in by_request.values()
        ]
        for part in parts:
            part.known_to = self.known_to
        return parts

    def fail(self, error: SkepError) -> None:
        """Answer every item without a result with the error, or keep it on disk."""
        self.is_settled = True
        if isinstance(error, Unavailable) and self.diversion is not None:
            self.diversion.divert_write(self)
            return
        for entry in self.entries:
            if not entry[0].results[entry[1]]:
                fail_entry(self.partition, entry, error)


def fail_entry(partition: Partition, entry: Entry, error: SkepError) -> None:
    """Answer that an item is not stored."""
    request, position, _, _, transaction_id, _ = entry
    result = b'{"index":%d,"transaction_id":%b,"status":"failed","error":%b,"queueName":%b}' % (
        position,
        transaction_id,
        _encode(error.message),
        partition.queue_json,
    )
    request.settle(position, result, error=error)


def fail_item(request: PushRequest, position: int, item: PushItem, error: SkepError) -> None:
    """Answer that an item whose partition is not known is not stored."""
    result = b'{"index":%d,"transaction_id":%b,"status":"failed","error":%b,"queueName":%b}' % (
        position,
        _encode(item.transaction_id),
        _encode(error.message),
        _encode(item.queue),
    )
    request.settle(position, result, error=error)
