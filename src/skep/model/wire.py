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
