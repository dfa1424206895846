"""Items made of lines: what each line of a push becomes, and under which transaction id.

The ids of a file are made of its content and the number of the line: the same file brings the same
messages however often it is pushed, another file brings others, and equal lines stay apart.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from skep.client import Item
from skep.client.pushes import Headers
from skep.model.errors import BadRequest

REQUEST_BYTES_MAX: Final = 4 << 20
_DIGEST_BYTES: Final = 12
_READ_BYTES: Final = 1 << 20

_check_json: Final = msgspec.json.Decoder(msgspec.Raw).decode
_decode: Final = msgspec.json.Decoder().decode


class Line(NamedTuple):
    """One line as it was read."""

    number: int
    text: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines that are pushed by one request, and those that cannot be pushed at all."""

    lines: list[Line]
    items: list[Item]
    refused: list[tuple[Line, str]]
    """With the reason."""
    size: int
    """Bytes read for it, blank lines included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemPattern:
    """What all items of a push have in common, and what they take from their payloads."""

    queue: str
    partition: str | None = None
    partition_key: str | None = None
    """The field of the payload that names the partition; `a.b` is field b of field a."""
    id_prefix: str | None = None
    """What transaction ids begin with; the number of the line follows."""
    id_field: str | None = None
    """The field of the payload that is the transaction id."""
    headers: Headers | None = None
    delay_s: float | None = None
    ttl_s: float | None = None
    is_text: bool = False
    """Whether lines are texts rather than JSON."""

    def make(self, line: Line) -> Item:
        """Return the item of a line.

        Raises:
            BadRequest: The line is no JSON, or lacks a field.
        """
        raw = msgspec.json.encode(line.text.decode()) if self.is_text else line.text
        partition, transaction_id = self.partition, None
        if self.partition_key is None and self.id_field is None:
            _check(raw)
        else:
            payload = _decoded(raw)
            if self.partition_key is not None:
                partition = _field(payload, self.partition_key)
            if self.id_field is not None:
                transaction_id = _field(payload, self.id_field)
        if self.id_prefix is not None:
            transaction_id = f"{self.id_prefix}-{line.number}"
        return Item(
            self.queue,
            msgspec.Raw(raw),
            partition,
            transaction_id,
            headers=self.headers,
            ttl_seconds=self.ttl_s,
            delay_seconds=self.delay_s,
        )


@dataclass(slots=True)
class _Gathering:
    lines: list[Line] = field(default_factory=list[Line])
    items: list[Item] = field(default_factory=list[Item])
    refused: list[tuple[Line, str]] = field(default_factory=list[tuple[Line, str]])
    size: int = 0

    def add(self, line: Line, pattern: ItemPattern) -> None:
        try:
            item = pattern.make(line)
        except BadRequest as error:
            self.refused.append((line, error.message))
        else:
            self.lines.append(line)
            self.items.append(item)

    def ready(self) -> Batch:
        return Batch(self.lines, self.items, self.refused, self.size)


def batches_of(lines: Iterable[bytes], pattern: ItemPattern, count_max: int) -> Iterator[Batch]:
    """Gather lines for requests of at most so many items; blank lines bring none."""
    gathering = _Gathering()
    for number, read in enumerate(lines, 1):
        gathering.size += len(read)
        text = read.strip()
        if text:
            gathering.add(Line(number, text), pattern)
        if len(gathering.items) >= count_max or gathering.size >= REQUEST_BYTES_MAX:
            yield gathering.ready()
            gathering = _Gathering()
    if gathering.size:
        yield gathering.ready()


def digest_of(file: Path) -> str:
    """Return what the content of a file is known by."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    with file.open("rb") as source:
        while part := source.read(_READ_BYTES):
            digest.update(part)
    return digest.hexdigest()


def _check(raw: bytes) -> None:
    try:
        _check_json(raw)
    except msgspec.DecodeError as error:
        raise BadRequest(f"not JSON: {error}") from None


def _decoded(raw: bytes) -> Any:
    try:
        return _decode(raw)
    except msgspec.DecodeError as error:
        raise BadRequest(f"not JSON: {error}") from None


def _field(payload: Any, path: str) -> str:
    value: Any = payload
    for name in path.split("."):
        value = value.get(name) if hasattr(value, "get") else None
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        raise BadRequest(f"the field {path} has no text or number")
    return str(value)
