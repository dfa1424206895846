"""The route of the archive: which time of which queue is in it."""

from typing import Final

from litestar import get
from litestar.handlers import HTTPRouteHandler

from skep.broker.spark.archive import ArchiveCoverage, ArchivePage
from skep.server.auth.access import Level, needs
from skep.server.routes.paging import Limit, Offset

_TAGS: Final = ["Pipelines"]


def archive_route(coverage: ArchiveCoverage) -> HTTPRouteHandler:
    """Make the route around the record of what is archived."""

    @get(
        "/api/v1/archive",
        operation_id="listArchive",
        opt=needs(Level.READ_ONLY),
        summary="List which time of which queues is in the archive",
        description="Only queues that have an archive, or whose configuration asks for one.",
        tags=_TAGS,
    )
    async def list_archive(limit: Limit = 100, offset: Offset = 0) -> ArchivePage:
        return await coverage.listed(limit=limit, offset=offset)

    return list_archive
