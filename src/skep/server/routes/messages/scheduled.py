"""Scheduled messages, which wait for their delivery time: list, show, cancel, deliver now."""

from typing import Annotated, Final

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.params import Parameter, PathParameter

from skep.broker.scheduled.listing import Scheduled, WaitingMessageDetail, WaitingPage
from skep.broker.timestamps import wire_time
from skep.server.auth.access import Level, listed_by, needs
from skep.server.routes.parameters import Limit, OnlyQueue
from skep.server.routes.section import UNREADABLE, Section, refusal

_PATH: Final = "/api/v1/scheduled"
_ONE: Final = f"{_PATH}/{{scheduled_id:int}}"
_NOT_WAITING: Final = {
    404: refusal("The message does not wait: it was delivered, cancelled or never scheduled.")
}

After = Annotated[
    int, Parameter(ge=0, le=2**63 - 1, description="`nextAfter` of the previous page, or 0.")
]
OnlyPartition = Annotated[str | None, Parameter(description="Only this partition.")]
ScheduledId = Annotated[int, PathParameter(description="`scheduledId` of a push result.")]


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The message will not be delivered."""

    cancelled: bool = True
    id: str


class BroughtForward(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The message is due and moves to its partition at once."""

    id: str
    deliver_at: str


def scheduled_routes(scheduled: Scheduled) -> list[HTTPRouteHandler]:
    """Declare the routes of scheduled messages."""
    section, write = Section("Scheduled messages"), needs(Level.READ_WRITE)

    @section.get(_PATH, needs(Level.READ_ONLY, listed_by(queue="queue")))
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

    @section.get(_ONE, needs(Level.READ_ONLY), responses={**_NOT_WAITING, **UNREADABLE})
    async def show_scheduled_message(scheduled_id: ScheduledId) -> WaitingMessageDetail:
        """Show a scheduled message."""
        return await scheduled.show(scheduled_id)

    @section.delete(_ONE, write, responses=_NOT_WAITING)
    async def cancel_scheduled_message(scheduled_id: ScheduledId) -> Cancelled:
        """Cancel a scheduled message before it is delivered."""
        await scheduled.cancel(scheduled_id)
        return Cancelled(id=str(scheduled_id))

    @section.post(f"{_ONE}/deliver", write, responses=_NOT_WAITING)
    async def deliver_scheduled_message(scheduled_id: ScheduledId) -> BroughtForward:
        """Deliver a scheduled message now."""
        deliver_at = await scheduled.deliver(scheduled_id)
        return BroughtForward(id=str(scheduled_id), deliver_at=wire_time(deliver_at).decode())

    return section.routes
