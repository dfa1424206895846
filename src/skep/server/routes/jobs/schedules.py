"""The routes of schedules, which start chains by the clock."""

from typing import Annotated, Final, TypeAlias

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.params import PathParameter

from skep.jobs.schedules import ScheduleRow
from skep.jobs.service.service import JobService, ScheduleRequest
from skep.server.auth.access import Level, needs
from skep.server.routes.parameters import AfterName, Listed, PageSize
from skep.server.routes.section import AnyRequest, Body, Section, refusal

_PATH: Final = "/api/v1/schedules"
_ONE: Final = f"{_PATH}/{{name:str}}"
_NO_SCHEDULE: Final = {404: refusal("There is no such schedule.")}

ScheduleName: TypeAlias = Annotated[
    str,
    PathParameter(min_length=1, max_length=255, description="Schedule name, percent-encoded."),
]


class SchedulePage(Listed[ScheduleRow], frozen=True):
    """A page of schedules. Pass `after` to get the next page; null on the last one."""

    items: list[ScheduleRow]


class Deleted(msgspec.Struct, frozen=True):
    """The schedule that was deleted; the chains that it started continue."""

    deleted: str


_SCHEDULE: Final = Body(ScheduleRequest)


def schedule_routes(service: JobService) -> list[HTTPRouteHandler]:
    """Declare the routes of schedules."""
    section = Section("Schedules")
    read, admin = needs(Level.READ_ONLY), needs(Level.ADMIN)

    @section.get(_PATH, read)
    async def list_schedules(
        page_size: PageSize = 50, after_name: AfterName = None
    ) -> SchedulePage:
        """List schedules by name."""
        return SchedulePage.of(await service.schedules(after=after_name, limit=page_size))

    @section.get(_ONE, read, responses=_NO_SCHEDULE)
    async def show_schedule(name: ScheduleName) -> ScheduleRow:
        """Show a schedule, its last run and its next one."""
        return await service.schedule(name)

    @section.put(_ONE, admin, body=_SCHEDULE)
    async def put_schedule(name: ScheduleName, request: AnyRequest) -> ScheduleRow:
        """Create or change a schedule.

        If its times stay the same, no tick is missed or repeated.
        """
        return await service.put_schedule(name, await _SCHEDULE.read(request))

    @section.delete(_ONE, admin, responses=_NO_SCHEDULE)
    async def delete_schedule(name: ScheduleName) -> Deleted:
        """Delete a schedule; the chains that it started continue."""
        await service.delete_schedule(name)
        return Deleted(name)

    return section.routes
