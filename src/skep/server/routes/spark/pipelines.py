"""The pipelines on Spark: list, show, stop."""

from typing import Annotated, Final

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import PathParameter

from skep.broker.spark.pipelines import PipelineDetail, PipelinePage, Pipelines, StopAsked
from skep.server.auth.access import Level, needs
from skep.server.routes.paging import Limit, Offset
from skep.server.routes.refusals import refusal

_TAGS: Final = ["Pipelines"]
_PATH: Final = "/api/v1/pipelines"
_UNKNOWN: Final = {404: refusal("There is no pipeline of that name.")}

PipelineName = Annotated[
    str, PathParameter(description="The name in the pipeline's definition, percent-encoded.")
]


def pipeline_routes(pipelines: Pipelines) -> list[HTTPRouteHandler]:
    """Make the routes around the record of pipelines."""

    @get(
        _PATH,
        operation_id="listPipelines",
        opt=needs(Level.READ_ONLY),
        summary="List the pipelines on Spark",
        description="By name, with what whoever runs them reported last.",
        tags=_TAGS,
    )
    async def list_pipelines(limit: Limit = 100, offset: Offset = 0) -> PipelinePage:
        return await pipelines.listed(limit=limit, offset=offset)

    @get(
        f"{_PATH}/{{name:str}}",
        operation_id="showPipeline",
        opt=needs(Level.READ_ONLY),
        summary="Show a pipeline",
        tags=_TAGS,
        responses=_UNKNOWN,
    )
    async def show_pipeline(name: PipelineName) -> PipelineDetail:
        return await pipelines.show(name)

    @post(
        f"{_PATH}/{{name:str}}/stop",
        operation_id="stopPipeline",
        opt=needs(Level.ADMIN),
        summary="Ask whoever runs a pipeline to stop it",
        description=(
            "Whoever runs it hears of it within a second or so; `state` becomes `stopped` then. "
            "It can be started again and goes on where it was."
        ),
        tags=_TAGS,
        responses=_UNKNOWN,
        status_code=200,
    )
    async def stop_pipeline(name: PipelineName) -> StopAsked:
        return await pipelines.stop(name)

    return [list_pipelines, show_pipeline, stop_pipeline]
