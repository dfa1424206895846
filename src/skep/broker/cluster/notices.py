"""The notices that instances send each other, and their signatures.

A notice carries hints (queues that may have something to read) and changes (what to read again from
the database), never content: a forged or replayed one can only cause a query.

On the wire every notice has a stamp (sender, number, time) and a MAC over stamp and content.
`NoticeSigner` makes and checks MACs, `ReplayGuard` judges stamps; both are pure. A datagram is

    version 1 | sender 16 | number 8 | milliseconds 8 | MAC 32 | content in MessagePack

and a request carries the same fields in a header, with its content as JSON.
"""

import hmac
import struct
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import Enum
from hashlib import sha256
from itertools import islice
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

VERSION: Final = 1
MAC_BYTES: Final = 32
SENDER_BYTES: Final = 16
INSTANCE_BYTES: Final = 8
"""The first half of a sender names its instance, the second its process."""

DATAGRAM_BYTES_MAX: Final = 1_200
"""Fits into one packet on every network; what is fragmented is lost more often."""

WAKES_PER_DATAGRAM: Final = 90
CHANGES_PER_DATAGRAM: Final = 16
TOPIC_PATTERN: Final = "^[a-z_]{1,32}$"

FRESH_MS: Final = 30_000
"""How far the clocks of two instances may differ before they refuse each other's notices."""

WINDOW: Final = 1_024
"""Numbers of a sender that may arrive out of order."""

SENDERS_MAX: Final = 1_024

_STAMP: Final = struct.Struct(">B16sQQ")
_HEAD_BYTES: Final = _STAMP.size + MAC_BYTES
_UINT32_MAX: Final = 0xFFFF_FFFF

_Each = TypeVar("_Each")
_Number = Annotated[int, Meta(ge=0, le=_UINT32_MAX)]


class Change(msgspec.Struct, frozen=True, array_like=True):
    """What to read again: a topic, and an id of it or 0 for all."""

    topic: Annotated[str, Meta(pattern=TOPIC_PATTERN)]
    id: _Number = 0


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one process sends. `wake` holds pairs of queue id and number of partitions."""

    wake: tuple[tuple[_Number, _Number], ...] = ()
    changed: tuple[Change, ...] = ()


class Stamp(NamedTuple):
    """The sender of a notice, its sequence number, and when it was sent."""

    sender: bytes
    number: int
    sent_at_ms: int

    @property
    def instance(self) -> bytes:
        """The instance that the sender belongs to."""
        return self.sender[:INSTANCE_BYTES]


class Verdict(Enum):
    """What becomes of a notice that arrived."""

    TAKEN = "taken"
    OWN = "own"
    GARBAGE = "garbage"
    FORGED = "forged"
    STALE = "stale"
    REPLAYED = "replayed"
    UNSIGNED = "unsigned"


class Sealed(NamedTuple):
    """A notice as it arrived, before it is verified."""

    stamp: Stamp
    mac: bytes
    content: bytes


class NoticeSigner:
    """Makes and checks MACs with a shared secret; without one, MACs are zero and prove nothing."""

    def __init__(self, secret: str | None, *, channel: bytes) -> None:
        """Take the secret, and what keeps the notices of one channel out of another."""
        self._key: Final = sha256(b"skep peers\0" + secret.encode()).digest() if secret else None
        self._channel: Final = channel

    def mac(self, stamp: Stamp, content: bytes) -> bytes:
        """Return the MAC of a notice."""
        if self._key is None:
            return bytes(MAC_BYTES)
        signed = self._channel + _STAMP.pack(VERSION, *stamp) + content
        return hmac.digest(self._key, signed, "sha256")

    def is_genuine(self, sealed: Sealed) -> bool:
        """Whether a notice was made with our secret, or we have none to ask for."""
        if self._key is None:
            return True
        return hmac.compare_digest(self.mac(sealed.stamp, sealed.content), sealed.mac)


class ReplayGuard:
    """Accepts every notice of a sender once, and none that is old."""

    def __init__(self) -> None:
        self._seen: Final[OrderedDict[bytes, tuple[int, int]]] = OrderedDict()
        """By sender: the highest number, and a bit for each of the numbers below it."""

    def judge(self, stamp: Stamp, now_ms: int) -> Verdict:
        """Judge whether a notice is new, and remember it if it is."""
        if abs(now_ms - stamp.sent_at_ms) > FRESH_MS:
            return Verdict.STALE
        highest, seen = self._seen.pop(stamp.sender, (stamp.number, 0))
        lead = stamp.number - highest
        if lead > 0:
            seen = (seen << lead) & ((1 << WINDOW) - 1) if lead < WINDOW else 0
            highest, lead = stamp.number, 0
        bit = 1 << -lead if -lead < WINDOW else 0
        is_new = bool(bit) and not seen & bit
        self._seen[stamp.sender] = (highest, seen | bit)
        if len(self._seen) > SENDERS_MAX:
            self._seen.popitem(last=False)
        return Verdict.TAKEN if is_new else Verdict.REPLAYED


_datagram_decoder: Final = msgspec.msgpack.Decoder(Notice)
_request_decoder: Final = msgspec.json.Decoder(Notice)


def pack_datagram(stamp: Stamp, notice: Notice, signer: NoticeSigner) -> bytes:
    """Return a notice as one datagram; `split_notices` makes notices that fit."""
    content = msgspec.msgpack.encode(notice)
    return _STAMP.pack(VERSION, *stamp) + signer.mac(stamp, content) + content


def unpack_datagram(data: bytes) -> Sealed | None:
    """Cut a datagram into its parts; None when it cannot be one of ours."""
    if not _HEAD_BYTES <= len(data) <= DATAGRAM_BYTES_MAX or data[0] != VERSION:
        return None
    _, sender, number, sent_at_ms = _STAMP.unpack_from(data)
    stamp = Stamp(sender, number, sent_at_ms)
    return Sealed(stamp, data[_STAMP.size : _HEAD_BYTES], data[_HEAD_BYTES:])


def read_datagram(content: bytes) -> Notice | None:
    """Read the content of a datagram; None when it is not a notice."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        return _datagram_decoder.decode(content)
    return None


def read_request(content: bytes) -> Notice | None:
    """Read the body of a request; None when it is not a notice."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        return _request_decoder.decode(content)
    return None


def split_notices(
    wake: Sequence[tuple[int, int]], changed: Sequence[Change], *, wakes_max: int, changes_max: int
) -> Iterator[Notice]:
    """Split hints and changes into notices of a bounded size, changes first."""
    for part in _parts(changed, changes_max):
        yield Notice(changed=part)
    for pairs in _parts(wake, wakes_max):
        yield Notice(wake=tuple((queue_id, min(count, _UINT32_MAX)) for queue_id, count in pairs))


def _parts(items: Sequence[_Each], size: int) -> Iterator[tuple[_Each, ...]]:
    rest = iter(items)
    while part := tuple(islice(rest, size)):
        yield part


def spell_stamp(stamp: Stamp, mac: bytes) -> str:
    """Return stamp and MAC as the value of a header."""
    fields = (str(VERSION), stamp.sender.hex(), str(stamp.number), str(stamp.sent_at_ms), mac.hex())
    return ".".join(fields)


def parse_stamp(header: str, content: bytes) -> Sealed | None:
    """Read what `spell_stamp` wrote; None when it is something else."""
    try:
        version, sender, number, sent_at_ms, mac = header.split(".")
        stamp = Stamp(bytes.fromhex(sender), int(number), int(sent_at_ms))
        sealed = Sealed(stamp, bytes.fromhex(mac), content)
    except ValueError:
        return None
    is_sized = len(stamp.sender) == SENDER_BYTES and len(sealed.mac) == MAC_BYTES
    is_counted = 0 <= stamp.number < 1 << 64 and 0 <= stamp.sent_at_ms < 1 << 64
    return sealed if version == str(VERSION) and is_sized and is_counted else None
