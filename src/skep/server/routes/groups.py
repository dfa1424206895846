"""Consumer groups: list, measure, seek, pause, delete, and export or import their positions.

A list that is a bare array on the wire has its total in `X-Total-Count`. Paths are matched as they
were sent, so a group named `lagging` is reached by escaping a letter of its name, as in
`/api/v1/consumer-groups/%6Cagging`.

The body of a seek names one target: `toEnd`, `toStart`, `timestamp`, or in one partition `offset`.
Where Queen needed no body, an empty one still means the end.
"""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from litestar import Response
from litestar.datastructures import ResponseHeader

from skep.broker.groups import progress, seek, subscriptions
from skep.broker.groups.condition import GroupCondition
from skep.server.auth import access
from skep.server.routes import parameters as given
from skep.server.routes.section import Body, Section, in_path, in_query, routes_of

GROUP_PATH: Final = "/api/v1/consumer-groups/{group:str}"
QUEUE_PATH: Final = GROUP_PATH + "/queues/{queue:str}"
PARTITION_PATH: Final = QUEUE_PATH + "/partitions/{partition:str}"
LAG_S_MAX: Final = 2**31 - 1

GroupName: TypeAlias = Annotated[str, in_path("Consumer group name, percent-encoded.")]
PartitionName: TypeAlias = Annotated[str, in_path("Partition name, percent-encoded.")]
MinLag: TypeAlias = Annotated[
    int,
    in_query(
        "Minimum age of the first unread message, in seconds.", "minLagSeconds", ge=0, le=LAG_S_MAX
    ),
]
DeleteMetadata: TypeAlias = Annotated[
    bool,
    in_query(
        "Also delete the subscription. If false, the group starts again by it.", "deleteMetadata"
    ),
]
To: TypeAlias = Annotated[Literal["start", "end"] | None, in_query("One end of the log.")]
Timestamp: TypeAlias = Annotated[
    str | None, in_query("The first message stored at this ISO 8601 time or later.")
]
MessageOffset: TypeAlias = Annotated[
    int | None, in_query("Offset of the next message to deliver.", "offset")
]

_TOTAL: Final = ResponseHeader(
    name="X-Total-Count", documentation_only=True, description="Total number of rows."
)
_PARTIAL: Final = ResponseHeader(
    name="X-Estimated",
    documentation_only=True,
    description="`true` when there are more than were examined.",
)


def _page_headers(total: int, is_partial: bool) -> dict[str, str]:
    return {"X-Total-Count": str(total), "X-Estimated": "true" if is_partial else "false"}


class SubscriptionChange(msgspec.Struct, rename="camel", frozen=True):
    """Where a group's subscriptions start."""

    subscription_timestamp: str
    """ISO 8601."""


class SeekRequest(msgspec.Struct, rename="camel", frozen=True):
    """Where to move the group: exactly one of the first four."""

    to_end: bool = False
    to_start: bool = False
    timestamp: str | None = None
    """ISO 8601: the first message stored at this time or later comes next."""
    offset: int | None = None
    """The message that comes next, in one partition only."""
    create: bool = False
    """Subscribe the group if it does not exist."""

    def aim(self) -> seek.Aim:
        """Return the target."""
        return seek.choose_aim(
            to_end=self.to_end,
            to_start=self.to_start,
            timestamp=self.timestamp,
            offset=self.offset,
        )


class PositionsRequest(msgspec.Struct, rename="camel", frozen=True):
    """Positions to set. The group is subscribed if it does not exist."""

    offsets: dict[str, int]
    """By partition name, the last offset that is done."""


_CHANGE: Final = Body(
    SubscriptionChange, wording={".subscriptionTimestamp": "subscriptionTimestamp is required"}
)
_POSITIONS: Final = Body(PositionsRequest, wording={".offsets": "offsets is required"})


@routes_of("Consumer groups")
def group_routes(
    section: Section,
    groups: progress.Groups,
    subscribed: subscriptions.Subscriptions,
    seeker: seek.Seek,
) -> None:
    """Declare the routes of consumer groups."""

    @section.get("/api/v1/consumer-groups", access.READ_LIST, response_headers=[_TOTAL, _PARTIAL])
    async def list_consumer_groups(
        page: given.Rows = given.FIRST_1000,
        only_queue: given.OnlyQueue = None,
        condition: Annotated[
            GroupCondition | None, in_query("Only groups in this condition.")
        ] = None,
        sort: Annotated[
            progress.GroupOrder,
            in_query("Order of the rows: by group and queue, or those in need first."),
        ] = "name",
    ) -> Response[list[progress.GroupEntry]]:
        """List consumer groups, one entry per group and queue.

        With `condition` or `sort=worst`, a thousand groups at most are examined.
        """
        found = await groups.list_groups(page, queue=only_queue, condition=condition, order=sort)
        return Response(found.entries, headers=_page_headers(found.total, found.is_partial))

    @section.get(
        "/api/v1/consumer-groups/lagging", access.READ_LIST, response_headers=[_TOTAL, _PARTIAL]
    )
    async def list_lagging_partitions(
        min_lag: MinLag = 3600,
        page: given.Rows = given.FIRST_1000,
        only_group: given.OnlyGroup = None,
        only_queue: given.OnlyQueue = None,
    ) -> Response[list[progress.LaggingPartition]]:
        """List the partitions whose first unread message is oldest, worst first."""
        found = await groups.find_lagging(min_lag, page, group=only_group, queue=only_queue)
        return Response(found.partitions, headers=_page_headers(found.total, found.is_partial))

    @section.get(GROUP_PATH, access.READ_LIST)
    async def describe_consumer_group(
        group: GroupName, page: given.Rows = given.FIRST_1000, only_queue: given.OnlyQueue = None
    ) -> dict[str, progress.QueueProgress]:
        """Show the progress of a group in its partitions, by queue.

        The page counts partitions over all queues, by queue name.
        """
        return await groups.describe_group(group, page, queue=only_queue)

    @section.get(QUEUE_PATH + "/lag", access.READ_QUEUE)
    async def measure_consumer_group_lag(
        group: GroupName, queue: given.QueueName, page: given.Rows = given.FIRST_100
    ) -> progress.GroupLag:
        """Show the lag of a group on a queue, in messages and seconds."""
        return await groups.measure_lag(group, queue, page)

    @section.delete(GROUP_PATH, access.ADMIN)
    async def delete_consumer_group(
        group: GroupName, delete_metadata: DeleteMetadata = True
    ) -> subscriptions.DeletedGroup:
        """Delete the progress of a group on all its queues."""
        return await subscribed.delete_group(group, forget_subscription=delete_metadata)

    @section.delete(QUEUE_PATH, access.ADMIN_QUEUE)
    async def delete_consumer_group_from_queue(
        group: GroupName, queue: given.QueueName, delete_metadata: DeleteMetadata = True
    ) -> subscriptions.DeletedFromQueue:
        """Delete the progress of a group on one queue."""
        return await subscribed.delete_from_queue(group, queue, forget_subscription=delete_metadata)

    @section.post(GROUP_PATH + "/subscription", access.WRITE, body=_CHANGE)
    async def change_subscription(
        group: GroupName, asked: SubscriptionChange
    ) -> subscriptions.ChangedSubscription:
        """Set the time at which a group starts when its progress is deleted.

        Cursors stay where they are; a seek moves them.
        """
        return await subscribed.change_start(group, asked.subscription_timestamp)

    @section.post(QUEUE_PATH + "/pause", access.WRITE_QUEUE)
    async def pause_consumer_group(
        group: GroupName, queue: given.QueueName
    ) -> subscriptions.PausedGroup:
        """Pause the delivery to a group."""
        return await subscribed.set_paused(group, queue, is_paused=True)

    @section.post(QUEUE_PATH + "/resume", access.WRITE_QUEUE)
    async def resume_consumer_group(
        group: GroupName, queue: given.QueueName
    ) -> subscriptions.PausedGroup:
        """Resume the delivery to a group."""
        return await subscribed.set_paused(group, queue, is_paused=False)

    @section.post(QUEUE_PATH + "/seek", access.WRITE_QUEUE, body=Body(SeekRequest))
    async def seek_queue(
        group: GroupName, queue: given.QueueName, asked: SeekRequest
    ) -> seek.SoughtQueue:
        """Move a group in all partitions of a queue."""
        return await seeker.seek_queue(group, queue, asked.aim(), create=asked.create)

    @section.get(QUEUE_PATH + "/seek/preview", access.READ_QUEUE)
    async def preview_seek_queue(
        group: GroupName, queue: given.QueueName, to: To = None, timestamp: Timestamp = None
    ) -> seek.SeekPreview:
        """Show what a seek in all partitions of a queue would skip and replay."""
        asked = SeekRequest(to == "end", to == "start", timestamp)
        return await seeker.preview_queue(group, queue, asked.aim())

    @section.post(
        PARTITION_PATH + "/seek", access.WRITE_QUEUE, body=Body(SeekRequest, is_required=False)
    )
    async def seek_partition(
        group: GroupName, queue: given.QueueName, partition: PartitionName, asked: SeekRequest
    ) -> seek.SoughtPartition:
        """Move a group in one partition.

        Without a body it moves to the end and skips everything stored so far.
        """
        if asked == SeekRequest(create=asked.create):
            asked = SeekRequest(to_end=True, create=asked.create)
        return await seeker.seek_partition(
            group, queue, partition, asked.aim(), create=asked.create
        )

    @section.get(PARTITION_PATH + "/seek/preview", access.READ_QUEUE)
    async def preview_seek_partition(
        group: GroupName,
        queue: given.QueueName,
        partition: PartitionName,
        to: To = None,
        timestamp: Timestamp = None,
        message_offset: MessageOffset = None,
    ) -> seek.SeekPreview:
        """Show what a seek in one partition would skip and replay."""
        asked = SeekRequest(to == "end", to == "start", timestamp, message_offset)
        return await seeker.preview_partition(group, queue, partition, asked.aim())

    @section.get(QUEUE_PATH + "/offsets", access.READ_QUEUE)
    async def export_positions(
        group: GroupName, queue: given.QueueName, page: given.Rows = given.FIRST_1000
    ) -> seek.Positions:
        """Export the positions of a group, to import them later."""
        return await seeker.export_positions(group, queue, page)

    @section.put(QUEUE_PATH + "/offsets", access.WRITE_QUEUE, body=_POSITIONS)
    async def import_positions(
        group: GroupName, queue: given.QueueName, asked: PositionsRequest
    ) -> seek.ImportedPositions:
        """Set the positions of a group."""
        return await seeker.import_positions(group, queue, asked.offsets)
