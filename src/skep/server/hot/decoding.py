"""Decode request bodies and parameters of URLs, with clear errors."""

import re
from typing import Final, TypeVar
from uuid import UUID

import msgspec

from skep.broker.directory import Subscription
from skep.broker.timestamps import parse_moment
from skep.model.errors import BadRequest
from skep.model.wire import QUEUE_MODE

T = TypeVar("T")

_SURROGATE: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB])"
    rb"\\u[dD][c-fC-F]"
)


def decode_body(decoder: msgspec.json.Decoder[T], body: bytes, wording: dict[str, str]) -> T:
    """Decode a JSON body; `wording` has Queen's error texts, by the path of their field."""
    if not body:
        raise BadRequest("the request body is empty; send a JSON object")
    if not body.isascii():
        _check_utf8(body)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise BadRequest(_worded(str(error), wording)) from error
    except msgspec.DecodeError as error:
        if _SURROGATE.search(body):
            text = "the body is not valid JSON: it escapes half of a surrogate pair"
            raise BadRequest(text) from error
        raise BadRequest(f"the body is not valid JSON: {error}") from error
    except RecursionError as error:
        raise BadRequest("the body is nested too deeply") from error


def _check_utf8(body: bytes) -> None:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not valid UTF-8 (byte {error.start})") from error


_MISSING: Final = re.compile(r"missing required field `(\w+)`")
_PATH: Final = re.compile(r"at `\$([^`]*)`")
_INDEX: Final = re.compile(r"\[\d+\]|\[\.\.\.\]")


def _worded(text: str, wording: dict[str, str]) -> str:
    """Prefer Queen's text for the field of an error."""
    path_found = _PATH.search(text)
    path = _INDEX.sub("[]", path_found[1]) if path_found else ""
    missing = _MISSING.search(text)
    if missing:
        path = f"{path}.{missing[1]}"
    known = wording.get(path)
    return f"{known} ({text})" if known else text


_FLAGS: Final = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}


def read_flag(name: str, text: str) -> bool:
    """Read a flag of a URL, in any case."""
    flag = _FLAGS.get(text)
    if flag is None:
        flag = _FLAGS.get(text.lower())
    if flag is None:
        raise invalid(name, text, "true or false")
    return flag


def read_uuid(name: str, text: str) -> UUID:
    """Read a UUID in a URL."""
    try:
        return UUID(text)
    except ValueError:
        raise invalid(name, text, "a UUID") from None


ID_MAX: Final = 2**62


def read_number(name: str, text: str) -> int:
    """Read an id in a URL that is a number."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(ID_MAX))
    if not is_number or not 1 <= int(text) <= ID_MAX:
        raise invalid(name, text, f"a whole number from 1 to {ID_MAX}")
    return int(text)


def invalid(name: str, text: str, valid: str) -> BadRequest:
    """Return the error of a parameter: what was sent, and what may be sent."""
    return BadRequest(f"Invalid {name}: {text[:100]!r}. Use {valid}.")


NOW: Final = "now"
_IS_NEW: Final = {"all": False, "from_beginning": False, "new": True, "new-only": True}
"""The subscription modes, and whether a group of that mode starts at the end of the log."""


def read_subscription(
    group: str, *, mode: str | None, start: str | None, default_mode: str
) -> Subscription:
    """Return where a new group starts; the default group starts with the oldest message.

    `subscriptionFrom` (`start`) overrides `subscriptionMode` (`mode`).
    """
    is_new = _IS_NEW.get(mode or default_mode)
    if is_new is None:
        raise invalid(
            "subscriptionMode", mode or default_mode, "all, from_beginning, new or new-only"
        )
    if group == QUEUE_MODE:
        return Subscription()
    if start and start != NOW:
        return Subscription(
            "timestamp", parse_moment("subscriptionFrom", start, alternatives=(NOW,))
        )
    return Subscription("new") if is_new or start == NOW else Subscription()
