"""Carry W3C trace context through the broker: from the request that pushes to the messages.

A request's `traceparent` is stored in the headers of those of its messages that have none of their
own, and comes out with them. `Propagation` does no more than that and needs no further package;
`skep.telemetry.otel` builds on it. Without either, a `traceparent` that a producer puts into the
headers of a message is carried like any other header.
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
"""Contexts that are looked for in one answer: as many links as a span has by default."""

_CONTEXT: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_CARRIED: Final = re.compile(rb'"headers":\{[^{}]*?"traceparent":"([0-9a-f-]{55})"')

Carrier: TypeAlias = Mapping[str, str]
"""The headers of a request that have to do with traces."""
Ended: TypeAlias = Callable[[str | None], None]
"""Hears that an operation is over, with the code of its error if it failed."""
Settled: TypeAlias = Callable[[bytes | None, str | None], None]
"""Hears the results of acknowledgments, or the code of an error."""
Deliver: TypeAlias = Callable[[bytes | None], bool]


class Propagation:
    """Gives messages the context of the request that pushes them, and tells nobody."""

    def sending(self, carrier: Carrier, items: Sequence[PushItem]) -> Ended:
        """Hear of a push before its items are looked at, and give them a context to carry."""
        give_context(items, valid_context(carrier))
        return lambda _error: None

    def receiving(self, carrier: Carrier, queue: str, group: str, deliver: Deliver) -> Deliver:
        """Hear of a poll; return what is to be called with its answer."""
        del carrier, queue, group
        return deliver

    def settling(self, carrier: Carrier, group: str | None, count: int) -> Settled:
        """Hear of acknowledgments; return what is to be called with their results."""
        del carrier, group, count
        return lambda _results, _error: None


def valid_context(carrier: Carrier) -> dict[str, str]:
    """Return the context of a request as headers; nothing if there is none or it is malformed."""
    parent, state = carrier.get(TRACEPARENT, ""), carrier.get(TRACESTATE, "")
    if not _CONTEXT.fullmatch(parent):
        return {}
    if not state or len(state) > TRACESTATE_CHARS_MAX:
        return {TRACEPARENT: parent}
    return {TRACEPARENT: parent, TRACESTATE: state}


def give_context(items: Sequence[PushItem], context: Mapping[str, str]) -> None:
    """Put a context into the headers of items that have none of their own, and room for it."""
    if not context:
        return
    for item in items:
        headers = item.headers or {}
        if TRACEPARENT not in headers and len(headers) + len(context) <= HEADERS_MAX:
            item.headers = {**headers, **context}


def contexts_in(body: bytes) -> list[str]:
    """Return the contexts that the messages of an answer carry, each once.

    The answer is searched and not parsed, so a payload with headers of its own may add to them:
    a producer can name any context it likes anyway.
    """
    found: dict[str, None] = {}
    for each in _CARRIED.finditer(body):
        text = each[1].decode()
        if _CONTEXT.fullmatch(text):
            found[text] = None
        if len(found) >= CONTEXTS_MAX:
            break
    return list(found)
