"""Server-sent events of any route: who gets a stream, when it ends, and how errors are sent.

A stream counts as a live connection. It ends when the caller's token expires. An error is its last
event, because the status was sent at the start.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from litestar.response import Stream

from skep.broker.pop.feed import Live
from skep.model.errors import InvalidToken, Overloaded, SkepError
from skep.server.auth.guard import requester_of
from skep.server.problems import problem_of
from skep.server.routes.section import AnyRequest

EVENT_STREAM: Final = "text/event-stream"
_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}


def event_stream(request: AnyRequest, live: Live, events: AsyncGenerator[bytes, None]) -> Stream:
    """Answer with encoded events for as long as the caller may watch."""
    lasting = while_allowed(events, live, requester_of(request).left_s)
    return Stream(lasting, media_type=EVENT_STREAM, headers=_HEADERS)


async def while_allowed(
    events: AsyncGenerator[bytes, None], live: Live, left_s: float
) -> AsyncGenerator[bytes, None]:
    """Yield events until they end, or the caller's token expires in `left_s` seconds."""
    try:
        live.enter()
    except Overloaded as error:
        yield _error_event(error)
        return
    now = asyncio.get_running_loop().time
    expires_at = now() + left_s
    try:
        async with aclosing(events):
            async for event in events:
                if now() >= expires_at:
                    raise InvalidToken("Token has expired")
                yield event
    except SkepError as error:
        yield _error_event(error)
    finally:
        live.leave()


def _error_event(error: SkepError) -> bytes:
    return b"event: error\ndata: %b\n\n" % problem_of(error).body
