"""The layout of a stored message, in one place for every path that is not the push's inner loop.

An envelope is a JSON object in a fixed order of members:

    {["enc":key id,]["expiresAt":time,]"transactionId":..,"traceId":..,"producerSub":..,
     ["headers":{..},]"data":payload}

The data is always last and begins at the first `,"data":`, so that SQL can cut an envelope without
looking into the payload. What stands before it must not contain these characters: strings escape
their quotes, and headers are written with a space behind each comma.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from skep.model.errors import BadRequest, Defect
from skep.model.limits import HEADERS_BYTES_MAX, HEADERS_MAX, TTL_SECONDS_MAX
from skep.model.wire import LoosePushItem

DATA_MARK: Final = b',"data":'
"""Where the head of an envelope ends and its payload begins."""

# For who spells many messages at once, those with neither trace nor producer: id mark, id, untraced
# mark, headers mark and headers if there are any, data mark, payload, closing brace.
ID_MARK: Final = b'{"transactionId":'
UNTRACED_MARK: Final = b',"traceId":null,"producerSub":null'
HEADERS_MARK: Final = b',"headers":'
HEADER_SEPARATOR: Final = b", "
"""The space keeps a header named "data" from looking like the beginning of the payload."""

SEGMENT_BYTES_MAX: Final = 8_000
"""Bytes of a segment's body and keys, unless it holds a single message: with its other columns it
just fits on a page of PostgreSQL. A pop of one message reads a whole segment."""

_MESSAGE_BYTES: Final = 16 + 1
"""What a message adds to its envelope: its key, and a comma or bracket."""

Header: TypeAlias = str | int | float | bool | None

_encode = msgspec.json.encode


class LooseEnvelope(bytes):
    """The envelope of an item that a strict queue refuses, until its rules were applied."""

    item: LoosePushItem


def build_envelope(
    transaction_id: str,
    payload: bytes,
    *,
    trace_id: str | None = None,
    producer: str | None = None,
    headers: Mapping[str, Header] | None = None,
    expires_at: datetime | None = None,
    encryption_key_id: str | None = None,
) -> bytes:
    """Spell a message as it is stored.

    Args:
        transaction_id: As checked by `skep.model.names`.
        payload: JSON, as it was sent; of an encrypted message the base64 of its ciphertext.
        trace_id: As returned by `checked_trace_id`.
        producer: Who sent it, if known.
        headers: Names to scalars.
        expires_at: When it stops being worth delivering; it must have a time zone.
        encryption_key_id: The key the payload is encrypted with; None for a payload in clear.
    """
    marks = b""
    if encryption_key_id is not None:
        marks += b'"enc":%b,' % _encode(encryption_key_id)
        payload = b'"%b"' % payload
    if expires_at is not None:
        marks += b'"expiresAt":%b,' % _encode(_utc_text(expires_at))
    return b'{%b"transactionId":%b,"traceId":%b,"producerSub":%b,%b"data":%b}' % (
        marks,
        _encode(transaction_id),
        _encode(trace_id),
        _encode(producer),
        b'"headers":%b,' % _spell_headers(headers) if headers else b"",
        payload,
    )


class Segments(NamedTuple):
    """The messages of several partitions as they are stored; see `skep.row_spans`."""

    bodies: list[bytes]
    row_to: list[int] | None
    """Per partition, how many bodies there are up to its last; None where each has one."""
    row_end: list[int] | None
    """Per body, how many messages of its partition lie in it and before it."""


def join_segments(partitions: Iterable[Sequence[bytes]]) -> Segments:
    """Join the envelopes of each partition to segments of a size."""
    bodies: list[bytes] = []
    row_to: list[int] = []
    row_end: list[int] = []
    for envelopes in partitions:
        count = len(envelopes)
        size = sum(map(len, envelopes)) + count * _MESSAGE_BYTES
        if size <= SEGMENT_BYTES_MAX or count == 1:
            bodies.append(b"[%b]" % b",".join(envelopes))
            row_end.append(count)
        else:
            low = 0
            for high in _segment_ends(envelopes):
                bodies.append(b"[%b]" % b",".join(envelopes[low:high]))
                row_end.append(high)
                low = high
        row_to.append(len(bodies))
    if len(bodies) == len(row_to):
        return Segments(bodies, None, None)
    return Segments(bodies, row_to, row_end)


def _segment_ends(envelopes: Sequence[bytes]) -> list[int]:
    """Return behind which messages segments end: each takes as many as fit, at least one."""
    sizes = list(accumulate(len(envelope) + _MESSAGE_BYTES for envelope in envelopes))
    ends: list[int] = []
    low = taken = 0
    while low < len(sizes):
        low = max(bisect_right(sizes, taken + SEGMENT_BYTES_MAX, low), low + 1)
        taken = sizes[low - 1]
        ends.append(low)
    return ends


def cut_envelope(envelope: bytes) -> tuple[bytes, bytes]:
    """Return what stands before the payload, a JSON object once it is closed, and the payload."""
    head, mark, rest = envelope.partition(DATA_MARK)
    if not mark:
        raise Defect("An envelope has no data.")
    return head, rest[:-1]


def checked_trace_id(text: str | None) -> str | None:
    """Return a trace id in its canonical spelling; an empty one is none."""
    if not text:
        return None
    try:
        return str(UUID(text))
    except ValueError:
        raise BadRequest("traceId must be a UUID") from None


def check_headers(headers: Mapping[str, Header] | None) -> Mapping[str, Header] | None:
    """Return the headers of an item if there are not too many."""
    if not headers:
        return None
    if len(headers) > HEADERS_MAX:
        raise BadRequest(f"more than {HEADERS_MAX} headers")
    if len(_encode(headers)) > HEADERS_BYTES_MAX:
        raise BadRequest(f"headers are larger than {HEADERS_BYTES_MAX} bytes")
    return headers


def end_of_life(ttl_seconds: float | None, birth: datetime) -> datetime | None:
    """Return when a message expires that is to be delivered from `birth` on."""
    if ttl_seconds is None:
        return None
    if not 0 < ttl_seconds <= TTL_SECONDS_MAX:
        raise BadRequest(f"ttlSeconds must be above 0 and at most {TTL_SECONDS_MAX}")
    return birth + timedelta(seconds=ttl_seconds)


def _spell_headers(headers: Mapping[str, Header]) -> bytes:
    members = [b"%b:%b" % (_encode(name), _encode(value)) for name, value in headers.items()]
    return b"{%b}" % HEADER_SEPARATOR.join(members)


def _utc_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
