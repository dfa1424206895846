"""A push under way: its request, the writes its items wait in, and the flushes that store them.

Results are rendered here as they become known: stored, a duplicate, refused. Nothing here knows
where or how messages are stored.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from skep.broker.directory import Partition
from skep.engine.driver import Work
from skep.model.errors import SkepError, Unavailable
from skep.model.ids import OFFSET_LOW_BITS, message_id_head
from skep.model.wire import PushItem

if TYPE_CHECKING:
    from skep.broker.failover.diversion import Diversion
    from skep.engine.fusion import WorkUnit

NULL: Final = b"null"
"""The trace id of an item that has none."""

_encode = msgspec.json.encode

Entry: TypeAlias = "tuple[PushRequest, int, bytes, bytes, bytes, bytes]"
"""One item under way: request, position, key, envelope, transaction id and trace id as JSON."""

Answer: TypeAlias = Callable[["PushRequest"], None]


class PushRequest:
    """One client's push, and the results of its items so far."""

    __slots__ = ("_answer", "error", "errors", "pending", "results")

    def __init__(self, item_count: int, answer: Answer) -> None:
        self.results: list[bytes] = [b""] * item_count
        self.pending = item_count
        self.error: SkepError | None = None
        self.errors: dict[int, SkepError] | None = None
        """Why items are not stored, by position; None while no item has failed."""
        self._answer = answer

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

    def finish(self) -> None:
        """Answer the request; every item has its result."""
        self._answer(self)

    def fail(self, error: SkepError) -> None:
        """Answer that nothing was stored."""
        self.error = error
        self.errors = dict.fromkeys(range(len(self.results)), error)
        self._answer(self)


class PendingWrite(Work):
    """The items of all requests that wait to be pushed into one partition."""

    __slots__ = ("diversion", "entries", "known_to", "partition", "unit", "was_tried")

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
        self.unit: WorkUnit[Any] | None = None
        """Where it waits in the engine; None once it is on its way."""
        self.diversion = diversion
        """Takes it when the database is away; without one it fails."""
        self.known_to: int | None = None
        """A call with it was lost: what that stored lies above this offset."""
        self.was_tried = was_tried
        """An earlier call carried it, so some of its items may have their results."""

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
        for entry in self.unanswered():
            fail_entry(self.partition, entry, error)

    def unanswered(self) -> list[Entry]:
        """Return the entries that have no result yet."""
        return [entry for entry in self.entries if not entry[0].results[entry[1]]]


class Flush:
    """The entries of one call for one partition, and how they are answered."""

    __slots__ = (
        "body_bytes",
        "entries",
        "is_admitted",
        "is_guaranteed",
        "keys",
        "offset_by_key",
        "partition",
        "repeats",
        "writes",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.writes: list[PendingWrite] = []
        self.entries: list[Entry] = []
        self.keys = b""
        self.is_guaranteed = True
        self.is_admitted = False
        self.body_bytes = 0
        # Entries whose key an earlier entry of the flush has, and where those earlier ones went.
        self.repeats: list[Entry] = []
        self.offset_by_key: dict[bytes, int] = {}

    def gather(self) -> None:
        """Take the unanswered entries of the writes, as they were sent, by the current rules.

        In a queue that looks for duplicates the first entry with a key decides for all with it.
        """
        self.repeats = []
        entries = _unanswered(self.writes)
        keys = [entry[2] for entry in entries]
        if self.partition.rules.dedup_window_s and len(set(keys)) < len(keys):
            first_by_key: dict[bytes, Entry] = {}
            for entry in entries:
                if first_by_key.setdefault(entry[2], entry) is not entry:
                    self.repeats.append(entry)
            entries = list(first_by_key.values())
            keys = list(first_by_key)
        self.entries = entries
        self.keys = b"".join(keys)

    def keep(self, entries: list[Entry]) -> None:
        """Go on with these entries only; the others have their results."""
        self.entries = entries
        self.keys = b"".join([entry[2] for entry in entries])
        if not entries:
            self.settle()

    def seal(self, seal: Callable[[bytes], bytes]) -> None:
        """Encrypt the envelopes; `gather` restores them.

        Raises:
            SkepError: It cannot be done.
        """
        self.entries = [(*entry[:3], seal(entry[3]), *entry[4:]) for entry in self.entries]

    def join_body(self) -> bytes:
        """Join the envelopes into the body of a segment."""
        body = b"[%b]" % b",".join([entry[3] for entry in self.entries])
        self.body_bytes = len(body)
        return body

    def refuse(self, entry: Entry, error: SkepError) -> None:
        """Answer that an entry is not stored, nor are those with its key."""
        repeats = [each for each in self.repeats if each[2] == entry[2]]
        self.repeats = [each for each in self.repeats if each[2] != entry[2]]
        for each in (entry, *repeats):
            fail_entry(self.partition, each, error)

    def refuse_all(self, error: SkepError) -> None:
        """Answer that nothing of the flush is stored."""
        for entry in self.entries:
            self.refuse(entry, error)
        self.keep([])

    def answer_stored(self, first: int) -> None:
        """Answer that the entries were stored from the offset `first` on."""
        partition = self.partition
        head = partition.message_id_head
        if first > OFFSET_LOW_BITS:
            head = message_id_head(partition.partition_id, first)
        low = first & OFFSET_LOW_BITS
        untraced = partition.result_end
        for request, position, _, _, transaction_id, trace_id in self.entries:
            request.results[position] = (
                b'{"index":%d,"transaction_id":%b,"status":"queued","message_id":"%b%012x%b'
                % (
                    position,
                    transaction_id,
                    head,
                    low,
                    untraced if trace_id is NULL else _result_end(partition, trace_id),
                )
            )
            request.pending -= 1
            if not request.pending:
                request.finish()
            low += 1
        if self.repeats:
            stored_at = enumerate(self.entries, start=first)
            self.offset_by_key.update({entry[2]: offset for offset, entry in stored_at})
        self.settle()

    def answer_duplicates(
        self, found: Iterable[tuple[int, int]], *, queued_above: int | None
    ) -> None:
        """Answer the entries found stored already, and keep the others.

        Args:
            found: (index in the flush, offset where it is stored).
            queued_above: Offsets above it were stored by an earlier attempt of this very call.
        """
        offset_by_index = dict(found)
        for index, offset in offset_by_index.items():
            is_ours = queued_above is not None and offset > queued_above
            self.offset_by_key[self.entries[index][2]] = offset
            self._answer_at(self.entries[index], offset, b"queued" if is_ours else b"duplicate")
        self.keep([e for i, e in enumerate(self.entries) if i not in offset_by_index])

    def settle(self) -> None:
        """Answer the repeats, now that it is known where the first ones went; end the writes."""
        for entry in self.repeats:
            self._answer_at(entry, self.offset_by_key[entry[2]], b"duplicate")
        for write in self.writes:
            write.is_settled = True

    def _answer_at(self, entry: Entry, offset: int, status: bytes) -> None:
        request, position, _, _, transaction_id, trace_id = entry
        result = b'{"index":%d,"transaction_id":%b,"status":"%b","message_id":"%b%012x%b' % (
            position,
            transaction_id,
            status,
            message_id_head(self.partition.partition_id, offset),
            offset & OFFSET_LOW_BITS,
            _result_end(self.partition, trace_id),
        )
        request.settle(position, result)


def by_partition(writes: Iterable[PendingWrite]) -> dict[int, Flush]:
    """Join the writes of each partition; those without an unanswered entry are settled."""
    flushes: dict[int, Flush] = {}
    for write in writes:
        flush = flushes.get(write.partition.partition_id)
        if flush is None:
            flush = flushes[write.partition.partition_id] = Flush(write.partition)
        flush.writes.append(write)
    for partition_id, flush in tuple(flushes.items()):
        flush.gather()
        if not flush.entries:
            flush.settle()
            del flushes[partition_id]
    return flushes


def _unanswered(writes: Sequence[PendingWrite]) -> list[Entry]:
    if len(writes) == 1 and not writes[0].was_tried:
        writes[0].was_tried = True
        return writes[0].entries
    entries: list[Entry] = []
    for write in writes:
        entries += write.unanswered() if write.was_tried else write.entries
        write.was_tried = True
    return entries


def fail_entry(partition: Partition, entry: Entry, error: SkepError) -> None:
    """Answer that an item is not stored."""
    request, position, _, _, transaction_id, _ = entry
    result = failed_result(position, transaction_id, error, partition.queue_json)
    request.settle(position, result, error=error)


def fail_item(request: PushRequest, position: int, item: PushItem, error: SkepError) -> None:
    """Answer that an item whose partition is not known is not stored."""
    result = failed_result(position, _encode(item.transaction_id), error, _encode(item.queue))
    request.settle(position, result, error=error)


def failed_result(position: int, transaction_id: bytes, error: SkepError, queue: bytes) -> bytes:
    """Render the result of an item that is not stored; the id and the queue are JSON."""
    return b'{"index":%d,"transaction_id":%b,"status":"failed","error":%b,"queueName":%b}' % (
        position,
        transaction_id,
        _encode(error.message),
        queue,
    )


def _result_end(partition: Partition, trace_id: bytes) -> bytes:
    """Render the part of a result that follows the message id."""
    return b'","partition_id":"%b","trace_id":%b,"queueName":%b}' % (
        partition.uuid,
        trace_id,
        partition.queue_json,
    )
