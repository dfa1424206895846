"""The routes of replays: start, list, show. A replay is cancelled as a chain."""

from typing import Annotated, Final, TypeAlias
from uuid import UUID

from litestar.handlers import HTTPRouteHandler
from litestar.params import PathParameter
from msgspec import Meta

from skep.jobs.service.replays import ReplayOrder, ReplayRow, Replays, StartedReplay
from skep.server.auth.access import BODY, Level, needs
from skep.server.auth.guard import requester_of
from skep.server.routes.parameters import AfterId, Listed, PageSize
from skep.server.routes.section import AnyRequest, Body, Section, refusal, trace_context

_PATH: Final = "/api/v1/replays"

ReplayId: TypeAlias = Annotated[UUID, PathParameter(description="Replay id.")]


class ReplayRequest(ReplayOrder, frozen=True, kw_only=True):
    """What to replay, and where to."""

    key: Annotated[str, Meta(min_length=1, max_length=900)] | None = None
    """Idempotency key: a repeated key starts nothing new."""


class ReplayPage(Listed[ReplayRow], frozen=True):
    """A page of replays, newest first. Pass `after` to get the next page; null on the last one."""

    items: list[ReplayRow]


_REPLAY: Final = Body(ReplayRequest)


def replay_routes(replays: Replays) -> list[HTTPRouteHandler]:
    """Declare the routes of replays."""
    section = Section("Replays")

    @section.post(
        _PATH,
        needs(Level.READ_WRITE, BODY),
        body=_REPLAY,
        status_code=202,
        responses={
            404: refusal("There is no such queue or partition."),
            409: refusal(
                "Encrypted messages would be stored unencrypted, or the key belongs to another "
                "replay."
            ),
        },
    )
    async def start_replay(request: AnyRequest) -> StartedReplay:
        """Push the messages that a queue stored in a time range into a queue again.

        The replay becomes a chain of the job `skep.replay`, which a worker with Spark runs. It is
        stored completely or not at all, and never twice. While it is open, the same request
        returns it as a duplicate.
        """
        asked = await _REPLAY.read(request)
        await requester_of(request).require(queues={asked.queue, asked.into})
        return await replays.start(_order(asked), key=asked.key, trace=trace_context(request))

    @section.get(_PATH, needs(Level.READ_ONLY))
    async def list_replays(page_size: PageSize = 50, after_id: AfterId = None) -> ReplayPage:
        """List replays, newest first."""
        return ReplayPage.of(await replays.page(limit=page_size, after=after_id))

    @section.get(
        f"{_PATH}/{{replay_id:uuid}}",
        needs(Level.READ_ONLY, BODY),
        responses={404: refusal("There is no such replay.")},
    )
    async def show_replay(replay_id: ReplayId, request: AnyRequest) -> ReplayRow:
        """Show a replay and its state."""
        requester = requester_of(request)
        replay = await replays.show(replay_id)
        if replay.order is None:
            requester.require_everything()
        else:
            await requester.require(queues={replay.order.queue, replay.order.into})
        return replay

    return section.routes


def _order(asked: ReplayRequest) -> ReplayOrder:
    members = {name: getattr(asked, name) for name in ReplayOrder.__struct_fields__}
    return ReplayOrder(**members)
