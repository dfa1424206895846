"""Queues, partitions, namespaces and tasks: list, describe, measure, pause, clear, delete.

The listings below `/api/v1/resources` have Queen's shapes, with pages and totals. What the figures
mean is said by their types in `skep.broker.queues.resources`.
"""

from typing import Annotated, Final, Literal

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.params import Parameter, QueryParameter

from skep.broker.paging import Page
from skep.broker.queues.catalog import Depths, QueueCatalog, QueueDepth, QueueFilter, QueueOrder
from skep.broker.queues.configure import Configure, Configured
from skep.broker.queues.lifecycle import QueueLifecycle
from skep.broker.queues.resources import (
    NamespacePage,
    Overview,
    PartitionPage,
    QueueDetail,
    QueuePage,
    TaskPage,
)
from skep.server.auth.access import QUEUE, Level, listed_by, needs
from skep.server.routes.parameters import (
    LIMIT_MAX,
    LimitOrNone,
    Offset,
    OnlyNamespace,
    OnlyQueue,
    OnlyTask,
    PartitionLimit,
    PartitionOffset,
    QueueName,
    Search,
)
from skep.server.routes.section import Section, refusal

_RESOURCES: Final = "/api/v1/resources"
_QUEUE: Final = f"{_RESOURCES}/queues/{{queue:str}}"


class QueueDeleted(msgspec.Struct, frozen=True):
    """The queue no longer exists; `existed` says whether it did before."""

    queue: str
    existed: bool
    deleted: Literal[True] = True


class QueueCleared(msgspec.Struct, frozen=True, kw_only=True):
    """What was deleted. `partition` is null when all partitions were cleared."""

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


def resource_routes(
    catalog: QueueCatalog, configure: Configure, depths: Depths
) -> list[HTTPRouteHandler]:
    """Declare the routes that read."""
    section, read = Section("Resources"), needs(Level.READ_ONLY)

    @section.get(f"{_RESOURCES}/queues", needs(Level.READ_ONLY, listed_by(namespace="namespace")))
    async def list_queues(
        limit: LimitOrNone = 1000,
        offset: Offset = 0,
        namespace: OnlyNamespace = None,
        task: OnlyTask = None,
        search: Search = None,
        sort: Annotated[QueueOrder, QueryParameter(description="Order of the rows.")] = "newest",
    ) -> QueuePage:
        """List queues.

        Counts are current; `estimated` ones are extrapolated from a sample of partitions.
        """
        wanted = QueueFilter(namespace=namespace, task=task, search=search, order=sort)
        return await catalog.queues(wanted, Page(limit, offset))

    @section.get(_QUEUE, needs(Level.READ_ONLY, QUEUE))
    async def describe_queue(
        queue: QueueName,
        partition_limit: PartitionLimit = LIMIT_MAX,
        partition_offset: PartitionOffset = 0,
    ) -> QueueDetail:
        """Describe a queue: options, groups, partitions and counts."""
        return await catalog.queue(queue, Page(partition_limit, partition_offset))

    @section.get(f"{_QUEUE}/depth", needs(Level.READ_ONLY, QUEUE))
    async def measure_depth(
        queue: QueueName,
        group: Annotated[
            str | None,
            QueryParameter(description="Only messages that this group has yet to finish."),
        ] = None,
        limit: LimitOrNone = LIMIT_MAX,
        offset: Offset = 0,
    ) -> QueueDepth:
        """Count the waiting messages of a queue, by partition."""
        page = Page(limit, offset)
        if group:
            return await depths.of_group(queue, group, page)
        return await depths.of_queue(queue, page)

    @section.get("/api/v1/queues/{queue:str}/config", needs(Level.READ_ONLY, QUEUE))
    async def show_configuration(queue: QueueName) -> Configured:
        """Show the full configuration of a queue."""
        return await configure.show(queue)

    @section.get(
        f"{_RESOURCES}/partitions",
        needs(Level.READ_ONLY, listed_by(queue="queue")),
        responses={404: refusal("There is no such queue.")},
    )
    async def list_partitions(
        limit: LimitOrNone = 100,
        offset: Offset = 0,
        queue: OnlyQueue = None,
        search: Search = None,
        after: Annotated[
            str | None, Parameter(description="Start behind the partition with this id.")
        ] = None,
    ) -> PartitionPage:
        """List partitions of one queue or of all, by queue and name.

        Pages by `after` take equally long however many partitions precede them.
        """
        return await catalog.partitions(queue, search, after, Page(limit, offset))

    @section.get(f"{_RESOURCES}/namespaces", read)
    async def list_namespaces(limit: LimitOrNone = 1000, offset: Offset = 0) -> NamespacePage:
        """List the namespaces of the queues."""
        return await catalog.namespaces(Page(limit, offset))

    @section.get(f"{_RESOURCES}/tasks", read)
    async def list_tasks(limit: LimitOrNone = 1000, offset: Offset = 0) -> TaskPage:
        """List the tasks of the queues."""
        return await catalog.tasks(Page(limit, offset))

    @section.get(f"{_RESOURCES}/overview", read)
    async def show_overview() -> Overview:
        """Summarize the whole installation."""
        return await catalog.overview()

    return section.routes


def queue_routes(lifecycle: QueueLifecycle) -> list[HTTPRouteHandler]:
    """Declare the routes that change a whole queue."""
    section = Section("Queues")
    write, admin = needs(Level.READ_WRITE, QUEUE), needs(Level.ADMIN, QUEUE)

    @section.delete(_QUEUE, admin)
    async def delete_queue(queue: QueueName) -> QueueDeleted:
        """Delete a queue with its messages, groups and dead letters.

        A later push or poll with the same name creates a new queue.
        """
        return QueueDeleted(queue, existed=await lifecycle.delete(queue))

    @section.delete("/api/v1/queues/{queue:str}/clear", admin)
    async def clear_queue(
        queue: QueueName,
        partition: Annotated[
            str | None, Parameter(description="Only the messages of this partition.")
        ] = None,
    ) -> QueueCleared:
        """Delete all messages of a queue.

        Moves all groups to the end and ends their leases; dead letters stay. The transaction ids
        of deleted messages may be used again. Refused while a hold keeps some of the messages for
        an external reader.
        """
        cleared = await lifecycle.clear(queue, partition)
        return QueueCleared(
            queue=queue,
            partition=partition,
            partitions=cleared.partitions,
            messages=cleared.messages,
        )

    @section.post("/api/v1/queues/{queue:str}/pause", write)
    async def pause_queue(queue: QueueName) -> QueuePaused:
        """Deliver nothing from a queue until it is resumed.

        Pushes continue. Messages under lease can be acknowledged.
        """
        await lifecycle.pause(queue)
        return QueuePaused(queue, is_paused=True)

    @section.post("/api/v1/queues/{queue:str}/resume", write)
    async def resume_queue(queue: QueueName) -> QueuePaused:
        """Resume the delivery of a paused queue."""
        await lifecycle.resume(queue)
        return QueuePaused(queue, is_paused=False)

    return section.routes
