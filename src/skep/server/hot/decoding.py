"""Decode request bodies and subscriptions, with clear errors."""

import re
from typing import Final, TypeVar

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
    """Decode a JSON body.

    Args:
        decoder: For the shape the route expects.
        body: The raw body.
        wording: Queen's error texts, by the path of their field.

    Raises:
        BadRequest: The body is empty, not UTF-8, not JSON, or of another shape.
    """
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


def decode_optional_body(
    decoder: msgspec.json.Decoder[T], body: bytes, wording: dict[str, str]
) -> T | None:
    """Decode an optional JSON body; None if it is empty. See `decode_body`."""
    return decode_body(decoder, body, wording) if body.strip() else None


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


NOW: Final = "now"


def read_subscription(
    group: str, *, mode: str | None, start: str | None, default_mode: str
) -> Subscription:
    """Return where a new group starts; the default group starts with the oldest message.

    Args:
        group: Its name.
        mode: `subscriptionMode`, if it was sent.
        start: `subscriptionFrom`, if it was sent; it overrides the mode.
        default_mode: The mode if neither was sent.

    Raises:
        BadRequest: The start is not a time.
    """
    if group == QUEUE_MODE:
        return Subscription()
    if start and start != NOW:
        return Subscription(
            "timestamp", parse_moment("subscriptionFrom", start, alternatives=(NOW,))
        )
    is_new = start == NOW or (mode or default_mode) in {"new", "new-only"}
    return Subscription("new") if is_new else Subscription()
