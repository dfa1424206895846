"""The messages that wait for their time: list, show, cancel, deliver now."""

from typing import Annotated, Final

import msgspec
from litestar import delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import Parameter, PathParameter

from skep.broker.scheduled.listing import Scheduled, WaitingMessageDetail, WaitingPage
from skep.broker.timestamps import wire_time
from skep.server.auth.access import Level, listed_by, needs
from skep.server.routes.refusals import UNREADABLE, refusal

_TAGS: Final = ["Scheduled messages"]
_PATH: Final = "/api/v1/scheduled"
_NOT_WAITING: Final = {404: refusal("It does not wait: delivered, cancelled or never scheduled.")}

Limit = Annotated[int, Parameter(ge=1, le=1000, description="The most messages to return.")]
After = Annotated[
    int, Parameter(ge=0, le=2**63 - 1, description="`nextAfter` of the page before; 0 begins.")
]
QueueFilter = Annotated[str | None, Parameter(description="Only of this queue.")]
PartitionFilter = Annotated[str | None, Parameter(description="Only of this partition.")]


ScheduledId = Annotated[int, PathParameter(description="The `scheduledId` of a push result.")]


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The message will not be delivered."""

    cancelled: bool = True
    id: str


class BroughtForward(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The message is due, and will be in its partition in a moment."""

    id: str
    deliver_at: str


def scheduled_routes(scheduled: Scheduled) -> list[HTTPRouteHandler]:
    """Make the routes around what the broker does."""

    @get(
        _PATH,
        operation_id="listScheduledMessages",
        opt=needs(Level.READ_ONLY, listed_by(queue="queue")),
        summary="List the messages that wait for their time",
        tags=_TAGS,
    )
    async def list_scheduled(
        queue: QueueFilter = None,
        partition: PartitionFilter = None,
        limit: Limit = 100,
        after: After = 0,
    ) -> WaitingPage:
        return await scheduled.list_messages(
            queue=queue, partition=partition, after=after, limit=limit
        )

    @get(
        f"{_PATH}/{{scheduled_id:int}}",
        operation_id="showScheduledMessage",
        opt=needs(Level.READ_ONLY),
        summary="Show a message that waits for its time",
        tags=_TAGS,
        responses={**_NOT_WAITING, **UNREADABLE},
    )
    async def show_scheduled(scheduled_id: ScheduledId) -> WaitingMessageDetail:
        return await scheduled.show(scheduled_id)

    @delete(
        f"{_PATH}/{{scheduled_id:int}}",
        operation_id="cancelScheduledMessage",
        opt=needs(Level.READ_WRITE),
        summary="Take back a message whose time has not come",
        tags=_TAGS,
        responses=_NOT_WAITING,
        status_code=200,
    )
    async def cancel_scheduled(scheduled_id: ScheduledId) -> Cancelled:
        await scheduled.cancel(scheduled_id)
        return Cancelled(id=str(scheduled_id))

    @post(
        f"{_PATH}/{{scheduled_id:int}}/deliver",
        operation_id="deliverScheduledMessage",
        opt=needs(Level.READ_WRITE),
        summary="Let the time of a message come now",
        tags=_TAGS,
        responses=_NOT_WAITING,
        status_code=200,
    )
    async def deliver_scheduled(scheduled_id: ScheduledId) -> BroughtForward:
        deliver_at = await scheduled.deliver(scheduled_id)
        return BroughtForward(id=str(scheduled_id), deliver_at=wire_time(deliver_at).decode())

    return [list_scheduled, show_scheduled, cancel_scheduled, deliver_scheduled]
