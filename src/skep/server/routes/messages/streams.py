"""The routes of the streams SDK, and those to look after its queries.

Bodies are decoded here and not by Litestar, because payloads and state values must stay as they
were sent. The document describes them all the same.
"""

from contextlib import suppress
from typing import Annotated, Any, Final, Protocol

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Parameter, PathParameter

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
from skep.server.api_document.bodies import body_of
from skep.server.auth.access import BODY, Level, needs
from skep.server.auth.guard import Visitor, visitor_of
from skep.server.hot.decoding import decode_body
from skep.server.routes.refusals import refusal

_TAGS: Final = ["Streams"]
_JSON: Final = "application/json"
_REGISTER: Final = msgspec.json.Decoder(RegisterBody)
_CYCLE: Final = msgspec.json.Decoder(CycleBody)
_STATE: Final = msgspec.json.Decoder(StateBody)
_WORDS: Final = {
    f".{name}": f"{name} is required"
    for name in ("name", "source_queue", "config_hash", "query_id", "partition_id")
}

QueryName = Annotated[str, PathParameter(description="The name it was registered by.")]


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
        """Remove a query and its state."""
        ...


class Deleted(msgspec.Struct, frozen=True):
    """The query is gone."""

    deleted: bool
    name: str


def streams_routes(service: StreamsService) -> list[HTTPRouteHandler]:
    """Make the routes around what the broker does."""

    @post(
        "/streams/v1/queries",
        operation_id="registerQuery",
        opt=needs(Level.READ_WRITE, BODY),
        operation_class=body_of(RegisterBody),
        summary="Register a stream's query",
        tags=_TAGS,
        status_code=200,
        responses={
            409: ResponseSpec(Registered, description="It is registered with another pipeline.")
        },
    )
    async def register_query(request: Request[Any, Any, Any]) -> Response[Registered]:
        body = decode_body(_REGISTER, await request.body(), _WORDS)
        await _require_query(visitor_of(request), service, body)
        answer = await service.register(body)
        return Response(answer, status_code=200 if answer.success else 409)

    @post(
        "/streams/v1/cycle",
        operation_id="commitCycle",
        opt=needs(Level.READ_WRITE, BODY),
        responses={
            409: refusal("A queue that is pushed to was deleted meanwhile."),
            429: refusal("A queue that is pushed to is full."),
        },
        operation_class=body_of(shapes.CycleBody),
        summary="Change state, push results and acknowledge the source, all or nothing",
        tags=_TAGS,
        status_code=200,
    )
    async def commit_cycle(request: Request[Any, Any, Any]) -> CycleAnswer:
        body = decode_body(_CYCLE, await request.body(), _WORDS)
        visitor = visitor_of(request)
        queues = {item.queue for item in body.push_items or ()}
        await visitor.require(queues=queues, partition_ids={body.partition_id})
        return await service.commit_cycle(body, producer=visitor.subject)

    @post(
        "/streams/v1/state/get",
        operation_id="readState",
        opt=needs(Level.READ_ONLY, BODY),
        operation_class=body_of(StateBody),
        summary="Read the state of a query for one partition",
        tags=_TAGS,
        status_code=200,
        responses={
            200: ResponseSpec(StateAnswer, description="The rows.", generate_examples=False),
            404: refusal("There is no such query."),
        },
    )
    async def read_state(request: Request[Any, Any, Any]) -> Response[bytes]:
        body = decode_body(_STATE, await request.body(), _WORDS)
        await visitor_of(request).require(partition_ids={body.partition_id})
        answer = await service.read_state(body)
        return Response(msgspec.json.encode(answer), media_type=_JSON)

    @get(
        "/streams/v1/queries",
        operation_id="listQueries",
        opt=needs(Level.READ_ONLY),
        summary="List the registered queries and the size of their state",
        tags=_TAGS,
    )
    async def list_queries(
        limit: Annotated[int, Parameter(ge=1, le=1000, description="The most to return.")] = 100,
        offset: Annotated[
            int, Parameter(ge=0, le=2**31 - 1, description="How many to pass over.")
        ] = 0,
    ) -> QueryPage:
        return await service.list_queries(limit=limit, offset=offset)

    @get(
        "/streams/v1/queries/{name:str}",
        operation_id="getQuery",
        opt=needs(Level.READ_ONLY),
        summary="Look at a registered query",
        tags=_TAGS,
    )
    async def get_query(name: QueryName) -> QueryInfo:
        return await service.get_query(name)

    @delete(
        "/streams/v1/queries/{name:str}",
        operation_id="deleteQuery",
        opt=needs(Level.ADMIN),
        summary="Remove a query and its state",
        tags=_TAGS,
        status_code=200,
    )
    async def delete_query(name: QueryName) -> Deleted:
        await service.delete_query(name)
        return Deleted(deleted=True, name=name)

    return [register_query, commit_cycle, read_state, list_queries, get_query, delete_query]


async def _require_query(visitor: Visitor, service: StreamsService, body: RegisterBody) -> None:
    """Let a restricted caller register queries of its queues, and none over those of others."""
    if visitor.identity.grants is None:
        return
    queues = {queue for queue in (body.source_queue, body.sink_queue) if queue}
    with suppress(NotFound):  # then it is nobody's yet
        queues.add((await service.get_query(body.name)).source_queue)
    await visitor.require(queues=queues)
