"""Read and rewrite envelopes: messages as the log stores them.

An envelope is JSON with the payload as its last member, `data`, which is never looked into. Marks
in front of the others tell that the payload is encrypted (`enc`) or that the message expires
(`expiresAt`). Pushing and delivering do not come here: they splice bytes.
"""

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

import msgspec

from skep.model.errors import BadRequest, NotFound, Refused
from skep.model.ids import message_id, parse_address, parse_partition_uuid, partition_uuid
from skep.model.wire import JSON_NULL

SealEnvelope: TypeAlias = Callable[[bytes], bytes]
"""Returns an envelope with its payload encrypted."""

Status: TypeAlias = Literal["pending", "processing", "completed", "dead_letter"]
"""The state of a message across the groups of its queue, as `message_standing` decides it."""

_ENCRYPTED: Final = b'{"enc":'
_DATA: Final = b',"data":'
_MARKS: Final = ("enc", "expiresAt", "transactionId")
_encode = msgspec.json.encode


class Envelope(msgspec.Struct, rename="camel", frozen=True):
    """What an envelope says. `headers` and `data` are as the producer sent them."""

    transaction_id: str
    trace_id: str | None = None
    producer_sub: str | None = None
    headers: msgspec.Raw = JSON_NULL
    data: msgspec.Raw = JSON_NULL


class MessageAddress(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Which message it is."""

    id: str
    transaction_id: str
    partition_id: str
    queue_path: str
    queue: str
    partition: str


def address_members(partition_id: int, offset: int, queue: str, partition: str) -> dict[str, Any]:
    """Return the members of `MessageAddress` but for the transaction id."""
    return {
        "id": message_id(partition_id, offset),
        "partition_id": partition_uuid(partition_id),
        "queue_path": f"{queue}/{partition}",
        "queue": queue,
        "partition": partition,
    }


def named_partition(text: str) -> int:
    """Return the partition that a route names by its id; one that is not ours does not exist."""
    partition_id = parse_partition_uuid(text)
    if partition_id is not None:
        return partition_id
    try:
        UUID(text)
    except ValueError:
        raise BadRequest(
            f"Invalid partition_id: {text[:100]!r}. Use the partitionId of a message."
        ) from None
    raise NotFound("Partition not found")


def offset_in(partition_id: int, text: str) -> int | None:
    """Return the offset when the text is the id of a message in this partition."""
    address = parse_address(text)
    return address[1] or None if address is not None and address[0] == partition_id else None


_envelope_decoder: Final = msgspec.json.Decoder(Envelope)
_member_decoder: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_envelope(envelope: bytes | str) -> Envelope:
    """Decode an envelope, or the head of one."""
    return _envelope_decoder.decode(envelope)


def read_head(envelope: bytes) -> Envelope:
    """Decode an envelope without its data, which may be large."""
    return read_envelope(envelope.partition(_DATA)[0] + b"}")


def is_encrypted(envelope: bytes) -> bool:
    """Whether the payload is encrypted."""
    return envelope.startswith(_ENCRYPTED)


def with_transaction_id(envelope: bytes, transaction_id: str) -> bytes:
    """Return an unencrypted envelope with another transaction id, and without an expiry."""
    members = _member_decoder.decode(envelope)
    kept = [
        b"%b:%b" % (_encode(name), bytes(value))
        for name, value in members.items()
        if name not in _MARKS
    ]
    return b'{"transactionId":%b,%b}' % (_encode(transaction_id), b",".join(kept))


def leave_as_it_is(envelope: bytes) -> bytes:
    """Open nothing, where nothing is encrypted."""
    return envelope


def refuse_to_seal(envelope: bytes) -> bytes:
    """Stand in for encryption where there is no key.

    Raises:
        Refused: Always: storing in clear what should be encrypted would be worse.
    """
    del envelope
    raise Refused("the queue's messages are encrypted and this broker has no key")
