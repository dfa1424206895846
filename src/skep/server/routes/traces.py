"""Traces: record what happened to a message, and read it by message or by name.

Snake case, as the wire has it. Clients put names and transaction ids into the path with their
slashes unescaped, so both may span several segments.
"""

from pathlib import Path
from typing import Annotated, Final

from litestar.handlers import HTTPRouteHandler
from litestar.params import Parameter, PathParameter

from skep.broker.paging import Page
from skep.broker.traces import (
    MessageTraces,
    NewTrace,
    TraceNames,
    TraceRecorded,
    Traces,
    TracesByName,
)
from skep.model.limits import PAGE_ROWS_MAX
from skep.server.api_document.shapes import TraceBody
from skep.server.auth.access import BODY, PARTITION, Level, needs
from skep.server.auth.guard import requester_of
from skep.server.hot.exchange import decode_segment
from skep.server.routes.parameters import DeepOffset, PartitionId
from skep.server.routes.section import AnyRequest, Body, Section, refusal

_PATH: Final = "/api/v1/traces"
_BY_NAME: Final = f"{_PATH}/by-name/"

Limit = Annotated[int, Parameter(ge=1, le=PAGE_ROWS_MAX, description="Maximum number of rows.")]
TraceName = Annotated[Path, PathParameter(description="Name; its slashes may stay.")]
MessageName = Annotated[
    Path, PathParameter(description="Transaction id or message id; its slashes may stay.")
]

_ERRORS: Final = {
    400: refusal("The request is malformed."),
    503: refusal("The database is unavailable: repeat the request."),
}
_TRACE: Final = Body(NewTrace, described_as=TraceBody)


def trace_routes(traces: Traces) -> list[HTTPRouteHandler]:
    """Declare the routes of traces."""
    section, read = Section("Traces"), needs(Level.READ_ONLY)

    @section.post(
        _PATH,
        needs(Level.READ_WRITE, BODY),
        body=_TRACE,
        status_code=201,
        response_description="The trace is stored.",
        responses={**_ERRORS, 404: refusal("There is no such message.")},
    )
    async def record_trace(request: AnyRequest) -> TraceRecorded:
        """Attach an event to a message."""
        trace = await _TRACE.read(request)
        await requester_of(request).require(partition_ids={trace.partition_id})
        return await traces.record(trace)

    @section.get(f"{_PATH}/names", read, response_description="A page of names.", responses=_ERRORS)
    async def list_trace_names(limit: Limit = 50, offset: DeepOffset = 0) -> TraceNames:
        """List the names of traces, last seen first."""
        return await traces.list_names(Page(limit, offset))

    @section.get(
        _BY_NAME + "{trace_name:path}",
        read,
        response_description="A page of events with their messages.",
        responses=_ERRORS,
    )
    async def list_traces_by_name(
        request: AnyRequest, trace_name: TraceName, limit: Limit = 100, offset: DeepOffset = 0
    ) -> TracesByName:
        """List the events with a name, oldest first."""
        del trace_name  # as Litestar cuts it; see `_sent_path`
        name = decode_segment(_sent_path(request)[len(_BY_NAME) :])
        return await traces.list_by_name(name, Page(limit, offset))

    @section.get(
        f"{_PATH}/{{partition_id:str}}/{{transaction_id:path}}",
        needs(Level.READ_ONLY, PARTITION),
        response_description="A page of events.",
        responses={**_ERRORS, 404: refusal("There is no such partition.")},
    )
    async def list_traces_of_message(
        request: AnyRequest,
        partition_id: PartitionId,
        transaction_id: MessageName,
        limit: Limit = PAGE_ROWS_MAX,
        offset: DeepOffset = 0,
    ) -> MessageTraces:
        """List the events of a message, oldest first."""
        del transaction_id  # as Litestar cuts it; see `_sent_path`
        message = decode_segment(_sent_path(request).split(b"/", 5)[5])
        return await traces.list_of_message(partition_id, message, Page(limit, offset))

    return section.routes


def _sent_path(request: AnyRequest) -> bytes:
    """Return the path as it was sent: Litestar would join double slashes in a path parameter."""
    return request.scope["raw_path"]
