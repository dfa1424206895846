"""What an operator does to a whole queue: pause, resume, clear, delete."""

from typing import Annotated, Literal

import msgspec
from litestar import delete, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import Parameter

from skep.broker.queues.lifecycle import QueueLifecycle
from skep.server.auth.access import QUEUE, Level, needs
from skep.server.routes.names import QueueName

_TAGS = ["Queues"]


class QueueDeleted(msgspec.Struct, frozen=True):
    """There is no such queue any more; `existed` says whether there was one."""

    queue: str
    existed: bool
    deleted: Literal[True] = True


class QueueCleared(msgspec.Struct, frozen=True, kw_only=True):
    """What was dropped. `partition` is null when all partitions were cleared."""

    cleared: Literal[True] = True
    queue: str
    partition: str | None
    partitions: int
    messages: int


class QueuePaused(msgspec.Struct, rename="camel", frozen=True):
    """Whether the queue delivers."""

    queue: str
    is_paused: bool
    success: Literal[True] = True


def queue_routes(lifecycle: QueueLifecycle) -> list[HTTPRouteHandler]:
    """Make the routes around what the broker does."""

    @delete(
        "/api/v1/resources/queues/{queue:str}",
        status_code=200,
        tags=_TAGS,
        operation_id="deleteQueue",
        opt=needs(Level.ADMIN, QUEUE),
        summary="Delete a queue with its messages, groups and dead letters",
        description="What is pushed or polled under its name afterwards is a new queue.",
    )
    async def delete_queue(queue: QueueName) -> QueueDeleted:
        return QueueDeleted(queue, existed=await lifecycle.delete(queue))

    @delete(
        "/api/v1/queues/{queue:str}/clear",
        status_code=200,
        tags=_TAGS,
        operation_id="clearQueue",
        opt=needs(Level.ADMIN, QUEUE),
        summary="Drop all messages of a queue",
        description=(
            "Groups stand at the end afterwards and their leases are over; dead letters stay. The "
            "transaction ids of dropped messages may be used again. Refused while a hold keeps "
            "some of the messages for a reader outside."
        ),
    )
    async def clear_queue(
        queue: QueueName,
        partition: Annotated[
            str | None, Parameter(description="Only the messages of this partition.")
        ] = None,
    ) -> QueueCleared:
        cleared = await lifecycle.clear(queue, partition)
        return QueueCleared(
            queue=queue,
            partition=partition,
            partitions=cleared.partitions,
            messages=cleared.messages,
        )

    @post(
        "/api/v1/queues/{queue:str}/pause",
        status_code=200,
        tags=_TAGS,
        operation_id="pauseQueue",
        opt=needs(Level.READ_WRITE, QUEUE),
        summary="Deliver nothing of a queue until it is resumed",
        description="Pushes go on. What is under lease can be acknowledged.",
    )
    async def pause_queue(queue: QueueName) -> QueuePaused:
        await lifecycle.pause(queue)
        return QueuePaused(queue, is_paused=True)

    @post(
        "/api/v1/queues/{queue:str}/resume",
        status_code=200,
        tags=_TAGS,
        operation_id="resumeQueue",
        opt=needs(Level.READ_WRITE, QUEUE),
        summary="Deliver a paused queue again",
    )
    async def resume_queue(queue: QueueName) -> QueuePaused:
        await lifecycle.resume(queue)
        return QueuePaused(queue, is_paused=False)

    return [delete_queue, clear_queue, pause_queue, resume_queue]
