"""The shapes of the hot requests, as Queen's clients send them.

Payloads stay raw: they are checked to be JSON, sliced out and stored as they came. Fields a client
sends beyond these are ignored, because newer clients add some.
"""

import msgspec

JSON_NULL = msgspec.Raw(b"null")

QUEUE_MODE = "__QUEUE_MODE__"
"""The consumer group of those who name none: competing consumers with one cursor."""

DEFAULT_PARTITION = "Default"


class PushItem(msgspec.Struct, rename="camel", gc=False):
    """One message to store."""

    queue: str
    partition: str | None = None
    payload: msgspec.Raw = JSON_NULL
    transaction_id: str | None = None
    trace_id: str | None = None
    headers: dict[str, str | int | float | bool | None] | None = None
    ttl_seconds: float | None = None
    deliver_at: str | None = None
    delay_seconds: float | None = None


class PushBody(msgspec.Struct, gc=False):
    """Body of `POST /api/v1/push`."""

    items: list[PushItem]


class AckItem(msgspec.Struct, rename="camel", gc=False):
    """What a consumer did with one message."""

    transaction_id: str
    partition_id: str
    status: str | None = None
    error: str | None = None
    lease_id: str | None = None
    consumer_group: str | None = None


class AckBatchBody(msgspec.Struct, rename="camel", gc=False):
    """Body of `POST /api/v1/ack/batch`. Its group stands over those of the items."""

    acknowledgments: list[AckItem]
    consumer_group: str | None = None


class ExtendBody(msgspec.Struct, gc=False):
    """Body of `POST /api/v1/lease/{leaseId}/extend`."""

    seconds: int | None = None


class TransactionPush(msgspec.Struct, rename="camel", tag_field="type", tag="push", gc=False):
    """Messages to store if everything else succeeds: many as items, or one spelled flat."""

    items: list[PushItem] | None = None
    queue: str | None = None
    partition: str | None = None
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """What older clients call the payload."""
    transaction_id: str | None = None
    trace_id: str | None = None


class TransactionAck(msgspec.Struct, rename="camel", tag_field="type", tag="ack", gc=False):
    """A message to acknowledge if everything else succeeds."""

    transaction_id: str
    partition_id: str
    status: str | None = None
    error: str | None = None
    lease_id: str | None = None
    consumer_group: str | None = None


class TransactionBody(msgspec.Struct, rename="camel", gc=False):
    """Body of `POST /api/v1/transaction`.

    `kv` and `timers` are decoded to be refused: to ignore the condition a bundle depends on would
    commit what its client did not ask for.
    """

    operations: list[TransactionPush | TransactionAck]
    required_leases: list[str] | None = None
    kv: list[msgspec.Raw] | None = None
    timers: list[msgspec.Raw] | None = None
