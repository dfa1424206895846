"""The headers of messages, as readers get them: texts by name."""

from collections.abc import Iterable
from typing import Any

import msgspec

Pairs = list[tuple[str, str | None]] | None
"""The headers of a message by name, as texts."""


def header_pairs(headers: Any) -> Pairs:
    """Return headers as texts: strings as they are, numbers and booleans as JSON spells them.

    Args:
        headers: A JSON object, or null; anything that has bytes.
    """
    members = msgspec.json.decode(headers, type=dict[str, str | int | float | bool | None] | None)
    return members and [(name, _text(value)) for name, value in members.items()]


def header_structs(headers: Iterable[Pairs]) -> list[list[dict[str, Any]] | None]:
    """Return headers as programs for Kafka expect them."""
    return [
        None
        if pairs is None
        else [{"key": key, "value": text and text.encode()} for key, text in pairs]
        for pairs in headers
    ]


def _text(value: str | float | bool | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
