"""The depth of a queue, for clients that watch only what waits."""

from typing import Annotated

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from skep.broker.paging import Page
from skep.broker.queues.depth import Depths, QueueDepth
from skep.server.auth.access import QUEUE, Level, needs
from skep.server.routes.names import QueueName
from skep.server.routes.paging import LIMIT_MAX, Limit, Offset


def depth_route(depths: Depths) -> HTTPRouteHandler:
    """Make the route around what the broker measures."""

    @get(
        "/api/v1/resources/queues/{queue:str}/depth",
        tags=["Resources"],
        operation_id="measureDepth",
        opt=needs(Level.READ_ONLY, QUEUE),
        summary="Count what waits in a queue, by partition",
    )
    async def measure_depth(
        queue: QueueName,
        group: Annotated[
            str | None, QueryParameter(description="Only what this group has yet to finish.")
        ] = None,
        limit: Limit = LIMIT_MAX,
        offset: Offset = 0,
    ) -> QueueDepth:
        page = Page(limit, offset)
        return await (
            depths.of_group(queue, group, page) if group else depths.of_queue(queue, page)
        )

    return measure_depth
