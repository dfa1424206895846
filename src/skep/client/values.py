"""What a broker answers, as values.

Fields a newer broker adds are ignored. The names are those of the wire in Python's spelling; tests
compare them with the broker's own shapes. Answers that describe one thing in depth, for people
rather than programs, stay dicts.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, overload

import msgspec

from skep.client.errors import OffsetOutOfRange, PushFailed
from skep.model.errors import BadRequest, NotFound, Unavailable
from skep.model.queue_options import QueueOptions

Json: TypeAlias = dict[str, Any]
T = TypeVar("T")
PushStatus: TypeAlias = Literal["queued", "duplicate", "scheduled", "buffered", "failed"]


class PushResult(msgspec.Struct, kw_only=True):
    """What became of one pushed item."""

    transaction_id: str = ""
    status: PushStatus
    message_id: str | None = None
    """Of a duplicate: the id of the message that was first."""
    partition_id: str | None = None
    trace_id: str | None = None
    queue_name: str = msgspec.field(default="", name="queueName")
    error: str | None = None
    scheduled_id: str | None = msgspec.field(default=None, name="scheduledId")
    """By which a message for later is shown and cancelled."""
    deliver_at: str | None = msgspec.field(default=None, name="deliverAt")

    @property
    def is_stored(self) -> bool:
        """Whether the broker has the message, by this push or an earlier one."""
        return self.status != "failed"


class QueuedOperation(msgspec.Struct, rename="camel", kw_only=True):
    """The broker was too busy, and has written down what to do."""

    operation_id: str
    queue_position: int | None = None
    estimated_wait: float | None = None
    """Seconds."""


class Operation(msgspec.Struct, rename="camel", kw_only=True):
    """How far a queued operation is."""

    operation_id: str
    status: str
    """`waiting`, `processing`, `completed`, `failed` or `cancelled`."""
    error: str | None = None
    answer: msgspec.Raw = msgspec.Raw(b"null")
    """What the request would have been answered, once it is completed."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status in {"completed", "failed", "cancelled"}


class PushCounts(msgspec.Struct, kw_only=True):
    """How many items became what."""

    queued: int = 0
    duplicate: int = 0
    scheduled: int = 0
    buffered: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        """All items that were answered."""
        return self.queued + self.duplicate + self.scheduled + self.buffered + self.failed

    def add(self, other: "PushCounts") -> None:
        """Count those of another push, too."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_STORED: Final = b'","status":"queued","message_id"'
"""How most results read. The longer a text is, the sooner it is found."""


class PushResults(Sequence[PushResult]):
    """The results of a push, in the order of its items. They are decoded when they are looked at.

    Attributes:
        operation: Set when the broker queued the request (`queued_operation_behavior="return"`).
            There are no results then: ask `wait_for_operation`.
    """

    __slots__ = ("_bodies", "_decoded", "_item_count", "operation")

    def __init__(
        self,
        bodies: Sequence[bytes],
        *,
        item_count: int = 0,
        operation: QueuedOperation | None = None,
    ) -> None:
        self._bodies: Final = bodies
        self._item_count: Final = item_count
        self._decoded: list[PushResult] | None = None
        self.operation: Final = operation

    @property
    def counts(self) -> PushCounts:
        """How many items became what; counted without decoding."""
        if self._item_count and self._occurrences(_STORED) == self._item_count:
            return PushCounts(queued=self._item_count)
        return PushCounts(**{name: self._count(name) for name in PushCounts.__struct_fields__})

    def _count(self, status: str) -> int:
        return self._occurrences(b'"status":"%b"' % status.encode())

    def _occurrences(self, mark: bytes) -> int:
        # Text of users cannot look like a mark: its quotation marks are escaped.
        return sum([body.count(mark) for body in self._bodies])

    @property
    def has_failures(self) -> bool:
        """Whether an item was refused."""
        return self.counts.failed > 0

    @property
    def failures(self) -> list[PushResult]:
        """The results of the items that were refused."""
        return [result for result in self if not result.is_stored] if self.has_failures else []

    def raise_for_failures(self) -> "PushResults":
        """Return these results if every item is stored.

        Raises:
            PushFailed: Items were refused; those beside them are stored.
        """
        if self.has_failures:
            raise PushFailed.of(self.failures)
        return self

    def _results(self) -> list[PushResult]:
        if self.operation is not None:
            raise Unavailable(f"the push is queued as operation {self.operation.operation_id}")
        if self._decoded is None:
            self._decoded = [result for body in self._bodies for result in decode_results(body)]
        return self._decoded

    def __len__(self) -> int:
        return len(self._results())

    @overload
    def __getitem__(self, index: int) -> PushResult: ...
    @overload
    def __getitem__(self, index: slice) -> list[PushResult]: ...
    def __getitem__(self, index: int | slice) -> PushResult | list[PushResult]:
        return self._results()[index]

    def __iter__(self) -> Iterator[PushResult]:
        return iter(self._results())

    def __repr__(self) -> str:
        return f"PushResults({self.counts})"


class AckResult(msgspec.Struct, rename="camel", kw_only=True):
    """What became of one acknowledgment."""

    transaction_id: str
    success: bool
    error: str | None = None
    lease_released: bool | None = None
    dlq: bool = False
    """The message is a dead letter now."""
    noop: bool = False
    """It was completed before."""
    dropped: bool = False
    redelivered: bool = False
    """Completed, but above a message that failed: it will come again."""


class Renewed(msgspec.Struct, rename="camel", kw_only=True):
    """A lease after it was asked to last longer."""

    lease_id: str
    success: bool
    error: str | None = None
    expires_at: datetime | None = None


class TransactionResult(msgspec.Struct, rename="camel", kw_only=True):
    """What became of one operation of a transaction."""

    type: Literal["push", "ack"]
    success: bool
    transaction_id: str
    message_id: str | None = None
    partition_id: str | None = None
    queue_name: str | None = None
    status: str | None = None
    error: str | None = None
    dlq: bool = False
    noop: bool = False
    redelivered: bool = False


class TransactionAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """All of it happened, or nothing."""

    transaction_id: str
    success: bool
    error: str | None = None
    results: list[TransactionResult] = msgspec.field(default_factory=list[TransactionResult])


class MessageCounts(msgspec.Struct, rename="camel", kw_only=True):
    """How many messages there are, by what has become of them."""

    total: int = 0
    pending: int = 0
    processing: int = 0
    completed: int = 0
    failed: int = 0
    dead_letter: int = 0


class QueueSummary(msgspec.Struct, rename="camel", kw_only=True):
    """A queue in a listing."""

    id: str
    name: str
    namespace: str = ""
    task: str = ""
    created_at: datetime
    is_paused: bool = False
    partitions: int = 0
    messages: MessageCounts
    estimated: bool = False
    """Whether the counts come from a sample of the partitions."""
    condition: str = ""
    in_per_second: float = 0
    """Messages pushed lately."""
    out_per_second: float = 0
    """Deliveries lately, of all groups."""
    pushed: list[int] = []
    """By whole minute, oldest first, of as many minutes as were asked for."""
    popped: list[int] = []


class QueuePage(msgspec.Struct):
    """A page of queues; `total` is how many match."""

    queues: list[QueueSummary]
    total: int


class Configured(msgspec.Struct, rename="camel", kw_only=True):
    """A queue as it is configured."""

    queue_id: str
    queue: str
    namespace: str = ""
    task: str = ""
    options: QueueOptions
    ignored_options: list[str] = msgspec.field(default_factory=list[str])
    """Options that were sent and that the broker does not know."""


class PartitionSummary(msgspec.Struct, rename="camel", kw_only=True):
    """A partition in a listing."""

    id: str
    name: str
    queue: str
    created_at: datetime
    head: int = 0
    """The offset of the newest message; 0 before the first."""
    tail: int = 0
    """The offset of the oldest message kept."""
    stats: MessageCounts
    last_activity: datetime | None = None


class PartitionPage(msgspec.Struct, rename="camel", kw_only=True):
    """A page of partitions."""

    partitions: list[PartitionSummary]
    total: int
    next_after: str | None = None
    """Give it as `after` for the next page; None on the last."""


class GroupEntry(msgspec.Struct, rename="camel", kw_only=True):
    """A consumer group on one queue."""

    name: str
    queue_name: str
    members: int = 0
    partition_count: int = 0
    partitions_with_lag: int = 0
    total_lag: int | None = None
    """Messages it has yet to finish."""
    max_time_lag: int = 0
    """Age of the oldest of them, in seconds."""
    condition: str = ""
    """In one word: stalled, no-consumers, lagging, paused, consuming or empty."""
    state: str = ""
    """The word that Queen has for it."""
    subscription_mode: str = ""
    is_paused: bool = False
    estimated: bool = False


class PartitionLag(msgspec.Struct, rename="camel", kw_only=True):
    """Lag of a group in one partition."""

    partition: str
    partition_id: str
    offset_lag: int
    time_lag_seconds: int
    leased: bool = False
    failing: int = 0


class GroupLag(msgspec.Struct, rename="camel", kw_only=True):
    """Lag of a group on one queue, in messages and seconds."""

    consumer_group: str
    queue_name: str
    condition: str = ""
    """As `GroupEntry.condition`."""
    state: str
    partition_count: int
    partitions_with_lag: int
    offset_lag: int
    time_lag_seconds: int
    estimated: bool = False
    partitions: list[PartitionLag]


class SeekPreview(msgspec.Struct, rename="camel", kw_only=True):
    """What a seek would do."""

    consumer_group: str
    queue_name: str
    partition_name: str | None = None
    partitions: int
    skipped: int
    """Messages that would not be delivered any more."""
    replayed: int
    """Messages that would be delivered again."""
    estimated: bool = False


class ListedMessage(msgspec.Struct, rename="camel", kw_only=True):
    """A message in a listing, without its payload."""

    id: str
    transaction_id: str
    partition_id: str
    queue: str
    partition: str
    status: str
    trace_id: str | None = None
    producer_sub: str | None = None
    created_at: datetime
    lease_expires_at: datetime | None = None


class MessagePage(msgspec.Struct, rename="camel", kw_only=True):
    """A page of messages, the newest first."""

    messages: list[ListedMessage]
    next_cursor: str | None = None
    """Give it as `cursor` for the next page; None on the last."""


class DeadLetter(msgspec.Struct, rename="camel", kw_only=True):
    """A message that a group gave up on."""

    dlq_id: int
    id: str
    transaction_id: str
    partition_id: str
    queue: str | None = None
    partition: str | None = None
    consumer_group: str | None = None
    error_message: str = ""
    retry_count: int = 0
    attempts: int = 0
    data: Any = None
    headers: Any = None
    created_at: datetime
    failed_at: datetime


class DeadLetterPage(msgspec.Struct, rename="camel", kw_only=True):
    """A page of dead letters, the newest failure first."""

    messages: list[DeadLetter]
    total: int
    total_is_estimate: bool = False


class Redrive(msgspec.Struct, rename="camel", kw_only=True):
    """Work of putting many dead letters back."""

    id: str
    state: Literal["running", "done", "cancelled", "failed"]
    total: int
    moved: int
    duplicates: int = 0
    error: str | None = None


class Trace(msgspec.Struct, kw_only=True):
    """An event noted about a message."""

    id: str
    event_type: str
    data: Any = None
    consumer_group: str | None = None
    worker_id: str | None = None
    created_at: str
    trace_names: list[str] = msgspec.field(default_factory=list[str])


class FiledTrace(Trace, kw_only=True):
    """An event found by one of its names, with what it is about."""

    transaction_id: str
    partition_id: str
    queue_name: str | None = None
    partition_name: str | None = None
    message_payload: Any = None


class ScheduledMessage(msgspec.Struct, rename="camel", kw_only=True):
    """A message that waits for its time."""

    id: str
    queue: str
    partition: str
    transaction_id: str
    deliver_at: datetime
    created_at: datetime


class TimerChange(msgspec.Struct, rename="camel", kw_only=True):
    """What became of a timer; false if there was none to cancel."""

    ok: bool
    status: Literal["scheduled", "rescheduled", "cancelled", "absent"]
    txn: str | None
    """The transaction id of its message."""
    deliver_at: datetime | None

    def __bool__(self) -> bool:
        return self.ok


class Timer(msgspec.Struct, rename="camel", kw_only=True):
    """A timer that waits."""

    queue: str
    timer_key: str
    partition: str
    txn: str
    """The transaction id of its message."""
    deliver_at: datetime
    created_at: datetime
    updated_at: datetime


class TimerDetail(Timer, kw_only=True):
    """A timer with its payload."""

    payload: msgspec.Raw
    """JSON; of an encrypted timer the base64 of its ciphertext, as a string."""
    encrypted: bool


class TimerPage(msgspec.Struct, rename="camel", kw_only=True):
    """Timers of a queue, in the order of their keys."""

    rows: list[Timer]
    next_after: str | None
    """`after` of the next page; None on the last one."""


class LockHolder(msgspec.Struct, rename="camel", kw_only=True):
    """Who holds a permit of a lock."""

    slot: int
    owner: str | None
    token: int = 0
    """This and the rest: where it was asked who holds it."""
    since: datetime | None = None
    expires_at: datetime | None = None
    renewed_at: datetime | None = None


class LockResult(msgspec.Struct, kw_only=True):
    """What became of an operation on a lock."""

    acquired: bool = False
    already: bool = False
    """The owner held it before; its time to live was not extended."""
    renewed: bool = False
    released: bool = False
    held: bool = False
    slot: int = 0
    token: int = 0
    guard: dict[str, Any] = {}
    holders: list[LockHolder] = []


class LockResults(msgspec.Struct):
    """What became of the operations of a call."""

    results: list[LockResult]


class Entry(msgspec.Struct, rename="camel", kw_only=True):
    """A key with its value."""

    key: str
    value: Any = None
    version: int
    """A later write has a higher one."""
    expires_at: datetime | None
    updated_at: datetime


class EntryPage(msgspec.Struct, rename="camel", kw_only=True):
    """Keys that begin with a prefix."""

    rows: list[Entry]
    next_after: str | None
    """`after` of the next page; None on the last one."""


class Changed(msgspec.Struct, kw_only=True):
    """What became of a change of a key; true if it was applied."""

    applied: bool
    reason: Literal["exists", "absent", "version", "limit", "type"] | None = None
    """Why it was not applied."""
    value: Any = None
    """Of the key now; of one that was deleted, the last."""
    version: int

    def __bool__(self) -> bool:
        return self.applied


class FetchedMessage(msgspec.Struct, rename="camel", kw_only=True):
    """A message that was read by its offset."""

    offset: int
    transaction_id: str
    payload: Any
    ts: datetime
    """When it was stored."""
    error: str | None = None
    """Why the payload is None: it is encrypted, and the broker lacks the key."""


class Fetched(msgspec.Struct, rename="camel", kw_only=True):
    """What was read of a partition."""

    records: list[FetchedMessage]
    next_offset: int = 0
    """Where to go on."""
    high_watermark: int
    """The next offset that will be given out."""
    log_start_offset: int
    """The first offset that is kept."""


class FoundOffset(msgspec.Struct, rename="camel", kw_only=True):
    """Where a time begins in a partition."""

    offset: int | None
    """Of the first message stored at that time or later; None if all are older."""
    ts: datetime | None
    """When that message was stored."""
    high_watermark: int
    """The next offset that will be given out."""
    log_start_offset: int
    """The first offset that is kept."""


class ChangedPartition(msgspec.Struct, rename="camel", kw_only=True):
    """A partition that was written."""

    name: str
    id: str
    last_offset: int
    """Of its last message; -1 if there is none."""
    log_start: int
    """The first offset that is kept."""
    last_write_at: datetime


class ChangedPartitions(msgspec.Struct, kw_only=True):
    """A page of the partitions of a queue that were written."""

    partitions: list[ChangedPartition]
    safe_time: datetime
    """Every message stored up to this time can be read, and none will appear there later: the time
    to ask with next. Of several pages, the earliest."""
    next: str | None
    """`after` of the next page; None on the last one."""


class _FetchedEntry(Fetched, kw_only=True):
    queue: str
    partition: str
    error: str | None = None


class _Entries(msgspec.Struct, Generic[T]):
    entries: list[T]


class _FoundEntry(FoundOffset, kw_only=True):
    queue: str
    error: str | None = None


class _ChangedEntry(msgspec.Struct, kw_only=True):
    queue: str
    partitions: list[ChangedPartition] = []
    next: str | None = None
    error: str | None = None


class _Changed(msgspec.Struct, rename="camel", kw_only=True):
    safe_time: datetime
    entries: list[_ChangedEntry]


_decode_fetched: Final = msgspec.json.Decoder(_Entries[_FetchedEntry]).decode
_decode_found: Final = msgspec.json.Decoder(_Entries[_FoundEntry]).decode
_decode_changed: Final = msgspec.json.Decoder(_Changed).decode


def read_fetched(body: bytes) -> Fetched:
    """Return what was read of the one partition that was asked for; raise its error."""
    (entry,) = _decode_fetched(body).entries
    if entry.error == "OFFSET_OUT_OF_RANGE":
        raise OffsetOutOfRange.of(
            f"{entry.queue}/{entry.partition}",
            high_watermark=entry.high_watermark,
            log_start_offset=entry.log_start_offset,
        )
    _raise_unknown(entry.queue, entry.error)
    return entry


def read_offset(body: bytes) -> FoundOffset:
    """Return where the one time that was asked for begins; raise its error."""
    (entry,) = _decode_found(body).entries
    _raise_unknown(entry.queue, entry.error)
    return entry


def read_changed(body: bytes) -> ChangedPartitions:
    """Return the page of the one queue that was asked about; raise its error."""
    answer = _decode_changed(body)
    (entry,) = answer.entries
    if entry.error == "BAD_CURSOR":
        raise BadRequest(f"Invalid after: it is not of a page of the queue {entry.queue}")
    _raise_unknown(entry.queue, entry.error)
    return ChangedPartitions(
        partitions=entry.partitions, safe_time=answer.safe_time, next=entry.next
    )


def _raise_unknown(queue: str, error: str | None) -> None:
    if error is not None:
        raise NotFound(f"there is no queue {queue}")


decode_results: Final = msgspec.json.Decoder(list[PushResult]).decode
