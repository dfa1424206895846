"""The format of a spill file: how a message is written, and what can be read back. Pure.

    file     magic, file id, base, checksum of the three; then records without anything between
    record   mark, length of the body, checksum of the body, body (msgpack)

Positions are those of the log as a whole: `base` is where a file begins in it. The checksum of a
record is seeded with the file's id. So a record is told from damage, from a torn end, and from
bytes of a payload that look like a record: clients do not know the id.

`scan` never gives up at damage. It looks for the next record that is whole, and says which bytes
lie between; a record is never so large that it is dropped for its size.
"""

import struct
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

import msgspec
import xxhash

_MAGIC: Final = b"SKEPSPL1"
_FILE_HEAD: Final = struct.Struct("<8s16sQ")
_CHECKSUM: Final = struct.Struct("<Q")
FILE_HEAD_BYTES: Final = _FILE_HEAD.size + _CHECKSUM.size

_MARK: Final = b"\xa7\x00rc"
_RECORD_HEAD: Final = struct.Struct("<4sIQ")
RECORD_HEAD_BYTES: Final = _RECORD_HEAD.size


class SpillRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A message on disk. Its transaction id is in the envelope."""

    queue: str
    partition: str
    envelope: bytes
    """As it is stored in PostgreSQL, except that it is always sealed where there is a key."""
    deliver_at: float | None = None
    """Seconds since 1970, for a scheduled message."""
    known_to: int | None = None
    """A call that may have stored it was lost: then it lies above this offset of its partition."""
    nonce: int | None = None
    """Of a scheduled message that such a call may have stored."""
    namespace: str | None = None
    """With `task`: of its queue, should the drain create it. New fields go last, with a default: so
    files are read that an earlier or a later release wrote."""
    task: str | None = None

    @property
    def address(self) -> tuple[str, str]:
        """The names of its queue and partition."""
        return self.queue, self.partition


class FileHead(NamedTuple):
    """The first bytes of a file."""

    file_id: UUID
    base: int


class Found(NamedTuple):
    """A whole record, and where it lies in the scanned bytes."""

    start: int
    end: int
    record: SpillRecord


class Damaged(NamedTuple):
    """Bytes that are no record."""

    start: int
    end: int


Piece: TypeAlias = Found | Damaged

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(SpillRecord)


def encode_file_head(head: FileHead) -> bytes:
    """Encode the first bytes of a file."""
    fields = _FILE_HEAD.pack(_MAGIC, head.file_id.bytes, head.base)
    return fields + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(fields))


def decode_file_head(data: bytes) -> FileHead | None:
    """Decode the first bytes of a file; None when they are not those of a spill file."""
    if len(data) < FILE_HEAD_BYTES:
        return None
    fields, checksum = data[: _FILE_HEAD.size], data[_FILE_HEAD.size : FILE_HEAD_BYTES]
    magic, file_id, base = _FILE_HEAD.unpack(fields)
    if magic != _MAGIC or _CHECKSUM.unpack(checksum)[0] != xxhash.xxh3_64_intdigest(fields):
        return None
    return FileHead(UUID(bytes=file_id), base)


def encode_body(record: SpillRecord) -> bytes:
    """Encode a record without its frame; the same in every file."""
    return _encoder.encode(record)


def frame(body: bytes, file_id: UUID) -> bytes:
    """Frame a body as a record of a file."""
    return _RECORD_HEAD.pack(_MARK, len(body), _checksum(body, file_id)) + body


def scan(data: bytes, file_id: UUID, *, is_all: bool) -> list[Piece]:
    """Read the records from the start of `data`, in order and without a gap between the pieces.

    Args:
        data: Bytes of a file, from the start of a record on.
        file_id: The file's.
        is_all: Nothing follows. Otherwise what may go on beyond `data` is left out; when not even
            the first piece is whole, the caller has to come back with more.
    """
    pieces: list[Piece] = []
    at = 0
    while at < len(data):
        found = _record_at(data, at, file_id)
        if isinstance(found, Found):
            pieces.append(found)
            at = found.end
            continue
        if found is _CUT_OFF and not is_all:
            break
        after = _next_record(data, at + 1, file_id, is_all=is_all)
        if after is None:
            break
        pieces.append(Damaged(at, after))
        at = after
    return pieces


class _Unreadable:
    """Why there is no record at a place."""


_CUT_OFF: Final = _Unreadable()
_NONE: Final = _Unreadable()


def _record_at(data: bytes, at: int, file_id: UUID) -> Found | _Unreadable:
    begin = at + RECORD_HEAD_BYTES
    if begin > len(data):
        return _CUT_OFF if _MARK.startswith(data[at : at + len(_MARK)]) else _NONE
    mark, length, checksum = _RECORD_HEAD.unpack_from(data, at)
    if mark != _MARK:
        return _NONE
    end = begin + length
    if end > len(data):
        return _CUT_OFF
    body = data[begin:end]
    if _checksum(body, file_id) != checksum:
        return _NONE
    try:
        return Found(at, end, _decoder.decode(body))
    except msgspec.MsgspecError:
        return _NONE


def _next_record(data: bytes, start: int, file_id: UUID, *, is_all: bool) -> int | None:
    """Return where the damage ends; None when more bytes are needed to tell."""
    at = data.find(_MARK, start)
    while at >= 0:
        found = _record_at(data, at, file_id)
        if isinstance(found, Found):
            return at
        if found is _CUT_OFF and not is_all:
            return None
        at = data.find(_MARK, at + 1)
    return len(data) if is_all else None


def _checksum(body: bytes, file_id: UUID) -> int:
    return xxhash.xxh3_64_intdigest(body, file_id.int & 0xFFFF_FFFF_FFFF_FFFF)
