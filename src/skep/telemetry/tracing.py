"""Carry W3C trace context from the pushing request to its messages.

A request's `traceparent` is stored in the headers of its messages that have none. `Propagation`
does only that and needs no further package; `skep.telemetry.otel` builds on it. Without either, a
`traceparent` in the headers of a message is carried like any other header.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from skep.model.limits import HEADERS_MAX
from skep.model.wire import PushItem

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
CONTEXT_HEADERS: Final = (TRACEPARENT, TRACESTATE)
TRACESTATE_CHARS_MAX: Final = 512

CONTEXTS_MAX: Final = 128
"""Contexts collected from one answer: as many links as a span has by default."""

_CONTEXT: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_CARRIED: Final = re.compile(rb'"headers":\{[^{}]*?"traceparent":"([0-9a-f-]{55})"')

Carrier: TypeAlias = Mapping[str, str]
"""The trace headers of a request."""
Ended: TypeAlias = Callable[[str | None], None]
"""Called at the end of an operation, with the code of its error if it failed."""
Settled: TypeAlias = Callable[[bytes | None, str | None], None]
"""Called with the results of acknowledgments, or the code of an error."""
Deliver: TypeAlias = Callable[[bytes | None], bool]


class Propagation:
    """Gives messages the context of the request that pushes them."""

    def sending(self, carrier: Carrier, items: Sequence[PushItem]) -> Ended:
        """Give the items of a push a context; return what to call at its end."""
        give_context(items, valid_context(carrier))
        return lambda _error: None

    def receiving(self, carrier: Carrier, queue: str, group: str, deliver: Deliver) -> Deliver:
        """Return what to call with the answer of a poll."""
        del carrier, queue, group
        return deliver

    def settling(self, carrier: Carrier, group: str | None, count: int) -> Settled:
        """Return what to call with the results of acknowledgments."""
        del carrier, group, count
        return lambda _results, _error: None


def valid_context(carrier: Carrier) -> dict[str, str]:
    """Return the context of a request as headers; empty if missing or malformed."""
    parent, state = carrier.get(TRACEPARENT, ""), carrier.get(TRACESTATE, "")
    if not _CONTEXT.fullmatch(parent):
        return {}
    if not state or len(state) > TRACESTATE_CHARS_MAX:
        return {TRACEPARENT: parent}
    return {TRACEPARENT: parent, TRACESTATE: state}


def give_context(items: Sequence[PushItem], context: Mapping[str, str]) -> None:
    """Add a context to the headers of items that have none, if there is room."""
    if not context:
        return
    for item in items:
        headers = item.headers or {}
        if TRACEPARENT not in headers and len(headers) + len(context) <= HEADERS_MAX:
            item.headers = {**headers, **context}


def contexts_in(body: bytes) -> list[str]:
    """Return the distinct contexts in the messages of an answer.

    The answer is searched, not parsed, so payloads may add to them; producers can name any context
    anyway.
    """
    found: dict[str, None] = {}
    for each in _CARRIED.finditer(body):
        text = each[1].decode()
        if _CONTEXT.fullmatch(text):
            found[text] = None
        if len(found) >= CONTEXTS_MAX:
            break
    return list(found)
