"""The pipelines on Spark (list, show, stop), and which time of which queue is archived."""

from typing import Annotated, Final

from litestar.handlers import HTTPRouteHandler
from litestar.params import PathParameter

from skep.broker.spark.pipelines import (
    ArchiveCoverage,
    ArchivePage,
    PipelineDetail,
    PipelinePage,
    Pipelines,
    StopAsked,
)
from skep.server.auth.access import Level, needs
from skep.server.routes.parameters import LimitOrNone, Offset
from skep.server.routes.section import Section, refusal

_PATH: Final = "/api/v1/pipelines"
_ONE: Final = f"{_PATH}/{{name:str}}"
_UNKNOWN: Final = {404: refusal("There is no such pipeline.")}

PipelineName = Annotated[
    str, PathParameter(description="Name in the pipeline's definition, percent-encoded.")
]


def pipeline_routes(pipelines: Pipelines, coverage: ArchiveCoverage) -> list[HTTPRouteHandler]:
    """Declare the routes of pipelines and the archive."""
    section, read = Section("Pipelines"), needs(Level.READ_ONLY)

    @section.get(_PATH, read)
    async def list_pipelines(limit: LimitOrNone = 100, offset: Offset = 0) -> PipelinePage:
        """List the pipelines on Spark by name, with their last report."""
        return await pipelines.listed(limit=limit, offset=offset)

    @section.get(_ONE, read, responses=_UNKNOWN)
    async def show_pipeline(name: PipelineName) -> PipelineDetail:
        """Show a pipeline."""
        return await pipelines.show(name)

    @section.post(f"{_ONE}/stop", needs(Level.ADMIN), responses=_UNKNOWN)
    async def stop_pipeline(name: PipelineName) -> StopAsked:
        """Ask the runner of a pipeline to stop it.

        The runner notices within about a second; `state` becomes `stopped` then. A pipeline that
        is started again continues where it was.
        """
        return await pipelines.stop(name)

    @section.get("/api/v1/archive", read)
    async def list_archive(limit: LimitOrNone = 100, offset: Offset = 0) -> ArchivePage:
        """List which time of which queues is in the archive.

        Only queues that have an archive, or whose configuration asks for one.
        """
        return await coverage.listed(limit=limit, offset=offset)

    return section.routes
