"""The routes of the streams SDK, and those to inspect its queries.

Handlers decode the bodies, not Litestar: payloads and state values must stay byte for byte.
"""

from contextlib import suppress
from typing import Annotated, Final, Protocol

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import PathParameter

from skep.model.errors import NotFound
from skep.model.stream_wire import (
    CycleAnswer,
    CycleBody,
    QueryInfo,
    QueryPage,
    RegisterBody,
    Registered,
    StateAnswer,
    StateBody,
)
from skep.server.api_document import shapes
from skep.server.auth.access import BODY, Level, needs
from skep.server.auth.guard import Requester, requester_of
from skep.server.routes.parameters import Limit, Offset
from skep.server.routes.section import AnyRequest, Body, Section, refusal

_QUERIES: Final = "/streams/v1/queries"
_ONE: Final = f"{_QUERIES}/{{name:str}}"
_WORDING: Final = {
    f".{name}": f"{name} is required"
    for name in ("name", "source_queue", "config_hash", "query_id", "partition_id")
}
_REGISTER: Final = Body(RegisterBody, wording=_WORDING)
_CYCLE: Final = Body(CycleBody, wording=_WORDING, described_as=shapes.CycleBody)
_STATE: Final = Body(StateBody, wording=_WORDING)

QueryName = Annotated[str, PathParameter(description="Name the query was registered with.")]


class StreamsService(Protocol):
    """What the broker does for streams."""

    async def register(self, body: RegisterBody) -> Registered:
        """Find or create a query."""
        ...

    async def commit_cycle(self, body: CycleBody, *, producer: str | None) -> CycleAnswer:
        """Do all of a cycle or nothing; `producer` sent it."""
        ...

    async def read_state(self, body: StateBody) -> StateAnswer:
        """Return state rows."""
        ...

    async def list_queries(self, *, limit: int, offset: int) -> QueryPage:
        """Return registered queries."""
        ...

    async def get_query(self, name: str) -> QueryInfo:
        """Return one query."""
        ...

    async def delete_query(self, name: str) -> None:
        """Delete a query and its state."""
        ...


class Deleted(msgspec.Struct, frozen=True):
    """The query was deleted."""

    deleted: bool
    name: str


def streams_routes(service: StreamsService) -> list[HTTPRouteHandler]:
    """Declare the routes of streams."""
    section = Section("Streams")
    read, write_by_body = needs(Level.READ_ONLY), needs(Level.READ_WRITE, BODY)

    @section.post(
        _QUERIES,
        write_by_body,
        body=_REGISTER,
        responses={
            409: ResponseSpec(Registered, description="It is registered with another pipeline.")
        },
    )
    async def register_query(request: AnyRequest) -> Response[Registered]:
        """Register a stream's query."""
        body = await _REGISTER.read(request)
        await _require_query(requester_of(request), service, body)
        answer = await service.register(body)
        return Response(answer, status_code=200 if answer.success else 409)

    @section.post(
        "/streams/v1/cycle",
        write_by_body,
        body=_CYCLE,
        responses={
            409: refusal("A target queue was deleted meanwhile."),
            429: refusal("A target queue is full."),
        },
    )
    async def commit_cycle(request: AnyRequest) -> CycleAnswer:
        """Change state, push results and acknowledge the source, all or nothing."""
        body = await _CYCLE.read(request)
        requester = requester_of(request)
        queues = {item.queue for item in body.push_items or ()}
        await requester.require(queues=queues, partition_ids={body.partition_id})
        return await service.commit_cycle(body, producer=requester.subject)

    @section.post(
        "/streams/v1/state/get",
        needs(Level.READ_ONLY, BODY),
        body=_STATE,
        responses={
            200: ResponseSpec(StateAnswer, description="The rows.", generate_examples=False),
            404: refusal("There is no such query."),
        },
    )
    async def read_state(request: AnyRequest) -> Response[bytes]:
        """Read the state of a query for one partition."""
        body = await _STATE.read(request)
        await requester_of(request).require(partition_ids={body.partition_id})
        answer = await service.read_state(body)
        return Response(msgspec.json.encode(answer), media_type="application/json")

    @section.get(_QUERIES, read)
    async def list_queries(limit: Limit = 100, offset: Offset = 0) -> QueryPage:
        """List the registered queries and the size of their state."""
        return await service.list_queries(limit=limit, offset=offset)

    @section.get(_ONE, read)
    async def get_query(name: QueryName) -> QueryInfo:
        """Show a registered query."""
        return await service.get_query(name)

    @section.delete(_ONE, needs(Level.ADMIN))
    async def delete_query(name: QueryName) -> Deleted:
        """Delete a query and its state."""
        await service.delete_query(name)
        return Deleted(deleted=True, name=name)

    return section.routes


async def _require_query(requester: Requester, service: StreamsService, body: RegisterBody) -> None:
    """Let a restricted caller register queries of its queues, and replace only its own."""
    if requester.identity.grants is None:
        return
    queues = {queue for queue in (body.source_queue, body.sink_queue) if queue}
    with suppress(NotFound):  # the name is free
        queues.add((await service.get_query(body.name)).source_queue)
    await requester.require(queues=queues)
