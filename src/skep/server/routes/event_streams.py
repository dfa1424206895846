"""Server-sent events: the messages of a queue, and the figures of the dashboard.

A stream counts as a live connection. It ends when the caller's token expires. An error is its last
event, because the status was sent at the start.

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

from litestar import MediaType
from litestar.openapi import ResponseSpec
from litestar.params import HeaderParameter
from litestar.response import Stream

from skep.broker.messages.contents import Contents
from skep.broker.pop.feed import Live
from skep.broker.pop.tail import Position, Tail, Tails
from skep.broker.stats.pulse import Pulse, PulseSample
from skep.broker.timestamps import parse_moment
from skep.model.errors import InvalidToken, Overloaded, SkepError
from skep.model.names import check_name
from skep.server.auth import access
from skep.server.auth.guard import requester_of
from skep.server.problems import problem_of
from skep.server.routes import parameters as given
from skep.server.routes.section import AnyRequest, Section, in_query, routes_of

HEARTBEAT_S: Final = 15.0

_EVENT_STREAM: Final = "text/event-stream"
_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
_BEAT: Final = b"event: beat\ndata: {}\n\n"
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")

From = Annotated[
    str, in_query("Where to start without a Last-Event-ID: `now`, `start`, or a time.", "from")
]
LastEventId = Annotated[
    str | None, HeaderParameter(name="Last-Event-ID", description="Id of the last event seen.")
]


@routes_of("Messages")
def event_routes(section: Section, tails: Tails, pulse: Pulse, live: Live) -> None:
    """Declare the two routes."""

    @section.get(
        "/api/v1/stream/queue/{queue:str}/events",
        access.READ_QUEUE,
        media_type=_EVENT_STREAM,
        response_description="An endless stream with one event per message.",
        responses={
            404: "There is no such queue.",
            429: "Too many connections.",
        },
    )
    async def tail_queue(
        request: AnyRequest,
        queue: given.QueueName,
        start: From = "now",
        header: given.OnlyHeader = None,
        payload: given.OnlyPayload = None,
        last_event_id: LastEventId = None,
    ) -> Stream:
        """Watch the messages of a queue as server-sent events."""
        contents = Contents.parse(header, payload)
        live.check_room()
        tail = await tails.open(
            check_name("queue", queue),
            start=_start_time(start),
            last=Position.parse(last_event_id) if last_event_id else None,
            is_from_now=start == "now",
        )
        return _event_stream(request, live, spelled_events(tail, contents))

    @section.get(
        "/api/v1/dashboard/live",
        access.READ,
        tag="Status",
        media_type=_EVENT_STREAM,
        responses={
            200: ResponseSpec(
                PulseSample,
                media_type=MediaType.JSON,
                generate_examples=False,
                description="An endless stream with one event per sample; this is its data.",
            ),
            503: "Too many connections, or the database is unavailable.",
        },
    )
    async def watch_pulse(request: AnyRequest) -> Stream:
        """Watch the figures of the whole broker as server-sent events.

        Each event `sample` is a `PulseSample`. All watchers share the samples; the more one costs,
        the rarer they are. Events `beat` without data fill the time between them.
        """
        live.check_room()
        return _event_stream(request, live, _samples(pulse))


def _event_stream(request: AnyRequest, live: Live, events: AsyncGenerator[bytes, None]) -> Stream:
    """Answer with encoded events for as long as the caller may watch."""
    lasting = while_allowed(events, live, requester_of(request).left_s)
    return Stream(lasting, media_type=_EVENT_STREAM, headers=_HEADERS)


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


async def spelled_events(
    tail: Tail, contents: Contents | None = None
) -> AsyncGenerator[bytes, None]:
    """Yield an event per message that is wanted, and a comment after a silence of `HEARTBEAT_S`."""
    now = asyncio.get_running_loop().time
    silent_since = -HEARTBEAT_S  # so that the first position is sent at once
    async with aclosing(tail.follow()) as told:
        async for position, message in told:
            if message is not None and (contents is None or contents.are_in(message)):
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


async def _samples(pulse: Pulse) -> AsyncGenerator[bytes, None]:
    async with aclosing(pulse.follow()) as samples:
        async for sample in samples:
            yield _BEAT if sample is None else b"event: sample\ndata: %b\n\n" % sample
