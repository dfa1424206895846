"""Scheduled messages, which wait for their delivery time: list, show, cancel, deliver now."""

from typing import Annotated, Final

import msgspec

from skep.broker.scheduled.listing import Scheduled, WaitingMessageDetail, WaitingPage
from skep.broker.timestamps import wire_time
from skep.server.auth import access
from skep.server.routes.parameters import Limit, OnlyQueue
from skep.server.routes.section import UNREADABLE, Section, in_path, in_query, routes_of

_PATH: Final = "/api/v1/scheduled"
_ONE: Final = f"{_PATH}/{{scheduled_id:str}}"
_NOT_WAITING: Final = {
    404: "The message does not wait: it was delivered, cancelled or never scheduled."
}

After = Annotated[int, in_query("`nextAfter` of the previous page, or 0.", ge=0, le=2**63 - 1)]
OnlyPartition = Annotated[str | None, in_query("Only this partition.")]
ScheduledId = Annotated[int, in_path("`scheduledId` of a push result.")]


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The message will not be delivered."""

    cancelled: bool = True
    id: str


class BroughtForward(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The message is due and moves to its partition at once."""

    id: str
    deliver_at: str


@routes_of("Scheduled messages")
def scheduled_routes(section: Section, scheduled: Scheduled) -> None:
    """Declare the routes of scheduled messages."""

    @section.get(_PATH, access.READ_LIST)
    async def list_scheduled_messages(
        queue: OnlyQueue = None,
        partition: OnlyPartition = None,
        limit: Limit = 100,
        after: After = 0,
    ) -> WaitingPage:
        """List scheduled messages."""
        return await scheduled.list_messages(
            queue=queue, partition=partition, after=after, limit=limit
        )

    @section.get(_ONE, access.READ, responses={**_NOT_WAITING, **UNREADABLE})
    async def show_scheduled_message(scheduled_id: ScheduledId) -> WaitingMessageDetail:
        """Show a scheduled message."""
        return await scheduled.show(scheduled_id)

    @section.delete(_ONE, access.WRITE, responses=_NOT_WAITING)
    async def cancel_scheduled_message(scheduled_id: ScheduledId) -> Cancelled:
        """Cancel a scheduled message before it is delivered."""
        await scheduled.cancel(scheduled_id)
        return Cancelled(id=str(scheduled_id))

    @section.post(f"{_ONE}/deliver", access.WRITE, responses=_NOT_WAITING)
    async def deliver_scheduled_message(scheduled_id: ScheduledId) -> BroughtForward:
        """Deliver a scheduled message now."""
        deliver_at = await scheduled.deliver(scheduled_id)
        return BroughtForward(id=str(scheduled_id), deliver_at=wire_time(deliver_at).decode())
