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
    required_leases: list[str] | None = None


class TransactionResult(msgspec.Struct, rename="camel", kw_only=True):
    """What became of one operation of a transaction."""

    index: int
    type: Literal["push", "ack"]
    success: bool
    transaction_id: str
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
