"""Server-Sent Events: watch the messages of a queue without consuming them.

`GET /api/v1/stream/queue/{queue}/events` sends every message as an event, in order within each
partition. Nothing is claimed, acknowledged or counted as delivered. The id of an event is a
position: a client that reconnects with `Last-Event-ID`, as browsers do, misses nothing. Comments
keep the connection alive; they carry a position too, for quiet queues.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from typing import Annotated, Final

from litestar.handlers import HTTPRouteHandler
from litestar.params import HeaderParameter, QueryParameter
from litestar.response import Stream

from skep.broker.pop.feed import Live
from skep.broker.pop.tail import Position, Tail, Tails
from skep.broker.timestamps import parse_moment
from skep.model.names import check_name
from skep.server.auth.access import QUEUE, Level, needs
from skep.server.routes.event_streams import EVENT_STREAM, event_stream
from skep.server.routes.parameters import QueueName
from skep.server.routes.section import AnyRequest, Section, refusal

HEARTBEAT_S: Final = 15.0

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")

From = Annotated[
    str,
    QueryParameter(
        name="from",
        description="Where to start without a Last-Event-ID: `now`, `start`, or a time.",
    ),
]
LastEventId = Annotated[
    str | None, HeaderParameter(name="Last-Event-ID", description="Id of the last event seen.")
]


def tail_route(tails: Tails, live: Live) -> list[HTTPRouteHandler]:
    """Declare the route."""
    section = Section("Messages")

    @section.get(
        "/api/v1/stream/queue/{queue:str}/events",
        needs(Level.READ_ONLY, QUEUE),
        media_type=EVENT_STREAM,
        response_description="An endless stream with one event per message.",
        responses={
            400: refusal("`from` or `Last-Event-ID` is malformed."),
            404: refusal("There is no such queue."),
            429: refusal("Too many connections."),
        },
    )
    async def tail_queue(
        request: AnyRequest,
        queue: QueueName,
        start: From = "now",
        last_event_id: LastEventId = None,
    ) -> Stream:
        """Watch the messages of a queue as server-sent events."""
        live.check_room()
        tail = await tails.open(
            check_name("queue", queue),
            start=_start_time(start),
            last=Position.parse(last_event_id) if last_event_id else None,
            is_from_now=start == "now",
        )
        return event_stream(request, live, spelled_events(tail))

    return section.routes


async def spelled_events(tail: Tail) -> AsyncGenerator[bytes, None]:
    """Yield an event per message, and a comment after a silence of `HEARTBEAT_S`."""
    now = asyncio.get_running_loop().time
    silent_since = -HEARTBEAT_S  # so that the first position is sent at once
    async with aclosing(tail.follow()) as told:
        async for position, message in told:
            if message is not None:
                yield _message_event(position, message)
                silent_since = now()
            elif now() - silent_since >= HEARTBEAT_S:
                yield b": alive\nid: %b\n\n" % str(position).encode()
                silent_since = now()


def _message_event(position: Position, message: bytes) -> bytes:
    # A payload may have been sent on several lines, and each needs its own prefix.
    lines = _LINE_END.sub(b"\ndata: ", message)
    return b"id: %b\nevent: message\ndata: %b\n\n" % (str(position).encode(), lines)


def _start_time(start: str) -> datetime | None:
    words = ("now", "start")
    return None if start in words else parse_moment("from", start, alternatives=words)
