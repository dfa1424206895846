"""Consumer groups: list them, see their lag, delete, pause and resume them.

Thin: parameters in, answers out. A list that is a bare array on the wire tells its whole length in
`X-Total-Count`. Paths are matched as they were sent, so a group that is named `lagging` is reached
by spelling its name with an escape, as in `/api/v1/consumer-groups/%6Cagging`.
"""

from typing import Annotated, Any, Final, TypeAlias

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.datastructures import ResponseHeader
from litestar.handlers import HTTPRouteHandler
from litestar.params import Parameter, QueryParameter

from skep.broker.groups.groups import GroupEntry, GroupLag, Groups, LaggingPartition, QueueProgress
from skep.broker.groups.subscriptions import (
    ChangedSubscription,
    DeletedFromQueue,
    DeletedGroup,
    PausedGroup,
    Subscriptions,
)
from skep.broker.paging import Page
from skep.server.api_document.bodies import body_of
from skep.server.auth.access import QUEUE, Level, listed_by, needs
from skep.server.hot.decoding import decode_body

GROUP_PATH: Final = "/api/v1/consumer-groups/{group:str}"
QUEUE_PATH: Final = GROUP_PATH + "/queues/{queue:str}"
TAGS: Final = ["Consumer groups"]

LAG_S_MAX: Final = 2**31 - 1
OFFSET_MAX: Final = 2**31 - 1

Limit: TypeAlias = Annotated[int, Parameter(ge=1, le=1000, description="The most to return.")]
Offset: TypeAlias = Annotated[
    int, Parameter(ge=0, le=OFFSET_MAX, description="How many to pass over.")
]
GroupName: TypeAlias = Annotated[str, Parameter(description="The group, percent-encoded.")]
QueueName: TypeAlias = Annotated[str, Parameter(description="The queue, percent-encoded.")]
OnlyQueue: TypeAlias = Annotated[
    str | None, QueryParameter(name="queue", description="Only of this queue.")
]
OnlyGroup: TypeAlias = Annotated[
    str | None, QueryParameter(name="consumerGroup", description="Only of this group.")
]
MinLag: TypeAlias = Annotated[
    int,
    QueryParameter(
        name="minLagSeconds",
        ge=0,
        le=LAG_S_MAX,
        description="The least age of the first unread message.",
    ),
]
DeleteMetadata: TypeAlias = Annotated[
    bool,
    QueryParameter(
        name="deleteMetadata",
        description="Forget the subscription, too. If not, the group starts again by it.",
    ),
]

_TOTAL: Final = ResponseHeader(
    name="X-Total-Count", documentation_only=True, description="How many there are in all."
)
_PARTIAL: Final = ResponseHeader(
    name="X-Estimated",
    documentation_only=True,
    description="`true` when more partitions are behind than were looked at.",
)


class SubscriptionChange(msgspec.Struct, rename="camel", frozen=True):
    """Where a group's subscriptions are to start."""

    subscription_timestamp: str
    """ISO 8601."""


_change_decoder = msgspec.json.Decoder(SubscriptionChange)
_CHANGE_WORDS: Final = {".subscriptionTimestamp": "subscriptionTimestamp is required"}


def group_routes(groups: Groups, subscriptions: Subscriptions) -> list[HTTPRouteHandler]:
    """Make the routes around what the broker does."""
    return [*_listings(groups), *_changes(subscriptions)]


def _listings(groups: Groups) -> list[HTTPRouteHandler]:
    @get(
        "/api/v1/consumer-groups",
        operation_id="listConsumerGroups",
        opt=needs(Level.READ_ONLY, listed_by(queue="queue")),
        summary="Consumer groups, one entry per group and queue",
        tags=TAGS,
        response_headers=[_TOTAL],
    )
    async def list_groups(
        limit: Limit = 1000, offset: Offset = 0, only_queue: OnlyQueue = None
    ) -> Response[list[GroupEntry]]:
        found = await groups.list_groups(Page(limit, offset), queue=only_queue)
        return Response(found.entries, headers={"X-Total-Count": str(found.total)})

    @get(
        "/api/v1/consumer-groups/lagging",
        operation_id="listLaggingPartitions",
        opt=needs(Level.READ_ONLY, listed_by(queue="queue")),
        summary="Partitions whose first unread message is oldest, worst first",
        tags=TAGS,
        response_headers=[_TOTAL, _PARTIAL],
    )
    async def list_lagging(
        min_lag: MinLag = 3600,
        limit: Limit = 1000,
        offset: Offset = 0,
        only_group: OnlyGroup = None,
        only_queue: OnlyQueue = None,
    ) -> Response[list[LaggingPartition]]:
        found = await groups.find_lagging(
            min_lag, Page(limit, offset), group=only_group, queue=only_queue
        )
        headers = {
            "X-Total-Count": str(found.total),
            "X-Estimated": "true" if found.is_partial else "false",
        }
        return Response(found.partitions, headers=headers)

    @get(
        GROUP_PATH,
        operation_id="describeConsumerGroup",
        opt=needs(Level.READ_ONLY, listed_by(queue="queue")),
        summary="Progress of a group in its partitions, by queue",
        description="The page counts partitions, over all queues in the order of their names.",
        tags=TAGS,
    )
    async def describe_group(
        group: GroupName, limit: Limit = 1000, offset: Offset = 0, only_queue: OnlyQueue = None
    ) -> dict[str, QueueProgress]:
        return await groups.describe_group(group, Page(limit, offset), queue=only_queue)

    @get(
        QUEUE_PATH + "/lag",
        operation_id="measureConsumerGroupLag",
        opt=needs(Level.READ_ONLY, QUEUE),
        summary="Lag of a group on a queue, in messages and seconds",
        tags=TAGS,
    )
    async def measure_lag(
        group: GroupName, queue: QueueName, limit: Limit = 100, offset: Offset = 0
    ) -> GroupLag:
        return await groups.measure_lag(group, queue, Page(limit, offset))

    return [list_groups, list_lagging, describe_group, measure_lag]


def _changes(subscriptions: Subscriptions) -> list[HTTPRouteHandler]:
    @delete(
        GROUP_PATH,
        status_code=200,
        operation_id="deleteConsumerGroup",
        opt=needs(Level.ADMIN),
        summary="Forget the progress of a group on all its queues",
        tags=TAGS,
    )
    async def delete_group(
        group: GroupName, delete_metadata: DeleteMetadata = True
    ) -> DeletedGroup:
        return await subscriptions.delete_group(group, forget_subscription=delete_metadata)

    @delete(
        QUEUE_PATH,
        status_code=200,
        operation_id="deleteConsumerGroupFromQueue",
        opt=needs(Level.ADMIN, QUEUE),
        summary="Forget the progress of a group on one queue",
        tags=TAGS,
    )
    async def delete_from_queue(
        group: GroupName, queue: QueueName, delete_metadata: DeleteMetadata = True
    ) -> DeletedFromQueue:
        return await subscriptions.delete_from_queue(
            group, queue, forget_subscription=delete_metadata
        )

    @post(
        GROUP_PATH + "/subscription",
        status_code=200,
        operation_id="changeSubscription",
        opt=needs(Level.READ_WRITE),
        operation_class=body_of(SubscriptionChange),
        summary="Let a group start at another time when its progress is forgotten",
        description="Cursors stay where they are; a seek moves them.",
        tags=TAGS,
    )
    async def change_subscription(
        group: GroupName, request: Request[Any, Any, Any]
    ) -> ChangedSubscription:
        change = decode_body(_change_decoder, await request.body(), _CHANGE_WORDS)
        return await subscriptions.change_start(group, change.subscription_timestamp)

    @post(
        QUEUE_PATH + "/pause",
        status_code=200,
        operation_id="pauseConsumerGroup",
        opt=needs(Level.READ_WRITE, QUEUE),
        summary="Deliver nothing more to a group",
        tags=TAGS,
    )
    async def pause_group(group: GroupName, queue: QueueName) -> PausedGroup:
        return await subscriptions.set_paused(group, queue, is_paused=True)

    @post(
        QUEUE_PATH + "/resume",
        status_code=200,
        operation_id="resumeConsumerGroup",
        opt=needs(Level.READ_WRITE, QUEUE),
        summary="Deliver to a group again",
        tags=TAGS,
    )
    async def resume_group(group: GroupName, queue: QueueName) -> PausedGroup:
        return await subscriptions.set_paused(group, queue, is_paused=False)

    return [delete_group, delete_from_queue, change_subscription, pause_group, resume_group]
