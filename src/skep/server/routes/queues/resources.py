"""Listings of queues, partitions, namespaces and tasks, and the overview.

The routes below `/api/v1/resources`, in Queen's shapes with paging, totals and honest counts, and
the full configuration of a queue. What the figures mean is said by their types in
`skep.broker.queues.resources`.
"""

from typing import Annotated

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import Parameter, QueryParameter

from skep.broker.paging import Page
from skep.broker.queues.catalog import QueueCatalog, QueueFilter, QueueOrder
from skep.broker.queues.configure import Configure, Configured
from skep.broker.queues.resources import (
    NamespacePage,
    Overview,
    PartitionPage,
    QueueDetail,
    QueuePage,
    TaskPage,
)
from skep.server.auth.access import QUEUE, Level, listed_by, needs
from skep.server.routes.names import OnlyNamespace, OnlyTask, QueueName
from skep.server.routes.paging import LIMIT_MAX, Limit, Offset, PartitionLimit, PartitionOffset
from skep.server.routes.refusals import refusal

_TAGS = ["Resources"]


def resource_routes(catalog: QueueCatalog, configure: Configure) -> list[HTTPRouteHandler]:
    """Make the routes around a catalog and the configuration of queues."""

    @get(
        "/api/v1/resources/queues",
        tags=_TAGS,
        operation_id="listQueues",
        opt=needs(Level.READ_ONLY, listed_by(namespace="namespace")),
        summary="List queues",
        description="Counts are of this moment; `estimated` ones come from a sample of partitions.",
    )
    async def list_queues(
        limit: Limit = 1000,
        offset: Offset = 0,
        namespace: OnlyNamespace = None,
        task: OnlyTask = None,
        search: Annotated[
            str | None, Parameter(description="A part of the name, in any case.")
        ] = None,
        sort: Annotated[QueueOrder, QueryParameter(description="In which order.")] = "newest",
    ) -> QueuePage:
        wanted = QueueFilter(namespace=namespace, task=task, search=search, order=sort)
        return await catalog.queues(wanted, Page(limit, offset))

    @get(
        "/api/v1/resources/queues/{queue:str}",
        tags=_TAGS,
        operation_id="describeQueue",
        opt=needs(Level.READ_ONLY, QUEUE),
        summary="Describe a queue: options, groups, partitions and counts",
    )
    async def describe_queue(
        queue: QueueName,
        partition_limit: PartitionLimit = LIMIT_MAX,
        partition_offset: PartitionOffset = 0,
    ) -> QueueDetail:
        return await catalog.queue(queue, Page(partition_limit, partition_offset))

    @get(
        "/api/v1/queues/{queue:str}/config",
        tags=_TAGS,
        operation_id="showConfiguration",
        opt=needs(Level.READ_ONLY, QUEUE),
        summary="Show the full configuration of a queue",
    )
    async def show_configuration(queue: QueueName) -> Configured:
        return await configure.show(queue)

    @get(
        "/api/v1/resources/partitions",
        tags=_TAGS,
        operation_id="listPartitions",
        opt=needs(Level.READ_ONLY, listed_by(queue="queue")),
        responses={404: refusal("There is no such queue.")},
        summary="List partitions, of one queue or of all",
        description="Ordered by queue and name. `after` pages in equal time through any number.",
    )
    async def list_partitions(
        limit: Limit = 100,
        offset: Offset = 0,
        queue: Annotated[str | None, QueryParameter(description="Only of this queue.")] = None,
        search: Annotated[
            str | None, Parameter(description="A part of the name, in any case.")
        ] = None,
        after: Annotated[
            str | None, Parameter(description="Begin behind the partition with this id.")
        ] = None,
    ) -> PartitionPage:
        return await catalog.partitions(queue, search, after, Page(limit, offset))

    @get(
        "/api/v1/resources/namespaces",
        tags=_TAGS,
        operation_id="listNamespaces",
        opt=needs(Level.READ_ONLY),
        summary="List the namespaces that queues have",
    )
    async def list_namespaces(limit: Limit = 1000, offset: Offset = 0) -> NamespacePage:
        return await catalog.namespaces(Page(limit, offset))

    @get(
        "/api/v1/resources/tasks",
        tags=_TAGS,
        operation_id="listTasks",
        opt=needs(Level.READ_ONLY),
        summary="List the tasks that queues have",
    )
    async def list_tasks(limit: Limit = 1000, offset: Offset = 0) -> TaskPage:
        return await catalog.tasks(Page(limit, offset))

    @get(
        "/api/v1/resources/overview",
        tags=_TAGS,
        operation_id="showOverview",
        opt=needs(Level.READ_ONLY),
        summary="Sum up the whole installation",
    )
    async def show_overview() -> Overview:
        return await catalog.overview()

    return [
        list_queues,
        describe_queue,
        show_configuration,
        list_partitions,
        list_namespaces,
        list_tasks,
        show_overview,
    ]
