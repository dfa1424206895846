"""Seek: move consumer groups, preview that, and export or import their positions.

A body names one target: `toEnd`, `toStart`, `timestamp`, or in one partition `offset`. Where Queen
needed no body, an empty one still means the end.
"""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.params import Parameter, QueryParameter

from skep.broker.groups.seek import (
    Aim,
    ImportedPositions,
    Positions,
    Seek,
    SeekPreview,
    SoughtPartition,
    SoughtQueue,
    choose_aim,
)
from skep.broker.paging import Page
from skep.server.auth.access import QUEUE, Level, needs
from skep.server.routes.parameters import Limit, Offset, QueueName
from skep.server.routes.queues.groups import QUEUE_PATH, TAG, GroupName
from skep.server.routes.section import AnyRequest, Body, Section

PARTITION_PATH: Final = QUEUE_PATH + "/partitions/{partition:str}"

PartitionName: TypeAlias = Annotated[str, Parameter(description="Partition name, percent-encoded.")]
To: TypeAlias = Annotated[
    Literal["start", "end"] | None, Parameter(description="One end of the log.")
]
Timestamp: TypeAlias = Annotated[
    str | None, Parameter(description="The first message stored at this ISO 8601 time or later.")
]
MessageOffset: TypeAlias = Annotated[
    int | None, QueryParameter(name="offset", description="Offset of the next message to deliver.")
]


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


class PositionsRequest(msgspec.Struct, rename="camel", frozen=True):
    """Positions to set. The group is subscribed if it does not exist."""

    offsets: dict[str, int]
    """By partition name, the last offset that is done."""


_SEEK: Final = Body(SeekRequest)
_SEEK_OR_END: Final = Body(SeekRequest, is_required=False)
_POSITIONS: Final = Body(PositionsRequest, wording={".offsets": "offsets is required"})


def seek_routes(seek: Seek) -> list[HTTPRouteHandler]:
    """Declare the routes that move groups."""
    section = Section(TAG)
    read, write = needs(Level.READ_ONLY, QUEUE), needs(Level.READ_WRITE, QUEUE)

    @section.post(QUEUE_PATH + "/seek", write, body=_SEEK)
    async def seek_queue(group: GroupName, queue: QueueName, request: AnyRequest) -> SoughtQueue:
        """Move a group in all partitions of a queue."""
        asked = await _SEEK.read(request)
        return await seek.seek_queue(group, queue, _aim_of(asked), create=asked.create)

    @section.get(QUEUE_PATH + "/seek/preview", read)
    async def preview_seek_queue(
        group: GroupName, queue: QueueName, to: To = None, timestamp: Timestamp = None
    ) -> SeekPreview:
        """Show what a seek in all partitions of a queue would skip and replay."""
        aim = choose_aim(to_end=to == "end", to_start=to == "start", timestamp=timestamp)
        return await seek.preview_queue(group, queue, aim)

    @section.post(PARTITION_PATH + "/seek", write, body=_SEEK_OR_END)
    async def seek_partition(
        group: GroupName, queue: QueueName, partition: PartitionName, request: AnyRequest
    ) -> SoughtPartition:
        """Move a group in one partition.

        Without a body it moves to the end and skips everything stored so far.
        """
        asked = await _SEEK_OR_END.read(request)
        if asked == SeekRequest(create=asked.create):
            asked = SeekRequest(to_end=True, create=asked.create)
        return await seek.seek_partition(
            group, queue, partition, _aim_of(asked), create=asked.create
        )

    @section.get(PARTITION_PATH + "/seek/preview", read)
    async def preview_seek_partition(
        group: GroupName,
        queue: QueueName,
        partition: PartitionName,
        to: To = None,
        timestamp: Timestamp = None,
        message_offset: MessageOffset = None,
    ) -> SeekPreview:
        """Show what a seek in one partition would skip and replay."""
        aim = choose_aim(
            to_end=to == "end",
            to_start=to == "start",
            timestamp=timestamp,
            offset=message_offset,
        )
        return await seek.preview_partition(group, queue, partition, aim)

    @section.get(QUEUE_PATH + "/offsets", read)
    async def export_positions(
        group: GroupName, queue: QueueName, limit: Limit = 1000, offset: Offset = 0
    ) -> Positions:
        """Export the positions of a group, to import them later."""
        return await seek.export_positions(group, queue, Page(limit, offset))

    @section.put(QUEUE_PATH + "/offsets", write, body=_POSITIONS)
    async def import_positions(
        group: GroupName, queue: QueueName, request: AnyRequest
    ) -> ImportedPositions:
        """Set the positions of a group."""
        asked = await _POSITIONS.read(request)
        return await seek.import_positions(group, queue, asked.offsets)

    return section.routes


def _aim_of(asked: SeekRequest) -> Aim:
    return choose_aim(
        to_end=asked.to_end,
        to_start=asked.to_start,
        timestamp=asked.timestamp,
        offset=asked.offset,
    )
