"""Which messages by what is in them: a header, and a value or a text in the payload.

A condition is a path with an operator and a value, `$.customer.id = 7`, or a path alone, which
must then exist. `=` and `!=` take any JSON, or text without quotes; `7` equals the number and the
string. `<`, `<=`, `>` and `>=` compare numbers with numbers and strings with strings, `~` looks for
a part of a string. Instead of a condition a payload may have to contain a text, as it was sent.
"""

import operator
import re
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from skep.broker.messages import stored_message as stored
from skep.model.encryption import OpenEnvelope
from skep.model.errors import BadRequest, SkepError

_STEP: Final = re.compile(r"\.(?P<name>[\w-]+)|\[(?P<index>\d+)\]|\[\"(?P<quoted>[^\"]+)\"\]")
_CONDITION: Final = re.compile(
    r"\$(?P<path>[^\s=!<>~]*)\s*(?:(?P<sign>=|!=|<=|>=|<|>|~)\s*(?P<text>.+))?", re.DOTALL
)
_HEADER: Final = re.compile(r"(?P<name>[^=]+?)\s*(?:=\s*(?P<text>.*))?", re.DOTALL)
_ABSENT: Final = object()
_COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Condition(msgspec.Struct, frozen=True):
    """What the value at a path must be."""

    path: tuple[str | int, ...]
    sign: str | None = None
    text: str = ""

    def holds(self, value: object) -> bool:
        """Decide about a decoded JSON value."""
        for step in self.path:
            value = _member(value, step)
        if value is _ABSENT or self.sign is None:
            return value is not _ABSENT
        wanted = _read_value(self.text)
        if self.sign in ("=", "!="):
            # Numbers only when both are: to Python true is 1.
            is_same = value == wanted and isinstance(value, bool) == isinstance(wanted, bool)
            return (is_same or value == self.text) == (self.sign == "=")
        if self.sign == "~":
            return isinstance(value, str) and str(wanted) in value
        return _are_comparable(value, wanted) and _COMPARED[self.sign](value, wanted)


class Contents(msgspec.Struct, frozen=True):
    """What must be in a message."""

    header: Condition | None = None
    payload: Condition | str | None = None

    @classmethod
    def parse(cls, header: str | None, payload: str | None) -> "Contents | None":
        """Read what a client asks for; None if it asks for nothing."""
        if not header and not payload:
            return None
        return cls(_parse_header(header) if header else None, _parse_payload(payload or ""))

    def are_in(self, envelope: bytes, open_envelope: OpenEnvelope = stored.leave_as_it_is) -> bool:
        """Decide about a message as it is stored or delivered; what cannot be read has none."""
        if self.header is not None:
            headers = stored.read_head(envelope).headers
            if not self.header.holds(msgspec.json.decode(headers)):
                return False
        if self.payload is None:
            return True
        try:
            data = stored.read_envelope(open_envelope(envelope)).data
            if isinstance(self.payload, str):
                return self.payload.encode() in bytes(data)
            return self.payload.holds(msgspec.json.decode(data))
        except (SkepError, msgspec.DecodeError, RecursionError):
            return False


def _parse_header(text: str) -> Condition:
    read = _HEADER.fullmatch(text.strip())
    if read is None:
        raise BadRequest(f"Invalid header: {text[:100]!r}. Use name=value, or a name.")
    sign = None if read["text"] is None else "="
    return Condition((read["name"],), sign, read["text"] or "")


def _parse_payload(text: str) -> Condition | str | None:
    wanted = text.strip()
    if not wanted.startswith("$"):
        return wanted or None
    read = _CONDITION.fullmatch(wanted)
    steps = [] if read is None else list(_STEP.finditer(read["path"]))
    if read is None or "".join(step[0] for step in steps) != read["path"]:
        raise BadRequest(
            f"Invalid payload: {wanted[:100]!r}. Use a condition such as $.customer.id = 7, "
            "or a text."
        )
    path = [
        int(step["index"]) if step["index"] else step["name"] or step["quoted"] for step in steps
    ]
    return Condition(tuple(path), read["sign"], read["text"] or "")


def _member(value: object, step: str | int) -> object:
    if isinstance(value, dict) and isinstance(step, str):
        return cast("dict[str, object]", value).get(step, _ABSENT)
    if isinstance(value, list) and isinstance(step, int):
        return next(iter(cast("list[object]", value)[step : step + 1]), _ABSENT)
    return _ABSENT


def _read_value(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _are_comparable(value: object, wanted: object) -> bool:
    if isinstance(value, bool) or isinstance(wanted, bool):
        return False
    return isinstance(value, str) == isinstance(wanted, str) and all(
        isinstance(each, str | int | float) for each in (value, wanted)
    )
