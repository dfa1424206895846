"""Decode pushed items, and note what a strict broker or queue refuses in them.

Queen's protocol ignores unknown fields and stores null where there is no payload, so a misspelt
payload is lost without a word. Items are decoded exactly at first, which costs nothing where they
are well formed. Only a body that is not is decoded again, tolerantly; the items to blame become
`LoosePushItem`s, and are counted.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import GenericAlias
from typing import Any, Final, TypeAlias

import msgspec

from skep.model.errors import BadRequest
from skep.model.stream_wire import CycleBody
from skep.model.wire import (
    PUSH_FIELDS,
    LoosePushItem,
    PushBody,
    PushItem,
    TransactionAck,
    TransactionBody,
    TransactionOperation,
    TransactionPush,
    flat_item,
)
from skep.server.hot.decoding import decode_body
from skep.telemetry.meters import Meters

_Members: TypeAlias = Mapping[str, msgspec.Raw]


class _PushMembers(msgspec.Struct, gc=False):
    """A push whose items are not typed."""

    items: list[dict[str, msgspec.Raw]]


class _TransactionMembers(msgspec.Struct, gc=False):
    """A transaction whose operations are not typed."""

    operations: list[dict[str, msgspec.Raw]]


class _CycleMembers(msgspec.Struct, gc=False):
    """A stream cycle whose items are not typed."""

    push_items: list[dict[str, msgspec.Raw]] | None = None


def _exact(base: type[msgspec.Struct], name: str, *kind_and_default: Any, **config: Any) -> Any:
    """Return a struct like `base` with another type, and another default or none, of one field."""
    return msgspec.defstruct(
        f"Exact{base.__name__}",
        [(name, *kind_and_default)],
        bases=(base,),
        kw_only=True,
        gc=False,
        **config,
    )


_ExactItem: Final = _exact(PushItem, "payload", msgspec.Raw, forbid_unknown_fields=True)
_ExactItems: Final = GenericAlias(list, (_ExactItem,))
_ExactOperation: Final = _exact(
    TransactionPush, "items", _ExactItems | None, None, tag="push", forbid_unknown_fields=True
)
_ExactOperations: Final = GenericAlias(list, (_ExactOperation | TransactionAck,))

_EXACT_PUSH: Final[msgspec.json.Decoder[PushBody]] = msgspec.json.Decoder(
    _exact(PushBody, "items", _ExactItems)
)
_PUSH: Final = msgspec.json.Decoder(PushBody)
_PUSH_MEMBERS: Final = msgspec.json.Decoder(_PushMembers)
_EXACT_TRANSACTION: Final[msgspec.json.Decoder[TransactionBody]] = msgspec.json.Decoder(
    _exact(TransactionBody, "operations", _ExactOperations)
)
_TRANSACTION: Final = msgspec.json.Decoder(TransactionBody)
_TRANSACTION_MEMBERS: Final = msgspec.json.Decoder(_TransactionMembers)
_EXACT_CYCLE: Final[msgspec.json.Decoder[CycleBody]] = msgspec.json.Decoder(
    _exact(CycleBody, "push_items", _ExactItems | None, None)
)
_CYCLE: Final = msgspec.json.Decoder(CycleBody)
_CYCLE_MEMBERS: Final = msgspec.json.Decoder(_CycleMembers)
_ITEMS: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])

_ITEM_WORDS: Final = {
    "queue": "Queue must be a string",
    "partition": "Partition must be a string",
    "transactionId": "TransactionId must be a string",
    "traceId": "TraceId must be a string",
}
_PUSH_WORDS: Final = {
    ".items": "items array is required",
    **{f".items[].{name}": text for name, text in _ITEM_WORDS.items()},
}
TRANSACTION_WORDS: Final = {
    ".operations": "operations array required",
    ".operations[].type": "the type of an operation is push or ack",
    ".operations[].transactionId": "an ack needs a transactionId",
    ".operations[].partitionId": "an ack needs a partitionId to ensure message uniqueness",
    ".operations[].items[].queue": "Queue must be a string",
    ".requiredLeases": "requiredLeases must be an array of lease ids",
}

_FLAT_FIELDS: Final = frozenset(
    {"type", *(each.encode_name for each in msgspec.structs.fields(TransactionPush))}
)


@dataclass(frozen=True, slots=True, eq=False)
class ItemDecoder:
    """Decodes pushes, transactions and stream cycles."""

    meters: Meters
    is_strict: bool
    """Whether loose items are refused whatever their queues say."""

    def push(self, body: bytes) -> Sequence[PushItem]:
        """Decode the body of a push."""
        try:
            if body.isascii():  # nothing else is left to check
                return _EXACT_PUSH.decode(body).items
            return decode_body(_EXACT_PUSH, body, {}).items
        except (BadRequest, msgspec.DecodeError, RecursionError):
            items = decode_body(_PUSH, body, _PUSH_WORDS).items
        self._loosen(items, _PUSH_MEMBERS.decode(body).items)
        return items

    def transaction(self, body: bytes) -> TransactionBody:
        """Decode the body of a transaction, which may be the array of its operations alone."""
        if body.lstrip()[:1] == b"[":
            body = b'{"operations":%b}' % body
        try:
            exact = decode_body(_EXACT_TRANSACTION, body, {})
        except BadRequest:
            decoded = decode_body(_TRANSACTION, body, TRANSACTION_WORDS)
        else:
            if not any(map(_lacks_payload, exact.operations)):
                return exact
            decoded = exact
        for operation, members in zip(
            decoded.operations, _TRANSACTION_MEMBERS.decode(body).operations, strict=True
        ):
            if isinstance(operation, TransactionAck):
                continue
            if operation.items is not None:
                self._loosen(operation.items, _ITEMS.decode(members["items"]))
            elif operation.queue is not None:
                item = flat_item(operation)
                unknown = members.keys() - _FLAT_FIELDS
                operation.items = [self._loose(item, unknown, _lacks_payload(operation))]
        return decoded

    def cycle(self, body: bytes, wording: dict[str, str]) -> CycleBody:
        """Decode the body of a stream cycle."""
        try:
            return decode_body(_EXACT_CYCLE, body, {})
        except BadRequest:
            decoded = decode_body(_CYCLE, body, wording)
        self._loosen(decoded.push_items or [], _CYCLE_MEMBERS.decode(body).push_items or ())
        return decoded

    def _loosen(self, items: list[PushItem], all_members: Sequence[_Members]) -> None:
        """Mark the items that have unknown fields or no payload."""
        for position, members in enumerate(all_members):
            unknown, lacks_payload = members.keys() - PUSH_FIELDS, "payload" not in members
            if unknown or lacks_payload:
                items[position] = self._loose(items[position], unknown, lacks_payload)

    def _loose(self, item: PushItem, unknown: Collection[str], lacks_payload: bool) -> PushItem:
        if not unknown and not lacks_payload:
            return item
        self.meters.unknown_fields += len(unknown)
        self.meters.missing_payloads += lacks_payload
        loose = LoosePushItem(
            *msgspec.structs.astuple(item), unknown=sorted(unknown), is_refused=self.is_strict
        )
        # The push's inner loop has no time to look at what is loose; that of options has.
        loose.headers = item.headers or {}
        return loose


def _lacks_payload(operation: TransactionOperation) -> bool:
    """Whether an operation is a flat push without a payload."""
    if isinstance(operation, TransactionAck) or operation.items is not None:
        return False
    return operation.payload is msgspec.UNSET and operation.data is msgspec.UNSET
