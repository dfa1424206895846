"""Seek: move consumer groups, preview that, and export or import their positions.

A body names one aim: `toEnd`, `toStart`, `timestamp`, or in one partition `offset`. Where Queen
needed no body, an empty one still means the end.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from litestar import Request, get, post, put
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
from skep.server.api_document.bodies import body_of
from skep.server.auth.access import QUEUE, Level, needs
from skep.server.hot.decoding import decode_body
from skep.server.routes.queues.groups import (
    QUEUE_PATH,
    TAGS,
    GroupName,
    Limit,
    Offset,
    QueueName,
)

PARTITION_PATH: Final = QUEUE_PATH + "/partitions/{partition:str}"

PartitionName: TypeAlias = Annotated[str, Parameter(description="The partition, percent-encoded.")]
To: TypeAlias = Annotated[
    Literal["start", "end"] | None, Parameter(description="One end of the log.")
]
Timestamp: TypeAlias = Annotated[
    str | None, Parameter(description="The first message stored then or later; ISO 8601.")
]
MessageOffset: TypeAlias = Annotated[
    int | None, QueryParameter(name="offset", description="The message to deliver next.")
]


class SeekRequest(msgspec.Struct, rename="camel", frozen=True):
    """Where to go: exactly one of the first four."""

    to_end: bool = False
    to_start: bool = False
    timestamp: str | None = None
    """ISO 8601: the first message stored then or later comes next."""
    offset: int | None = None
    """The message that comes next, in one partition only."""
    create: bool = False
    """Subscribe the group if it does not exist."""


class PositionsRequest(msgspec.Struct, rename="camel", frozen=True):
    """Positions to set. The group is subscribed if it does not exist."""

    offsets: dict[str, int]
    """By partition name, the last offset that is done."""


_seek_decoder = msgspec.json.Decoder(SeekRequest)
_positions_decoder = msgspec.json.Decoder(PositionsRequest)
_POSITIONS_WORDS: Final = {".offsets": "offsets is required"}


def seek_routes(seek: Seek) -> list[HTTPRouteHandler]:
    """Make the routes around what the broker does."""
    return [*_queue_routes(seek), *_partition_routes(seek), *_position_routes(seek)]


def _queue_routes(seek: Seek) -> list[HTTPRouteHandler]:
    @post(
        QUEUE_PATH + "/seek",
        status_code=200,
        operation_id="seekQueue",
        opt=needs(Level.READ_WRITE, QUEUE),
        operation_class=body_of(SeekRequest),
        summary="Move a group in all partitions of a queue",
        tags=TAGS,
    )
    async def seek_queue(
        group: GroupName, queue: QueueName, request: Request[Any, Any, Any]
    ) -> SoughtQueue:
        asked = decode_body(_seek_decoder, await request.body(), {})
        return await seek.seek_queue(group, queue, _aim_of(asked), create=asked.create)

    @get(
        QUEUE_PATH + "/seek/preview",
        operation_id="previewSeekQueue",
        opt=needs(Level.READ_ONLY, QUEUE),
        summary="What a seek in all partitions of a queue would skip and replay",
        tags=TAGS,
    )
    async def preview_queue(
        group: GroupName, queue: QueueName, to: To = None, timestamp: Timestamp = None
    ) -> SeekPreview:
        aim = choose_aim(to_end=to == "end", to_start=to == "start", timestamp=timestamp)
        return await seek.preview_queue(group, queue, aim)

    return [seek_queue, preview_queue]


def _partition_routes(seek: Seek) -> list[HTTPRouteHandler]:
    @post(
        PARTITION_PATH + "/seek",
        status_code=200,
        operation_id="seekPartition",
        opt=needs(Level.READ_WRITE, QUEUE),
        operation_class=body_of(SeekRequest, is_required=False),
        summary="Move a group in one partition",
        description="Without a body, to the end: everything there is now is passed over.",
        tags=TAGS,
    )
    async def seek_partition(
        group: GroupName,
        queue: QueueName,
        partition: PartitionName,
        request: Request[Any, Any, Any],
    ) -> SoughtPartition:
        body = await request.body()
        asked = decode_body(_seek_decoder, body, {}) if body.strip() else SeekRequest()
        if asked == SeekRequest(create=asked.create):
            asked = SeekRequest(to_end=True, create=asked.create)
        return await seek.seek_partition(
            group, queue, partition, _aim_of(asked), create=asked.create
        )

    @get(
        PARTITION_PATH + "/seek/preview",
        operation_id="previewSeekPartition",
        opt=needs(Level.READ_ONLY, QUEUE),
        summary="What a seek in one partition would skip and replay",
        tags=TAGS,
    )
    async def preview_partition(
        group: GroupName,
        queue: QueueName,
        partition: PartitionName,
        to: To = None,
        timestamp: Timestamp = None,
        message_offset: MessageOffset = None,
    ) -> SeekPreview:
        aim = choose_aim(
            to_end=to == "end",
            to_start=to == "start",
            timestamp=timestamp,
            offset=message_offset,
        )
        return await seek.preview_partition(group, queue, partition, aim)

    return [seek_partition, preview_partition]


def _position_routes(seek: Seek) -> list[HTTPRouteHandler]:
    @get(
        QUEUE_PATH + "/offsets",
        operation_id="exportPositions",
        opt=needs(Level.READ_ONLY, QUEUE),
        summary="Positions of a group, to be kept and set again",
        tags=TAGS,
    )
    async def export_positions(
        group: GroupName, queue: QueueName, limit: Limit = 1000, offset: Offset = 0
    ) -> Positions:
        return await seek.export_positions(group, queue, Page(limit, offset))

    @put(
        QUEUE_PATH + "/offsets",
        operation_id="importPositions",
        opt=needs(Level.READ_WRITE, QUEUE),
        operation_class=body_of(PositionsRequest),
        summary="Set positions of a group",
        tags=TAGS,
    )
    async def import_positions(
        group: GroupName, queue: QueueName, request: Request[Any, Any, Any]
    ) -> ImportedPositions:
        asked = decode_body(_positions_decoder, await request.body(), _POSITIONS_WORDS)
        return await seek.import_positions(group, queue, asked.offsets)

    return [export_positions, import_positions]


def _aim_of(asked: SeekRequest) -> Aim:
    return choose_aim(
        to_end=asked.to_end,
        to_start=asked.to_start,
        timestamp=asked.timestamp,
        offset=asked.offset,
    )
