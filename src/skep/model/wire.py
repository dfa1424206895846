"""The shapes of the hot requests, as Queen's clients send them.

Payloads stay raw: they are checked to be JSON, sliced out and stored as they came. Fields a client
sends beyond these are ignored, because newer clients add some.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final, TypeAlias

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
    message_id: str | None = None
    """The transaction id of an item that has none."""
    namespace: str | None = None
    """Of the queue, if this item creates it; so is `task`."""
    task: str | None = None


class LoosePushItem(PushItem, gc=False):
    """One message to store that has unknown fields or no payload. It is never decoded."""

    unknown: Sequence[str] = ()
    is_refused: bool = False
    """Whether it is refused although its queue is not strict."""

    @property
    def refusal(self) -> str:
        """Why it is refused where only exact items are taken."""
        if not self.unknown:
            return "payload is missing; send null if there is none"
        names = ", ".join(f"`{name[:40]}`" for name in self.unknown[:5])
        if len(self.unknown) > 1:
            return f"unknown fields {names}"
        nearest = get_close_matches(self.unknown[0][:40], PUSH_FIELDS, n=1)
        return f"unknown field {names}" + (f"; did you mean `{nearest[0]}`?" if nearest else "")


PUSH_FIELDS: Final = frozenset(each.encode_name for each in msgspec.structs.fields(PushItem))
"""The names of an item's fields on the wire."""


class PushBody(msgspec.Struct, gc=False):
    """Body of `POST /api/v1/push`."""

    items: list[PushItem]


class AckItem(msgspec.Struct, rename="camel", gc=False):
    """What a consumer did with one message.

    `messageId` names it, or else `partitionId` with `offset`, or else `partitionId` with
    `transactionId`: the newest unacknowledged message under the lease with that id.
    """

    transaction_id: str | None = None
    partition_id: str | None = None
    status: str | None = None
    error: str | None = None
    lease_id: str | None = None
    consumer_group: str | None = None
    message_id: str | None = None
    id: str | None = None
    """The same as `messageId`: the name it has in a delivered message."""
    offset: int | None = None


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
    message_id: str | None = None
    namespace: str | None = None
    task: str | None = None


class TransactionAck(AckItem, rename="camel", tag_field="type", tag="ack", gc=False):
    """A message to acknowledge if everything else succeeds."""


TransactionOperation: TypeAlias = TransactionPush | TransactionAck


class TransactionBody(msgspec.Struct, rename="camel", gc=False):
    """Body of `POST /api/v1/transaction`. It may also be the array of operations alone.

    `timers` and `positions` are decoded to be refused: to ignore what a bundle depends on would
    commit what its client did not ask for.
    """

    operations: list[TransactionOperation]
    required_leases: list[str] | None = None
    kv: list[msgspec.Raw] | None = None
    timers: list[msgspec.Raw] | None = None
    positions: list[msgspec.Raw] | None = None


def flat_item(operation: TransactionPush) -> PushItem:
    """Return the item of a push that is spelled flat."""
    payload = operation.data if operation.payload is msgspec.UNSET else operation.payload
    return PushItem(
        operation.queue or "",
        operation.partition,
        JSON_NULL if isinstance(payload, msgspec.UnsetType) else payload,
        operation.transaction_id,
        operation.trace_id,
        message_id=operation.message_id,
        namespace=operation.namespace,
        task=operation.task,
    )
