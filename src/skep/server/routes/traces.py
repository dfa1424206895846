"""Traces: record what happened to a message, and read it by message or by name.

Snake case, as the wire has it. Clients put names and transaction ids into the path with their
slashes unescaped, so both may span several segments.
"""

from pathlib import Path
from typing import Annotated, Final

from skep.broker.paging import Page
from skep.broker.traces import (
    MessageTraces,
    NewTrace,
    TraceNames,
    TraceRecorded,
    Traces,
    TracesByName,
)
from skep.server.api_document.shapes import TraceBody
from skep.server.auth import access
from skep.server.auth.guard import requester_of
from skep.server.routes import parameters as given
from skep.server.routes.section import (
    AnyRequest,
    Body,
    Parts,
    Section,
    in_path,
    rest_of_path,
    routes_of,
)

_PATH: Final = "/api/v1/traces"

Rows = Annotated[Page, Parts(limit=given.Limit, offset=given.DeepOffset)]
TraceName = Annotated[Path, in_path("Name; its slashes may stay.")]
MessageName = Annotated[Path, in_path("Transaction id or message id; its slashes may stay.")]


@routes_of("Traces")
def trace_routes(section: Section, traces: Traces) -> None:
    """Declare the routes of traces."""

    @section.post(
        _PATH,
        access.WRITE_BY_BODY,
        body=Body(NewTrace, described_as=TraceBody),
        status_code=201,
        response_description="The trace is stored.",
        responses={404: "There is no such message."},
    )
    async def record_trace(request: AnyRequest, asked: NewTrace) -> TraceRecorded:
        """Attach an event to a message."""
        await requester_of(request).require(partition_ids={asked.partition_id})
        return await traces.record(asked)

    @section.get(f"{_PATH}/names", access.READ, response_description="A page of names.")
    async def list_trace_names(page: Rows = given.FIRST_50) -> TraceNames:
        """List the names of traces, last seen first."""
        return await traces.list_names(page)

    @section.get(
        f"{_PATH}/by-name/{{trace_name:path}}",
        access.READ,
        response_description="A page of events with their messages.",
    )
    async def list_traces_by_name(
        request: AnyRequest, trace_name: TraceName, page: Rows = given.FIRST_100
    ) -> TracesByName:
        """List the events with a name, oldest first."""
        del trace_name  # as Litestar cuts it; see `rest_of_path`
        name = rest_of_path(request, 5)
        return await traces.list_by_name(name, page)

    @section.get(
        f"{_PATH}/{{partition_id:str}}/{{transaction_id:path}}",
        access.READ_PARTITION,
        response_description="A page of events.",
        responses={404: "There is no such partition."},
    )
    async def list_traces_of_message(
        request: AnyRequest,
        partition_id: given.PartitionId,
        transaction_id: MessageName,
        page: Rows = given.FIRST_1000,
    ) -> MessageTraces:
        """List the events of a message, oldest first."""
        del transaction_id  # as Litestar cuts it; see `rest_of_path`
        message = rest_of_path(request, 5)
        return await traces.list_of_message(partition_id, message, page)
