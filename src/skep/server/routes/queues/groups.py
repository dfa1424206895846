"""Consumer groups: list them, measure their lag, delete, pause and resume them.

A list that is a bare array on the wire has its total in `X-Total-Count`. Paths are matched as they
were sent, so a group named `lagging` is reached by escaping a letter of its name, as in
`/api/v1/consumer-groups/%6Cagging`.
"""

from typing import Annotated, Final, TypeAlias

import msgspec
from litestar import Response
from litestar.datastructures import ResponseHeader
from litestar.handlers import HTTPRouteHandler
from litestar.params import Parameter, QueryParameter

from skep.broker.groups.progress import (
    GroupEntry,
    GroupLag,
    Groups,
    LaggingPartition,
    QueueProgress,
)
from skep.broker.groups.subscriptions import (
    ChangedSubscription,
    DeletedFromQueue,
    DeletedGroup,
    PausedGroup,
    Subscriptions,
)
from skep.broker.paging import Page
from skep.server.auth.access import QUEUE, Level, listed_by, needs
from skep.server.routes.parameters import Limit, Offset, OnlyGroup, OnlyQueue, QueueName
from skep.server.routes.section import AnyRequest, Body, Section

GROUP_PATH: Final = "/api/v1/consumer-groups/{group:str}"
QUEUE_PATH: Final = GROUP_PATH + "/queues/{queue:str}"
TAG: Final = "Consumer groups"
LAG_S_MAX: Final = 2**31 - 1

GroupName: TypeAlias = Annotated[
    str, Parameter(description="Consumer group name, percent-encoded.")
]
MinLag: TypeAlias = Annotated[
    int,
    QueryParameter(
        name="minLagSeconds",
        ge=0,
        le=LAG_S_MAX,
        description="Minimum age of the first unread message, in seconds.",
    ),
]
DeleteMetadata: TypeAlias = Annotated[
    bool,
    QueryParameter(
        name="deleteMetadata",
        description="Also delete the subscription. If false, the group starts again by it.",
    ),
]

_TOTAL: Final = ResponseHeader(
    name="X-Total-Count", documentation_only=True, description="Total number of rows."
)
_PARTIAL: Final = ResponseHeader(
    name="X-Estimated",
    documentation_only=True,
    description="`true` when more partitions lag than were examined.",
)


class SubscriptionChange(msgspec.Struct, rename="camel", frozen=True):
    """Where a group's subscriptions start."""

    subscription_timestamp: str
    """ISO 8601."""


_CHANGE: Final = Body(
    SubscriptionChange, wording={".subscriptionTimestamp": "subscriptionTimestamp is required"}
)


def group_routes(groups: Groups, subscriptions: Subscriptions) -> list[HTTPRouteHandler]:
    """Declare the routes of consumer groups."""
    section = Section(TAG)
    by_queue = needs(Level.READ_ONLY, listed_by(queue="queue"))
    write = needs(Level.READ_WRITE, QUEUE)

    @section.get("/api/v1/consumer-groups", by_queue, response_headers=[_TOTAL])
    async def list_consumer_groups(
        limit: Limit = 1000, offset: Offset = 0, only_queue: OnlyQueue = None
    ) -> Response[list[GroupEntry]]:
        """List consumer groups, one entry per group and queue."""
        found = await groups.list_groups(Page(limit, offset), queue=only_queue)
        return Response(found.entries, headers={"X-Total-Count": str(found.total)})

    @section.get("/api/v1/consumer-groups/lagging", by_queue, response_headers=[_TOTAL, _PARTIAL])
    async def list_lagging_partitions(
        min_lag: MinLag = 3600,
        limit: Limit = 1000,
        offset: Offset = 0,
        only_group: OnlyGroup = None,
        only_queue: OnlyQueue = None,
    ) -> Response[list[LaggingPartition]]:
        """List the partitions whose first unread message is oldest, worst first."""
        found = await groups.find_lagging(
            min_lag, Page(limit, offset), group=only_group, queue=only_queue
        )
        headers = {
            "X-Total-Count": str(found.total),
            "X-Estimated": "true" if found.is_partial else "false",
        }
        return Response(found.partitions, headers=headers)

    @section.get(GROUP_PATH, by_queue)
    async def describe_consumer_group(
        group: GroupName, limit: Limit = 1000, offset: Offset = 0, only_queue: OnlyQueue = None
    ) -> dict[str, QueueProgress]:
        """Show the progress of a group in its partitions, by queue.

        The page counts partitions over all queues, by queue name.
        """
        return await groups.describe_group(group, Page(limit, offset), queue=only_queue)

    @section.get(QUEUE_PATH + "/lag", needs(Level.READ_ONLY, QUEUE))
    async def measure_consumer_group_lag(
        group: GroupName, queue: QueueName, limit: Limit = 100, offset: Offset = 0
    ) -> GroupLag:
        """Show the lag of a group on a queue, in messages and seconds."""
        return await groups.measure_lag(group, queue, Page(limit, offset))

    @section.delete(GROUP_PATH, needs(Level.ADMIN))
    async def delete_consumer_group(
        group: GroupName, delete_metadata: DeleteMetadata = True
    ) -> DeletedGroup:
        """Delete the progress of a group on all its queues."""
        return await subscriptions.delete_group(group, forget_subscription=delete_metadata)

    @section.delete(QUEUE_PATH, needs(Level.ADMIN, QUEUE))
    async def delete_consumer_group_from_queue(
        group: GroupName, queue: QueueName, delete_metadata: DeleteMetadata = True
    ) -> DeletedFromQueue:
        """Delete the progress of a group on one queue."""
        return await subscriptions.delete_from_queue(
            group, queue, forget_subscription=delete_metadata
        )

    @section.post(GROUP_PATH + "/subscription", needs(Level.READ_WRITE), body=_CHANGE)
    async def change_subscription(group: GroupName, request: AnyRequest) -> ChangedSubscription:
        """Set the time at which a group starts when its progress is deleted.

        Cursors stay where they are; a seek moves them.
        """
        change = await _CHANGE.read(request)
        return await subscriptions.change_start(group, change.subscription_timestamp)

    @section.post(QUEUE_PATH + "/pause", write)
    async def pause_consumer_group(group: GroupName, queue: QueueName) -> PausedGroup:
        """Pause the delivery to a group."""
        return await subscriptions.set_paused(group, queue, is_paused=True)

    @section.post(QUEUE_PATH + "/resume", write)
    async def resume_consumer_group(group: GroupName, queue: QueueName) -> PausedGroup:
        """Resume the delivery to a group."""
        return await subscriptions.set_paused(group, queue, is_paused=False)

    return section.routes
