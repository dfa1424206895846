"""Payloads as rows of a typed table: a value for each column, and the rest with the reason why.

A member of a payload goes into the column made for it, as long as the value is of its kind. All
else is kept as JSON in `rest`: members without a column and values that do not fit, of which
`misfit` says why. So a row loses nothing, and the payload itself is beside it as it was sent.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from typing import Annotated, Any, Final, TypedDict

import msgspec
from msgspec import Meta

from skep.spark.decode.typed_columns import (
    MISFIT,
    REST,
    Column,
    Columns,
    Kind,
    ListKind,
    StructKind,
)

_typed_dict: Final[Any] = TypedDict  # made from a kind, not from a declaration
_REASON_CHARS_MAX: Final = 1_000


def _integer(bits: int) -> Any:
    return Annotated[int, Meta(ge=-(1 << (bits - 1)), le=(1 << (bits - 1)) - 1)]


_SIMPLE: Final[dict[str, Any]] = {
    "boolean": bool,
    "int": _integer(32),
    "long": _integer(64),
    "double": float,
    "string": str,
    "date": date,
    "timestamp": Annotated[datetime, Meta(tz=True)],
}

Decode = Callable[[msgspec.Raw], Any]


class TypedRows:
    """Turns payloads into columns."""

    def __init__(self, columns: Columns) -> None:
        self._names: Final = [each.name for each in columns]
        self._decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
        self._places: Final = _places_by_member(columns)
        self._former: Final = self._places.keys() - {each.members[0] for each in columns}

    def columns(self, payloads: Iterable[bytes | None]) -> dict[str, list[Any]]:
        """Return the values of each column; None for a payload stands for one that is sealed."""
        rows = [self._row(each) for each in payloads]
        names = (*self._names, REST, MISFIT)
        return {name: [row.get(name) for row in rows] for name in names}

    def _row(self, payload: bytes | None) -> dict[str, Any]:
        if payload is None:
            return {MISFIT: "the payload is encrypted"}
        try:
            members = self._decode(payload)
        except ValueError as error:
            return {REST: payload.decode(), MISFIT: _shortened(f"the payload: {error}")}
        row: dict[str, Any] = {}
        rest: list[tuple[str, msgspec.Raw]] = []
        reasons: list[str] = []
        # What has a former name gives way to what has the present one.
        for member, value in sorted(members.items(), key=lambda each: each[0] in self._former):
            reason = self._put(row, member, value)
            if reason is not None:
                rest.append((member, value))
                reasons += [f"{member}: {reason}"] if reason else []
        if rest:
            row[REST] = _spelled(rest)
            row[MISFIT] = _shortened("; ".join(reasons)) if reasons else None
        return row

    def _put(self, row: dict[str, Any], member: str, value: msgspec.Raw) -> str | None:
        """Put a member into its column; return why that cannot be, empty if it has none."""
        reason = ""
        for name, decode in self._places.get(member, ()):
            if name in row:
                continue
            try:
                decoded = decode(value)
            except ValueError as error:
                reason = reason or str(error)
                continue
            if decoded is not None:
                row[name] = decoded
            return None
        return reason


def _places_by_member(columns: Columns) -> dict[str, list[tuple[str, Decode]]]:
    """Return the columns for each member: those of the present schema, and present names, first."""

    def rank(column: Column, member: str) -> tuple[bool, bool]:
        return column.members[0] != member, not column.is_current

    members = {member for column in columns for member in column.members}
    return {
        member: [
            (each.name, _decoder(each.kind))
            for each in sorted(columns, key=lambda column: rank(column, member))
            if member in each.members
        ]
        for member in members
    }


def _decoder(kind: Kind) -> Decode:
    decode: Decode = msgspec.json.Decoder(_python_type(kind)).decode
    if kind in ("int", "long"):
        return lambda value: _whole(value, decode)
    if not _has_json(kind):
        return decode
    return lambda value: _with_texts(decode(value), kind)


def _python_type(kind: Kind) -> Any:
    if kind == "json":
        return msgspec.Raw  # of null as well
    if isinstance(kind, ListKind):
        return list[_python_type(kind.element)] | None
    if isinstance(kind, StructKind):
        members = {name: _python_type(each) for name, each in kind.members}
        return _typed_dict("Members", members, total=False) | None
    return _SIMPLE[kind] | None


def _whole(value: msgspec.Raw, decode: Decode) -> Any:
    """Decode a whole number, which JSON may spell as 1.0 or 1e3."""
    try:
        return decode(value)
    except ValueError:
        number = msgspec.json.decode(value)
        if not isinstance(number, float) or not number.is_integer():
            raise
        return decode(msgspec.Raw(str(int(number)).encode()))


def _has_json(kind: Kind) -> bool:
    if isinstance(kind, ListKind):
        return _has_json(kind.element)
    if isinstance(kind, StructKind):
        return any(_has_json(each) for _, each in kind.members)
    return kind == "json"


def _with_texts(value: Any, kind: Kind) -> Any:
    """Return a decoded value with texts instead of the parts that are kept as JSON."""
    if value is None:
        return None
    if isinstance(kind, ListKind):
        return [_with_texts(each, kind.element) for each in value]
    if isinstance(kind, StructKind):
        kinds = dict(kind.members)
        return {name: _with_texts(each, kinds[name]) for name, each in value.items()}
    if kind != "json":
        return value
    return None if bytes(value) == b"null" else bytes(value).decode()


def _spelled(members: Sequence[tuple[str, msgspec.Raw]]) -> str:
    """Return members as a JSON object, their values as they were sent."""
    spelled = (f"{json.dumps(name)}:{bytes(value).decode()}" for name, value in members)
    return f"{{{','.join(spelled)}}}"


def _shortened(reason: str) -> str:
    return reason if len(reason) <= _REASON_CHARS_MAX else f"{reason[:_REASON_CHARS_MAX]}..."
