"""Shapes of the wire that only the API document and tests need.

The broker writes its hot answers as bytes and never builds such objects. Push results keep Queen's
snake case, everything else is camel case. Requests that carry payloads have a shape of their own
because the decoders' types leave these raw, and JSON Schema has no word for a raw default.
"""

from typing import Any, Literal

import msgspec

from skep.model import wire
from skep.model.stream_wire import CycleAck


class PushItem(wire.PushItem):
    """One message to store."""

    payload: Any = None
    """Any JSON; it is stored and delivered byte for byte."""


class PushBody(msgspec.Struct):
    """The messages of one push; they may go to many queues."""

    items: list[PushItem]


class PushResult(msgspec.Struct, kw_only=True):
    """What became of one pushed item; results come in the order of the items."""

    index: int
    transaction_id: str
    status: Literal["queued", "duplicate", "scheduled", "buffered", "failed"]
    message_id: str | None = None
    """Of a duplicate: the id of the message that was first."""
    partition_id: str | None = None
    trace_id: str | None = None
    queue_name: str = msgspec.field(name="queueName")
    error: str | None = None
    scheduled_id: str | None = msgspec.field(default=None, name="scheduledId")
    """By which a message for later is shown and cancelled."""
    deliver_at: str | None = msgspec.field(default=None, name="deliverAt")
    queue: str | None = None
    """Of a message that is buffered on disk, because the database is away or in maintenance."""
    partition: str | None = None
    transaction_name: str | None = msgspec.field(default=None, name="transactionId")


class PoppedMessage(msgspec.Struct, rename="camel", kw_only=True):
    """One delivered message."""

    id: str
    transaction_id: str
    trace_id: str | None
    data: Any
    """The payload, byte for byte as it was pushed."""
    producer_sub: str | None
    created_at: str
    queue: str
    partition: str
    partition_id: str
    lease_id: str
    """Empty when the message was acknowledged on delivery."""
    consumer_group: str
    delivery_attempt: int
    """How often the message was delivered, this time included."""
    retry_count: int
    """How often it failed."""


class AutopilotChoice(msgspec.Struct, rename="camel"):
    """What the broker chose for a poll that left it to it."""

    partitions: int
    batch: int
    wait_ms: int


class PopAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """The messages of one pop. One lease covers all partitions they come from."""

    success: bool
    queue: str
    partition: str
    """The first partition; each message names its own."""
    partition_id: str | None
    lease_id: str | None
    consumer_group: str
    partitions_claimed: int = 0
    conflation: bool = False
    """Only the newest message of each partition is delivered to this group."""
    conflation_conflict: bool = False
    """The group was set up to do otherwise than this poll asked."""
    autopilot: AutopilotChoice | None = None
    """Only for polls with `autopilot`."""
    messages: list[PoppedMessage]


class AckResult(msgspec.Struct, rename="camel", kw_only=True):
    """What became of one acknowledgment."""

    index: int
    transaction_id: str | None
    success: bool
    error: str | None
    queue_name: str | None
    partition_name: str | None
    lease_released: bool | None
    dlq: bool
    noop: bool = False
    """The message was completed before; nothing changed."""
    dropped: bool = False
    """It was given up, and its queue keeps no dead letters."""
    redelivered: bool = False
    """Completed, but above a message that failed: it will come again."""
    message_id: str | None = None
    """As it was sent, if there was no transaction id."""
    code: str | None = None
    """`bad_request` if an id is malformed."""


class LeaseAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """The lease after an extension. The expiry has a name for each generation of clients."""

    index: int = 0
    lease_id: str
    success: bool
    error: str | None
    expires_at: str | None
    new_expires_at: str | None
    lease_expires_at: str | None = msgspec.field(name="lease_expires_at")


class TransactionPush(msgspec.Struct, rename="camel", tag_field="type", tag="push"):
    """Messages to store if everything else succeeds: many as items, or one spelled flat."""

    items: list[PushItem] | None = None
    queue: str | None = None
    partition: str | None = None
    payload: Any = None
    data: Any = None
    """What older clients call the payload."""
    transaction_id: str | None = None
    trace_id: str | None = None
    message_id: str | None = None
    namespace: str | None = None
    task: str | None = None


class TransactionBody(msgspec.Struct, rename="camel"):
    """Operations that happen together, and the leases that must still be held."""

    operations: list[TransactionPush | wire.TransactionAck]
    """May be empty if there are keys."""
    required_leases: list[str] | None = None
    kv: list["KvOperation"] | None = None
    """Up to 64 operations on keys, without getPrefix."""


class TransactionResult(msgspec.Struct, rename="camel", kw_only=True):
    """What became of one operation of a transaction."""

    index: int
    type: Literal["push", "ack", "kv"]
    """The result of an operation on keys has the members of `KvResult`, and `opIndex`."""
    success: bool | None = None
    transaction_id: str | None = None
    op_index: int | None = None
    message_id: str | None = None
    partition_id: str | None = None
    queue_name: str | None = None
    status: Literal["queued", "duplicate"] | None = None
    """Of a push. The id of a duplicate is that of the message that was first."""
    error: str | None = None
    dlq: bool = False
    noop: bool = False
    redelivered: bool = False
    """Completed, but above a message that failed in the same transaction."""


class TransactionAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """All of it happened, or nothing."""

    transaction_id: str
    success: bool
    error: str | None = None
    ok: bool | None = None
    """False if a required operation on keys was not applied; then those below say which and why."""
    reason: Literal["kv_precondition"] | None = None
    failed_index: int | None = None
    kv_reason: str | None = None
    version: int | None = None
    value: Any = None
    results: list[TransactionResult]


class TraceBody(msgspec.Struct, rename="camel", kw_only=True):
    """What happened to a message."""

    transaction_id: str
    """Transaction id or message id."""
    partition_id: str
    data: Any
    """Any JSON; it is shown byte for byte."""
    consumer_group: str | None = None
    event_type: str | None = None
    """`info` when absent."""
    trace_names: list[str] | None = None
    worker_id: str | None = None


class StateChange(msgspec.Struct):
    """A change of one state row of a stream."""

    type: Literal["upsert", "delete"]
    key: str
    value: Any = None
    version: int | None = None
    """The version the row must have, as `state/get` told it; 0 if it must not exist."""


class CycleBody(msgspec.Struct):
    """One cycle of a stream: all of it happens, or nothing."""

    query_id: str
    partition_id: str
    consumer_group: str | None = None
    release_lease: bool = True
    release_delay_ms: int = 0
    """What is not acknowledged is served again after this time."""
    state_ops: list[StateChange] | None = None
    push_items: list[PushItem] | None = None
    ack: CycleAck | None = None


class ErrorAnswer(msgspec.Struct, rename="camel"):
    """Why a whole request failed."""

    error: str
    """For people."""
    code: str
    """For programs; stable."""
    queue_depth: int | msgspec.UnsetType = msgspec.UNSET
    """Of an overload: how many requests, operations or messages wait where there is no room."""


class RefusalAnswer(msgspec.Struct):
    """Why a call on keys or timers failed. Their clients read `error` as a code."""

    error: str
    """The same as `code`."""
    code: str
    """For programs; stable."""
    reason: str
    """A finer code."""
    detail: str
    """For people."""


class KvOperation(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """One operation of a call on keys."""

    op: Literal["get", "getMany", "getPrefix", "put", "putIfAbsent", "delete", "incr", "check"]
    ns: str
    """Namespace."""
    key: str | None = None
    keys: list[str] | None = None
    """Of getMany."""
    value: Any = None
    """Of a put: any JSON up to 64 KiB, also null."""
    ttl_seconds: int | None = None
    """Of put, putIfAbsent and incr: either this or `forever`."""
    forever: bool = False
    expect: int | None = None
    """The version the key must have; 0: it must not exist. Not for incr."""
    required: bool = False
    """If it is not applied, nothing of the call is."""
    delta: float | None = None
    """Of incr."""
    min: float | None = None
    max: float | None = None
    prefix: str | None = None
    """Of getPrefix."""
    after: str | None = None
    limit: int = 100
    keys_only: bool = False


class KvBody(msgspec.Struct):
    """A call on keys: one commit."""

    operations: list[KvOperation]


class KvRow(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A key that getMany or getPrefix found."""

    key: str
    value: Any = None
    version: int
    expires_at: str | None
    updated_at: str


class KvResult(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What became of an operation; which members there are depends on it."""

    index: int
    op: str
    found: bool | None = None
    """Of a get."""
    applied: bool | None = None
    """Of what changes or checks a key."""
    reason: Literal["exists", "absent", "version", "limit", "type"] | None = None
    """Why it was not applied."""
    key: str | None = None
    value: Any = None
    version: int | None = None
    """Of the key now; of one that was deleted, the last."""
    expires_at: str | None = None
    updated_at: str | None = None
    rows: list[KvRow] | None = None
    missing: list[str] | None = None
    truncated: bool | None = None
    next_after: str | None = None


class KvAnswer(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """The results of a call on keys, or which required operation undid it."""

    results: list[KvResult]
    """One per operation, in their order."""
    ok: bool | None = None
    """False if the call was undone."""
    reason: Literal["kv_precondition"] | None = None
    failed_index: int | None = None
    kv_reason: str | None = None
    version: int | None = None
    value: Any = None


class FetchedRecord(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A message."""

    offset: int
    transaction_id: str
    payload: Any
    ts: str
    """When it was stored."""
    error: str | None = None
    """Why the payload is null: it is encrypted, and this broker lacks the key."""


class FetchedEntry(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What was read of a partition."""

    queue: str
    partition: str
    records: list[FetchedRecord]
    high_watermark: int
    """The next offset that will be given out."""
    log_start_offset: int
    """The first offset that is kept."""
    next_offset: int | None = None
    """Where to go on."""
    error: Literal["UNKNOWN_TOPIC_OR_PARTITION", "OFFSET_OUT_OF_RANGE"] | None = None
    """There is no such queue; or the offset is below `logStartOffset` or above `highWatermark`."""


class FetchAnswer(msgspec.Struct):
    """What was read."""

    entries: list[FetchedEntry]


class LockOperation(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """One operation of a call on locks."""

    op: Literal["acquire", "renew", "release", "get"]
    name: str
    ttl_seconds: int | None = None
    """Of acquire and renew: how long it is held unless it is renewed."""
    owner: str | None = None
    """Who holds it; an owner that asks again gets its permit again."""
    limit: int = 1
    """Of acquire: how many permits there are."""
    wait_ms: int = 0
    """Of acquire: how long to wait in line."""
    token: int | None = None
    """Of renew and release: as the last acquire or renew answered."""
    slot: int = 0


class LocksBody(msgspec.Struct):
    """A call on locks."""

    operations: list[LockOperation]


class LockHolder(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Who holds a permit."""

    slot: int
    owner: str | None
    token: int | None = None
    """This and the rest: of a get."""
    since: str | None = None
    expires_at: str | None = None
    renewed_at: str | None = None


class LockResult(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What became of an operation; which members there are depends on it."""

    index: int
    op: str
    name: str
    acquired: bool | None = None
    renewed: bool | None = None
    released: bool | None = None
    held: bool | None = None
    reason: Literal["held", "contended", "lost"] | None = None
    slot: int | None = None
    token: int | None = None
    """The fencing token: later ones of a permit are higher."""
    owner: str | None = None
    already: bool | None = None
    """The owner held it before."""
    guard: Any = None
    """An operation on keys that undoes its call unless the permit is still held."""
    holders: list[LockHolder] | None = None


class LocksAnswer(msgspec.Struct):
    """The results of a call on locks, in the order of its operations."""

    results: list[LockResult]


class KvPathPut(msgspec.Struct, rename="camel", kw_only=True):
    """A value for the key in the path; either `ttlSeconds` or `forever`."""

    value: Any
    ttl_seconds: int | None = None
    forever: bool = False
    expect: int | None = None


class KvPathDelete(msgspec.Struct, kw_only=True):
    """A condition for deleting the key in the path."""

    expect: int | None = None
