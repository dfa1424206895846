"""What is pushed: items, their transaction ids, and partitions chosen by key.

Many payloads for one partition are not made items first: all but the payload and the end of the id
is the same text then, and is put between them at once, which costs half as much.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import count, repeat
from typing import Any, Final, TypeAlias
from zlib import crc32

import msgspec

from skep.model.errors import BadRequest

Headers: TypeAlias = dict[str, str | int | float | bool | None]
PartitionRule: TypeAlias = str | Callable[[Any], str] | None
"""The name of a partition, or how to choose it by the payload; None is the partition `Default`."""

encode = msgspec.json.Encoder(decimal_format="number").encode


class Item(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """One message to push.

    The payload is anything that msgspec can encode: dicts, lists, dataclasses, structs, and
    `msgspec.Raw` for JSON that is bytes already.
    """

    queue: str
    payload: Any = None
    partition: str | None = None
    """`Default` when absent."""
    transaction_id: str | None = None
    """Made up by the client when absent, so that a repeated request stores nothing twice."""
    trace_id: str | None = None
    headers: Headers | None = None
    ttl_seconds: float | None = None
    """Not delivered any more after so many seconds."""
    deliver_at: datetime | None = None
    """Not delivered before; a time without a zone is UTC."""
    delay_seconds: float | None = None
    """Not delivered before so many seconds have passed."""


class TransactionIds:
    """Makes transaction ids that no other client makes; any thread may ask.

    A random beginning, the number of the call and the place in it, because that costs a tenth of a
    UUID. A process that was forked gets a beginning of its own: it would go on with the same
    numbers otherwise.
    """

    def __init__(self) -> None:
        self._pid = 0
        self._beginning = ""
        self._numbers: Iterator[int] = count()

    def take(self, wanted: int) -> list[str]:
        """Return so many new ids."""
        ids: list[str] = []
        while len(ids) < wanted:
            beginning = self.take_beginning()
            ids += [beginning + place for place in _PLACES[: wanted - len(ids)]]
        return ids

    def take_beginning(self) -> str:
        """Return what `PLACES` new ids begin with; a place follows."""
        if os.getpid() != self._pid:
            self._beginning = os.urandom(10).hex()
            self._pid = os.getpid()  # last: whoever sees it sees the new beginning
        return f"{self._beginning}{next(self._numbers):08x}"

    def complete(self, items: Sequence[Item]) -> None:
        """Give an id to each item that has none, and a zone to times that have none."""
        bare = [item for item in items if item.transaction_id is None]
        for item, transaction_id in zip(bare, self.take(len(bare)), strict=True):
            item.transaction_id = transaction_id
        for item in items:
            if item.deliver_at is not None and item.deliver_at.tzinfo is None:
                item.deliver_at = item.deliver_at.replace(tzinfo=UTC)


PLACES: Final = 1_000
"""Ids that begin alike."""

_PLACES: Final = [f"-{place:03x}" for place in range(PLACES)]
_UNTIL_PAYLOAD: Final = [f'{place}","payload":'.encode() for place in _PLACES]


def items_of(
    queue: str, payloads: Sequence[Any], partition: PartitionRule, ids: Sequence[str]
) -> list[Item]:
    """Make an item of each payload, with its id."""
    partitions = map(partition, payloads) if callable(partition) else repeat(partition)
    # Without a line of Python per message: this is most of what a push costs before it is sent.
    return list(map(Item, repeat(queue), payloads, partitions, ids))


def by_field(name: str) -> Callable[[Any], str]:
    """Return a partition rule: one partition per value of a field of the payload.

    await client.push_many("orders", orders, partition=by_field("customer"))
    """

    def choose(payload: Any) -> str:
        has_keys = hasattr(payload, "keys")
        try:
            return str(payload[name] if has_keys else getattr(payload, name))
        except (KeyError, AttributeError):
            raise BadRequest(f"a payload has no {name!r} to choose its partition by") from None

    return choose


def spread(key: object, partitions: int, *, prefix: str = "p") -> str:
    """Return one of so many partitions by a key: the same for equal keys, in every process.

    For keys too many to have a partition each; order holds per key all the same.
    """
    if partitions < 1:
        raise BadRequest("partitions must be at least 1")
    width = len(str(partitions - 1))
    return f"{prefix}{crc32(str(key).encode()) % partitions:0{width}d}"


def alike_body(model: Item, payloads: Sequence[Any], ids: TransactionIds) -> bytes:
    """Return the body of a push of payloads, each with an id of its own, otherwise like a model.

    Args:
        model: An item without payload and id.
        payloads: At least one.
        ids: Where the ids come from.
    """
    opening = b'},%b,"transactionId":"' % encode(model)[:-1]
    pieces: list[bytes] = []
    for begin in range(0, len(payloads), PLACES):
        encoded = list(map(encode, payloads[begin : begin + PLACES]))
        part = [opening + ids.take_beginning().encode()] * (3 * len(encoded))
        part[1::3] = _UNTIL_PAYLOAD[: len(encoded)]
        part[2::3] = encoded
        pieces += part
    pieces[0] = b'{"items":[%b' % pieces[0][2:]
    pieces.append(b"}]}")
    return b"".join(pieces)


def push_body(encoded: Sequence[bytes]) -> bytes:
    """Return the body of a push of items that are JSON already."""
    return b'{"items":[%b]}' % b",".join(encoded)
