"""The routes of replays: order one, list them, look at one. It is cancelled as a chain."""

from typing import Annotated, Any, Final, TypeAlias
from uuid import UUID

import msgspec
from litestar import Request, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import PathParameter
from msgspec import Meta

from skep.jobs.service.replays import ReplayOrder, ReplayRow, Replays, StartedReplay
from skep.jobs.worker.tracing import spell_context
from skep.server.api_document.bodies import body_of
from skep.server.auth.access import BODY, Level, needs
from skep.server.auth.guard import visitor_of
from skep.server.hot.decoding import decode_body
from skep.server.routes.jobs.parameters import AfterId, PageSize, listed
from skep.server.routes.refusals import refusal
from skep.telemetry.tracing import TRACEPARENT, TRACESTATE, valid_context

_TAGS: Final = ["Replays"]
_PATH: Final = "/api/v1/replays"

ReplayId: TypeAlias = Annotated[UUID, PathParameter(description="The id of a replay.")]


class ReplayRequest(ReplayOrder, frozen=True, kw_only=True):
    """What is to be replayed, and where to."""

    key: Annotated[str, Meta(min_length=1, max_length=900)] | None = None
    """Chosen by the caller: a request repeated with it starts nothing new."""


class ReplayPage(msgspec.Struct, frozen=True):
    """Some of the replays, the newest first; `after` asks for more, null at the end."""

    items: list[ReplayRow]
    after: str | None


_request_decoder = msgspec.json.Decoder(ReplayRequest)


def replay_routes(replays: Replays) -> list[HTTPRouteHandler]:
    """Make the routes around what can be done with replays."""
    return [_start_route(replays), *_reading_routes(replays)]


def _start_route(replays: Replays) -> HTTPRouteHandler:
    @post(
        _PATH,
        status_code=202,
        operation_id="startReplay",
        operation_class=body_of(ReplayRequest),
        opt=needs(Level.READ_WRITE, BODY),
        responses={
            404: refusal("There is no such queue or partition."),
            409: refusal(
                "Encrypted messages would lie in the clear, or the key belongs to another replay."
            ),
        },
        summary="Put what a queue stored in a span of time into a queue once more",
        description="It becomes a chain of the job `skep.replay`, which a worker with Spark runs. "
        "All of it is stored at once or nothing, and the same replay is never done twice. While "
        "it is open, the same request is told of it as a duplicate.",
        tags=_TAGS,
    )
    async def start_replay(request: Request[Any, Any, Any]) -> StartedReplay:
        asked = decode_body(_request_decoder, await request.body(), {})
        await visitor_of(request).require(queues={asked.queue, asked.into})
        context = valid_context(request.headers)
        trace = spell_context(context.get(TRACEPARENT), context.get(TRACESTATE))
        return await replays.start(_order(asked), key=asked.key, trace=trace)

    return start_replay


def _reading_routes(replays: Replays) -> list[HTTPRouteHandler]:
    @get(
        _PATH,
        operation_id="listReplays",
        opt=needs(Level.READ_ONLY),
        summary="List replays, the newest first",
        tags=_TAGS,
    )
    async def list_replays(page_size: PageSize = 50, after_id: AfterId = None) -> ReplayPage:
        return listed(ReplayPage, await replays.page(limit=page_size, after=after_id))

    @get(
        f"{_PATH}/{{replay_id:uuid}}",
        operation_id="showReplay",
        opt=needs(Level.READ_ONLY, BODY),
        responses={404: refusal("There is no such replay.")},
        summary="Show a replay, and where it is",
        tags=_TAGS,
    )
    async def show_replay(replay_id: ReplayId, request: Request[Any, Any, Any]) -> ReplayRow:
        visitor = visitor_of(request)
        replay = await replays.show(replay_id)
        if replay.order is None:
            visitor.require_everything()
        else:
            await visitor.require(queues={replay.order.queue, replay.order.into})
        return replay

    return [list_replays, show_replay]


def _order(asked: ReplayRequest) -> ReplayOrder:
    members = {name: getattr(asked, name) for name in ReplayOrder.__struct_fields__}
    return ReplayOrder(**members)
