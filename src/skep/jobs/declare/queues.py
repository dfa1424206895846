"""Consume messages of a queue inside a step's transaction: gone if and only if the step completes.

    async with ctx.complete() as connection:
        for message in await consume(connection, "orders", group="billing", type=Order):
            ...

The other direction is `skep.enqueue.stage(connection, ...)`, in the same transaction. Messages
that were consumed are locked until the transaction ends: take them at its end, not before the long
work, and `stage` rather than `push` into partitions that others use.

Expired and deleted messages are passed over. Encrypted ones need `open_envelope`, which a
`skep.model.encryption.KeyRing` has.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from skep.db.access.foreign import join
from skep.model.envelopes import Header, cut_envelope
from skep.model.errors import BadRequest, Refused
from skep.model.ids import message_id
from skep.model.limits import POP_BATCH_MAX
from skep.model.names import check_name
from skep.model.schema_name import DEFAULT_SCHEMA, schema_named

if TYPE_CHECKING:  # a bare install cannot decrypt, and need not be able to
    from skep.model.encryption import OpenEnvelope

T = TypeVar("T")

CONSUME_CALL: Final = (
    "select partition_id, partition_name, taken_from, taken_to, delivery, first, created_at, body,"
    " passed_over, counts from skep.consume_messages($1::text, $2::text, $3::integer, $4::integer)"
)
PARTITIONS_MAX: Final = 1_000
BATCH: Final = 100

_split = msgspec.json.Decoder(list[msgspec.Raw]).decode
_DELETED: Final = b"null"
_SEALED: Final = b'{"enc":'


class _Head(msgspec.Struct, rename="camel"):
    """The part of an envelope before its payload."""

    transaction_id: str
    trace_id: str | None = None
    headers: dict[str, Any] = {}
    expires_at: datetime | None = None


_head = msgspec.json.Decoder(_Head).decode


@dataclass(frozen=True, slots=True)
class QueueMessage(Generic[T]):
    """A message that was consumed."""

    id: str
    partition: str
    transaction_id: str
    payload: T
    headers: Mapping[str, Header]
    trace_id: str | None
    created_at: datetime
    delivery: int


async def consume(
    connection: object,
    queue: str,
    *,
    group: str,
    type: Any = Any,  # noqa: A002 -- as msgspec calls it
    limit: int = BATCH,
    partitions: int = 1,
    open_envelope: "OpenEnvelope | None" = None,
    schema: str = DEFAULT_SCHEMA,
) -> list[QueueMessage[Any]]:
    """Take messages in the transaction of a connection; none if there is nothing.

    Args:
        connection: `ctx.connection`, or what `ctx.complete()` gives.
        queue: whose messages.
        group: whose place in the queue moves on; a new one begins with the oldest message.
        type: of the payloads, as msgspec decodes them.
        limit: messages at most.
        partitions: partitions at most; within one the order is kept.
        open_envelope: opens encrypted messages.
        schema: of the installation.

    Raises:
        NoTransaction, UnknownConnection: it cannot be joined.
        BadRequest: a name or number is wrong, or a payload is not of the type.
        Refused: a message is encrypted, and there is no key.
    """
    _check(queue, group, limit, partitions)
    rows = await join(connection, schema_named(schema)).fetch(
        CONSUME_CALL, queue, group, limit, partitions
    )
    decoder = msgspec.json.Decoder(type)
    return [message for row in rows for message in _messages(row, decoder, open_envelope)]


def _check(queue: str, group: str, limit: int, partitions: int) -> None:
    check_name("queue", queue)
    check_name("group", group)
    if not 1 <= limit <= POP_BATCH_MAX:
        raise BadRequest(f"invalid limit {limit}: use 1 to {POP_BATCH_MAX}")
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise BadRequest(f"invalid partitions {partitions}: use 1 to {PARTITIONS_MAX}")


def _messages(
    row: Any, decoder: Any, open_envelope: "OpenEnvelope | None"
) -> Iterator[QueueMessage[Any]]:
    (partition_id, partition, taken_from, taken_to, delivery, first, created_at, body, passed,
     counts) = row  # fmt: skip
    for offset, envelope in enumerate(_split(body), first):
        text = bytes(envelope)
        if not taken_from < offset <= taken_to or offset in (passed or ()) or text == _DELETED:
            continue
        head, payload = _read(text, open_envelope)
        if head.expires_at is not None and head.expires_at <= datetime.now(UTC):
            continue
        yield QueueMessage(
            id=message_id(partition_id, offset),
            partition=partition,
            transaction_id=head.transaction_id,
            payload=_decode(decoder, payload),
            headers=head.headers,
            trace_id=head.trace_id,
            created_at=created_at,
            delivery=_delivery_of(offset, counts) or delivery,
        )


def _delivery_of(offset: int, counts: list[int] | None) -> int | None:
    """Return how often a message was delivered, if those of its partition differ."""
    runs = zip((counts or ())[::3], (counts or ())[1::3], strict=True)
    return next((deliveries for upto, deliveries in runs if upto >= offset), None)


def _read(envelope: bytes, open_envelope: "OpenEnvelope | None") -> tuple[_Head, bytes]:
    """Cut an envelope where its payload begins; open it first if it is sealed."""
    if envelope.startswith(_SEALED):
        if open_envelope is None:
            raise Refused("the message is encrypted: pass open_envelope to consume")
        envelope = open_envelope(envelope)
    head, payload = cut_envelope(envelope)
    return _head(head + b"}"), payload


def _decode(decoder: Any, payload: bytes) -> Any:
    try:
        return decoder.decode(payload)
    except msgspec.MsgspecError as error:
        raise BadRequest(f"the payload of a message is not of the type: {error}") from error
