"""The routes of schedules: what starts chains by the clock."""

from typing import Annotated, Any, Final, TypeAlias

import msgspec
from litestar import Request, delete, get, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import PathParameter

from skep.jobs.schedules import ScheduleRow
from skep.jobs.service.service import JobService, ScheduleRequest
from skep.server.api_document.bodies import body_of
from skep.server.auth.access import Level, needs
from skep.server.hot.decoding import decode_body
from skep.server.routes.jobs.parameters import AfterName, PageSize, listed
from skep.server.routes.refusals import refusal

_TAGS: Final = ["Schedules"]
_PATH: Final = "/api/v1/schedules"
_ONE: Final = f"{_PATH}/{{name:str}}"
_NO_SCHEDULE: Final = {404: refusal("There is no such schedule.")}

ScheduleName: TypeAlias = Annotated[
    str,
    PathParameter(
        min_length=1, max_length=255, description="The schedule's name, percent-encoded."
    ),
]


class SchedulePage(msgspec.Struct, frozen=True):
    """Some of the schedules; `after` asks for more, null at the end."""

    items: list[ScheduleRow]
    after: str | None


class Deleted(msgspec.Struct, frozen=True):
    """The schedule that is gone; the chains that it started go on."""

    deleted: str


_request = msgspec.json.Decoder(ScheduleRequest)


def schedule_routes(desk: JobService) -> list[HTTPRouteHandler]:
    """Make the routes around what can be done with schedules."""

    @get(
        _PATH,
        operation_id="listSchedules",
        opt=needs(Level.READ_ONLY),
        summary="List schedules in the order of their names",
        tags=_TAGS,
    )
    async def list_schedules(
        page_size: PageSize = 50, after_name: AfterName = None
    ) -> SchedulePage:
        return listed(SchedulePage, await desk.schedules(after=after_name, limit=page_size))

    @get(
        _ONE,
        operation_id="showSchedule",
        opt=needs(Level.READ_ONLY),
        responses=_NO_SCHEDULE,
        summary="Show a schedule, when it ran last and when it runs next",
        tags=_TAGS,
    )
    async def show_schedule(name: ScheduleName) -> ScheduleRow:
        return await desk.schedule(name)

    @put(
        _ONE,
        operation_id="putSchedule",
        operation_class=body_of(ScheduleRequest),
        opt=needs(Level.ADMIN),
        summary="Make or change a schedule",
        description="With the same times it keeps its place: no tick is missed or repeated.",
        tags=_TAGS,
    )
    async def put_schedule(name: ScheduleName, request: Request[Any, Any, Any]) -> ScheduleRow:
        return await desk.put_schedule(name, decode_body(_request, await request.body(), {}))

    @delete(
        _ONE,
        status_code=200,
        operation_id="deleteSchedule",
        opt=needs(Level.ADMIN),
        responses=_NO_SCHEDULE,
        summary="Forget a schedule; the chains that it started go on",
        tags=_TAGS,
    )
    async def delete_schedule(name: ScheduleName) -> Deleted:
        await desk.delete_schedule(name)
        return Deleted(name)

    return [list_schedules, show_schedule, put_schedule, delete_schedule]
