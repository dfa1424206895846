"""What is pushed: items, their transaction ids, partitions chosen by key, and buffered items. Pure.

Many payloads for one partition are not made items first: all but the payload and the end of the id
is the same text then, and joining the pieces costs half as much.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final, TypeAlias
from zlib import crc32

import msgspec

from skep.model.errors import BadRequest
from skep.model.limits import PUSH_ITEMS_MAX

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
    """Expires after so many seconds."""
    deliver_at: datetime | None = None
    """Not delivered before; a time without a zone is UTC."""
    delay_seconds: float | None = None
    """Not delivered before so many seconds have passed."""


class TransactionIds:
    """Makes transaction ids that no other client makes; from any thread.

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
            self._pid = os.getpid()  # last: a thread that sees it sees the new beginning
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


def by_field(name: str) -> Callable[[Any], str]:
    """Return a partition rule: one partition per value of a field of the payload.

    await client.push_many("orders", orders, partition=by_field("customer"))
    """

    def choose(payload: Any) -> str:
        has_keys = hasattr(payload, "keys")
        try:
            return str(payload[name] if has_keys else getattr(payload, name))
        except (KeyError, AttributeError):
            raise BadRequest(f"cannot choose a partition: a payload has no {name!r}") from None

    return choose


def spread(key: object, partitions: int, *, prefix: str = "p") -> str:
    """Return one of so many partitions by a key: the same for equal keys, in every process.

    For keys too many to have a partition each; order holds per key all the same.
    """
    if partitions < 1:
        raise BadRequest(f"invalid partitions {partitions!r}: use at least 1")
    width = len(str(partitions - 1))
    return f"{prefix}{crc32(str(key).encode()) % partitions:0{width}d}"


def alike_body(model: Item, payloads: Sequence[Any], ids: TransactionIds) -> bytes:
    """Return the body of a push of payloads, each with an id of its own, otherwise like a model.

    The model has no payload and no id; there is at least one payload.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferLimits:
    """When buffered items are sent.

    Args:
        count: The most items of one request, which is sent as soon as it has so many.
        bytes: The same for their size.
        age_s: No item waits longer, unless the broker does not answer.
        backlog_bytes: A push waits for room while so much is buffered: the broker is down, or
            slower than the producer.
    """

    count: int = 500
    bytes: int = 1 << 20
    age_s: float = 0.05
    backlog_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        if not 1 <= self.count <= PUSH_ITEMS_MAX:
            raise BadRequest(f"invalid count {self.count!r}: use 1 to {PUSH_ITEMS_MAX}")
        if self.bytes < 1 or self.age_s < 0 or self.backlog_bytes < self.bytes:
            raise BadRequest(
                "invalid buffer limits: use bytes of at least 1, age_s of at least 0 and "
                "backlog_bytes of at least bytes"
            )


class Outbox:
    """Encoded items in the order in which they came, and when they are sent.

    That is when there are enough of them, when they are large enough together, or when the oldest
    has waited long enough; the oldest first, so that order within a partition is kept.
    """

    __slots__ = ("_bytes", "_limits", "_waiting")

    def __init__(self, limits: BufferLimits) -> None:
        self._limits: Final = limits
        self._waiting: Final[deque[tuple[float, bytes]]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def has_room(self) -> bool:
        """Whether another item may be added now."""
        return self._bytes < self._limits.backlog_bytes

    def add(self, item: bytes, now_s: float) -> None:
        """Add an item at the end."""
        self._waiting.append((now_s, item))
        self._bytes += len(item)

    def due_in_s(self, now_s: float) -> float | None:
        """Return when the next request is due; 0 is now, None means that nothing waits."""
        if not self._waiting:
            return None
        if len(self._waiting) >= self._limits.count or self._bytes >= self._limits.bytes:
            return 0.0
        return max(self._waiting[0][0] + self._limits.age_s - now_s, 0.0)

    def take(self) -> list[bytes]:
        """Remove and return the oldest items, as many as one request may carry; one at least."""
        taken: list[bytes] = []
        size = 0
        while self._waiting and len(taken) < self._limits.count:
            item = self._waiting[0][1]
            if taken and size + len(item) > self._limits.bytes:
                break
            self._waiting.popleft()
            taken.append(item)
            size += len(item)
        self._bytes -= size
        return taken
