"""The routes of the streams SDK, and those to inspect its queries.

Handlers decode the bodies, not Litestar: payloads and state values must stay byte for byte.
"""

from contextlib import suppress
from typing import Annotated, Final

import msgspec
from litestar import Response

from skep.broker.streams import Streams
from skep.model import stream_wire as wire
from skep.model.errors import NotFound
from skep.server.api_document import shapes
from skep.server.auth import access
from skep.server.auth.guard import Requester, requester_of
from skep.server.hot.pushed_items import ItemDecoder
from skep.server.routes.parameters import Limit, Offset
from skep.server.routes.section import AnyRequest, Body, Section, in_path, refusal, routes_of

_QUERIES: Final = "/streams/v1/queries"
_ONE: Final = f"{_QUERIES}/{{name:str}}"
_WORDING: Final = {
    f".{name}": f"{name} is required"
    for name in ("name", "source_queue", "config_hash", "query_id", "partition_id")
}

QueryName = Annotated[str, in_path("Name the query was registered with.")]


class Deleted(msgspec.Struct, frozen=True):
    """The query was deleted."""

    deleted: bool
    name: str


@routes_of("Streams")
def streams_routes(section: Section, streams: Streams, decode: ItemDecoder) -> None:
    """Declare the routes of streams."""

    @section.post(
        _QUERIES,
        access.WRITE_BY_BODY,
        body=Body(wire.RegisterBody, wording=_WORDING),
        responses={409: refusal("It is registered with another pipeline.", wire.Registered)},
    )
    async def register_query(
        request: AnyRequest, asked: wire.RegisterBody
    ) -> Response[wire.Registered]:
        """Register a stream's query."""
        await _require_query(requester_of(request), streams, asked)
        answer = await streams.register(asked)
        return Response(answer, status_code=200 if answer.success else 409)

    @section.post(
        "/streams/v1/cycle",
        access.WRITE_BY_BODY,
        body=Body(wire.CycleBody, described_as=shapes.CycleBody),
        responses={
            409: "A target queue was deleted meanwhile.",
            429: "A target queue is full.",
        },
    )
    async def commit_cycle(request: AnyRequest) -> wire.CycleAnswer:
        """Change state, push results and acknowledge the source, all or nothing."""
        asked = decode.cycle(await request.body(), _WORDING)
        requester = requester_of(request)
        queues = {item.queue for item in asked.push_items or ()}
        await requester.require(queues=queues, partition_ids={asked.partition_id})
        return await streams.commit_cycle(asked, producer=requester.subject)

    @section.post(
        "/streams/v1/state/get",
        access.READ_BY_BODY,
        body=Body(wire.StateBody, wording=_WORDING),
        response_description="The rows.",
        responses={404: "There is no such query."},
    )
    async def read_state(request: AnyRequest, asked: wire.StateBody) -> wire.StateAnswer:
        """Read the state of a query for one partition."""
        await requester_of(request).require(partition_ids={asked.partition_id})
        return await streams.read_state(asked)

    @section.get(_QUERIES, access.READ)
    async def list_queries(limit: Limit = 100, offset: Offset = 0) -> wire.QueryPage:
        """List the registered queries and the size of their state."""
        return await streams.list_queries(limit=limit, offset=offset)

    @section.get(_ONE, access.READ)
    async def get_query(name: QueryName) -> wire.QueryInfo:
        """Show a registered query."""
        return await streams.get_query(name)

    @section.delete(_ONE, access.ADMIN)
    async def delete_query(name: QueryName) -> Deleted:
        """Delete a query and its state."""
        await streams.delete_query(name)
        return Deleted(deleted=True, name=name)


async def _require_query(requester: Requester, streams: Streams, asked: wire.RegisterBody) -> None:
    """Let a restricted caller register queries of its queues, and replace only its own."""
    if requester.identity.grants is None:
        return
    queues = {queue for queue in (asked.source_queue, asked.sink_queue) if queue}
    with suppress(NotFound):  # the name is free
        queues.add((await streams.get_query(asked.name)).source_queue)
    await requester.require(queues=queues)
