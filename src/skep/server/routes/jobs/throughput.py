"""The route of the pace of jobs."""

from typing import Final

from litestar import get
from litestar.handlers import HTTPRouteHandler

from skep.jobs.service.service import JobService, Throughput
from skep.server.auth.access import Level, needs

_TAGS: Final = ["Jobs"]


def throughput_route(service: JobService) -> HTTPRouteHandler:
    """Make the route around what ended lately."""

    @get(
        "/api/v1/jobs/throughput",
        operation_id="showJobThroughput",
        opt=needs(Level.READ_ONLY),
        summary="How fast jobs of each type end, and how long they run",
        description="Of the chains that ended in the last hour, or of the newest of them when "
        "there are very many; as of some seconds ago. A job counts when its chain has ended.",
        tags=_TAGS,
    )
    async def show_throughput() -> Throughput:
        return await service.throughput()

    return show_throughput
