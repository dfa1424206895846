"""The routes of schedules, which start chains by the clock."""

from typing import Annotated, Final, TypeAlias

import msgspec

from skep.jobs.schedules import ScheduleRow
from skep.jobs.service.service import JobService, ScheduleRequest
from skep.server.auth import access
from skep.server.routes.parameters import AfterName, Listed, PageSize
from skep.server.routes.section import Body, Section, in_path, routes_of

_PATH: Final = "/api/v1/schedules"
_ONE: Final = f"{_PATH}/{{name:str}}"
_NO_SCHEDULE: Final = {404: "There is no such schedule."}

ScheduleName: TypeAlias = Annotated[
    str, in_path("Schedule name, percent-encoded.", min_length=1, max_length=255)
]


class SchedulePage(Listed[ScheduleRow], frozen=True):
    """A page of schedules. Pass `after` to get the next page; null on the last one."""

    items: list[ScheduleRow]


class Deleted(msgspec.Struct, frozen=True):
    """The schedule that was deleted; the chains that it started continue."""

    deleted: str


@routes_of("Schedules")
def schedule_routes(section: Section, service: JobService) -> None:
    """Declare the routes of schedules."""

    @section.get(_PATH, access.READ)
    async def list_schedules(
        page_size: PageSize = 50, after_name: AfterName = None
    ) -> SchedulePage:
        """List schedules by name."""
        return SchedulePage.of(await service.schedules(after=after_name, limit=page_size))

    @section.get(_ONE, access.READ, responses=_NO_SCHEDULE)
    async def show_schedule(name: ScheduleName) -> ScheduleRow:
        """Show a schedule, its last run and its next one."""
        return await service.scheduler.find(name)

    @section.put(_ONE, access.ADMIN, body=Body(ScheduleRequest))
    async def put_schedule(name: ScheduleName, asked: ScheduleRequest) -> ScheduleRow:
        """Create or change a schedule.

        If its times stay the same, no tick is missed or repeated. What an application declares
        is overwritten when a worker of it starts, except that a pause stays.
        """
        return await service.put_schedule(name, asked)

    @section.post(f"{_ONE}/pause", access.ADMIN, responses=_NO_SCHEDULE)
    async def pause_schedule(name: ScheduleName) -> ScheduleRow:
        """Pause a schedule until it is resumed, whatever applications declare meanwhile."""
        await service.scheduler.pause(name)
        return await service.scheduler.find(name)

    @section.post(f"{_ONE}/resume", access.ADMIN, responses=_NO_SCHEDULE)
    async def resume_schedule(name: ScheduleName) -> ScheduleRow:
        """Resume a paused schedule with its next tick."""
        await service.scheduler.resume(name)
        return await service.scheduler.find(name)

    @section.delete(_ONE, access.ADMIN, responses=_NO_SCHEDULE)
    async def delete_schedule(name: ScheduleName) -> Deleted:
        """Delete a schedule; the chains that it started continue."""
        await service.delete_schedule(name)
        return Deleted(name)
