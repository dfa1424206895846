"""Traces: record what happened to a message, and read it by message or by name.

Snake case, as the wire has it. The clients put names and transaction ids into the path with their
slashes unescaped, so both may span several segments.
"""

from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import Parameter, PathParameter

from skep.broker.messages.traces import (
    MessageTraces,
    NewTrace,
    TraceNames,
    TraceRecorded,
    Traces,
    TracesByName,
)
from skep.broker.paging import Page
from skep.model.limits import PAGE_ROWS_MAX
from skep.server.api_document.bodies import body_of
from skep.server.api_document.shapes import TraceBody
from skep.server.auth.access import BODY, PARTITION, Level, needs
from skep.server.auth.guard import visitor_of
from skep.server.hot.decoding import decode_body
from skep.server.hot.exchange import decode_segment
from skep.server.routes.refusals import refusal

_TAGS: Final = ["Traces"]
_BY_NAME: Final = "/api/v1/traces/by-name/"

Limit = Annotated[int, Parameter(ge=1, le=PAGE_ROWS_MAX, description="Most rows to return.")]
Offset = Annotated[int, Parameter(ge=0, le=2**53, description="Rows to pass over first.")]
TraceName = Annotated[Path, PathParameter(description="The name; its slashes may stay.")]
MessageName = Annotated[
    Path, PathParameter(description="A transaction id or message id; its slashes may stay.")
]

_MALFORMED: Final = {400: refusal("The request is malformed.")}
_UNAVAILABLE: Final = {503: refusal("The database is away: repeat the request.")}

_decoder: Final = msgspec.json.Decoder(NewTrace)


def trace_routes(traces: Traces) -> list[HTTPRouteHandler]:
    """Make the routes around what the broker does."""

    @post(
        "/api/v1/traces",
        tags=_TAGS,
        operation_id="recordTrace",
        opt=needs(Level.READ_WRITE, BODY),
        summary="Attach an event to a message",
        operation_class=body_of(TraceBody),
        response_description="The trace is stored.",
        responses={**_MALFORMED, **_UNAVAILABLE, 404: refusal("There is no such message.")},
    )
    async def record_trace(request: Request[Any, Any, Any]) -> TraceRecorded:
        trace = decode_body(_decoder, await request.body(), {})
        await visitor_of(request).require(partition_ids={trace.partition_id})
        return await traces.record(trace)

    @get(
        "/api/v1/traces/names",
        tags=_TAGS,
        operation_id="listTraceNames",
        opt=needs(Level.READ_ONLY),
        summary="List the names traces are filed under, last seen first",
        response_description="A page of names.",
        responses={**_MALFORMED, **_UNAVAILABLE},
    )
    async def list_trace_names(limit: Limit = 50, offset: Offset = 0) -> TraceNames:
        return await traces.list_names(Page(limit, offset))

    @get(
        _BY_NAME + "{trace_name:path}",
        tags=_TAGS,
        operation_id="listTracesByName",
        opt=needs(Level.READ_ONLY),
        summary="List the events filed under a name, oldest first",
        response_description="A page of events with their messages.",
        responses={**_MALFORMED, **_UNAVAILABLE},
    )
    async def list_traces_by_name(
        request: Request[Any, Any, Any],
        trace_name: TraceName,
        limit: Limit = 100,
        offset: Offset = 0,
    ) -> TracesByName:
        del trace_name  # as Litestar cuts it; see `_sent_path`
        name = decode_segment(_sent_path(request)[len(_BY_NAME) :])
        return await traces.list_by_name(name, Page(limit, offset))

    @get(
        "/api/v1/traces/{partition_id:str}/{transaction_id:path}",
        tags=_TAGS,
        operation_id="listTracesOfMessage",
        opt=needs(Level.READ_ONLY, PARTITION),
        summary="List the events of a message, oldest first",
        response_description="A page of events.",
        responses={**_MALFORMED, **_UNAVAILABLE, 404: refusal("There is no such partition.")},
    )
    async def list_traces_of_message(
        request: Request[Any, Any, Any],
        partition_id: Annotated[
            str, PathParameter(description="The id of a partition, as delivered.")
        ],
        transaction_id: MessageName,
        limit: Limit = PAGE_ROWS_MAX,
        offset: Offset = 0,
    ) -> MessageTraces:
        del transaction_id  # as Litestar cuts it; see `_sent_path`
        message = decode_segment(_sent_path(request).split(b"/", 5)[5])
        return await traces.list_of_message(partition_id, message, Page(limit, offset))

    return [record_trace, list_trace_names, list_traces_by_name, list_traces_of_message]


def _sent_path(request: Request[Any, Any, Any]) -> bytes:
    """Return the path as it was sent: Litestar would join double slashes in a path parameter."""
    return request.scope["raw_path"]
