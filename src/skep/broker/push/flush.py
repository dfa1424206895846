"""The part of a push call that goes to one partition, and the answers it leads to.

Results are rendered here as they become known: stored, a duplicate, refused.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from skep.broker.directory import Partition
from skep.broker.push.items import Entry, PendingWrite, fail_entry
from skep.model.errors import PartitionDeferred, SkepError
from skep.model.ids import OFFSET_LOW_BITS, message_id_head

NULL: Final = b"null"
"""The trace id of an item that has none."""


class Flush:
    """The entries of one call for one partition."""

    __slots__ = (
        "body_bytes",
        "entries",
        "is_admitted",
        "is_guaranteed",
        "keys",
        "offset_by_key",
        "partition",
        "twins",
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
        self.twins: list[Entry] = []
        self.offset_by_key: dict[bytes, int] = {}

    def gather(self) -> None:
        """Take what the writes hold unanswered, as it was sent, by the rules as they are now.

        In a queue that looks for duplicates the first entry with a key decides for all with it.
        """
        self.twins = []
        entries = _unanswered(self.writes)
        keys = [entry[2] for entry in entries]
        if self.partition.rules.dedup_window_s and len(set(keys)) < len(keys):
            first_by_key: dict[bytes, Entry] = {}
            for entry in entries:
                if first_by_key.setdefault(entry[2], entry) is not entry:
                    self.twins.append(entry)
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
        """Encrypt the envelopes; `gather` brings back what they were.

        Raises:
            SkepError: It cannot be done.
        """
        self.entries = [(*entry[:3], seal(entry[3]), *entry[4:]) for entry in self.entries]

    def refuse(self, entry: Entry, error: SkepError) -> None:
        """Answer that an entry is not stored, nor are those with its key."""
        twins = [twin for twin in self.twins if twin[2] == entry[2]]
        self.twins = [twin for twin in self.twins if twin[2] != entry[2]]
        for each in (entry, *twins):
            fail_entry(self.partition, each, error)

    def settle(self) -> None:
        """Answer the twins, now that it is known where the first ones went, and end the writes."""
        for twin in self.twins:
            _answer_twin(self, twin, self.offset_by_key[twin[2]], b"duplicate")
        for write in self.writes:
            write.is_settled = True


def body_of(flush: Flush) -> bytes:
    """Join the envelopes of a flush into the body of a segment."""
    body = b"[%b]" % b",".join([entry[3] for entry in flush.entries])
    flush.body_bytes = len(body)
    return body


def by_partition(writes: Iterable[PendingWrite]) -> dict[int, Flush]:
    """Join the writes of each partition, and answer what is twice in the same flush."""
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
    """Return the entries of the writes; those of a write that was tried may have been answered."""
    if len(writes) == 1 and not writes[0].was_tried:
        writes[0].was_tried = True
        return writes[0].entries
    entries: list[Entry] = []
    for write in writes:
        if write.was_tried:
            entries += [entry for entry in write.entries if not entry[0].results[entry[1]]]
        else:
            entries += write.entries
        write.was_tried = True
    return entries


def answer_stored(flush: Flush, first: int) -> None:
    """Answer the entries of a flush that was stored from an offset on, and their twins."""
    partition = flush.partition
    head = partition.message_id_head
    if first > OFFSET_LOW_BITS:
        head = message_id_head(partition.partition_id, first)
    low = first & OFFSET_LOW_BITS
    untraced = partition.result_end
    for request, position, _, _, transaction_id, trace_id in flush.entries:
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
    if flush.twins:
        stored_at = enumerate(flush.entries, start=first)
        flush.offset_by_key.update({entry[2]: offset for offset, entry in stored_at})
    flush.settle()


def refuse_deferred(flush: Flush) -> None:
    """Answer that nothing of a flush is stored: operations wait for its partition."""
    error = PartitionDeferred(partition_id=flush.partition.partition_id)
    for entry in flush.entries:
        flush.refuse(entry, error)
    flush.keep([])


def answer_duplicates(
    flush: Flush, found: Iterable[tuple[int, int]], *, queued_above: int | None
) -> None:
    """Answer the entries found stored already, and leave the others in the flush.

    Args:
        flush: Its `found` entries are taken out.
        found: (index in the flush, offset where it is stored).
        queued_above: Offsets above it were stored by an earlier try of this very call.
    """
    offset_by_index = dict(found)
    for index, offset in offset_by_index.items():
        is_ours = queued_above is not None and offset > queued_above
        flush.offset_by_key[flush.entries[index][2]] = offset
        _answer_twin(flush, flush.entries[index], offset, b"queued" if is_ours else b"duplicate")
    flush.keep([e for i, e in enumerate(flush.entries) if i not in offset_by_index])


def _answer_twin(flush: Flush, entry: Entry, offset: int, status: bytes) -> None:
    request, position, _, _, transaction_id, trace_id = entry
    result = b'{"index":%d,"transaction_id":%b,"status":"%b","message_id":"%b%012x%b' % (
        position,
        transaction_id,
        status,
        message_id_head(flush.partition.partition_id, offset),
        offset & OFFSET_LOW_BITS,
        _result_end(flush.partition, trace_id),
    )
    request.settle(position, result)


def _result_end(partition: Partition, trace_id: bytes) -> bytes:
    """Render the part of a result that follows the message id."""
    return b'","partition_id":"%b","trace_id":%b,"queueName":%b}' % (
        partition.uuid,
        trace_id,
        partition.queue_json,
    )
