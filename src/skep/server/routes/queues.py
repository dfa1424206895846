"""Queues, partitions, namespaces and tasks: configure, list, describe, pause, clear, delete.

The listings below `/api/v1/resources` have Queen's shapes, with pages and totals. What the figures
mean is said by their types in `skep.broker.queues.resources`. The routes below
`/api/v1/status/queues` show the same facts in the shapes that Queen's dashboard and command line
read.

`POST /api/v1/configure`: an omitted option keeps its value, null restores its default, and `mode:
"replace"` restores the defaults of all omitted options, as Queen did before 1.6. The broker decides
what that means for a stored queue.
"""

from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from skep.broker.groups.condition import QueueCondition
from skep.broker.paging import Page
from skep.broker.queues import resources
from skep.broker.queues.catalog import (
    MINUTES_MAX,
    Depths,
    QueueCatalog,
    QueueDepth,
    QueueFilter,
    QueueOrder,
)
from skep.broker.queues.configure import Configure, Configured
from skep.broker.queues.lifecycle import QueueLifecycle
from skep.model.limits import PAGE_ROWS_MAX
from skep.model.queue_options import OptionChanges
from skep.server.auth import access
from skep.server.auth.guard import requester_of
from skep.server.hot.decoding import decode_body
from skep.server.routes import parameters as given
from skep.server.routes.section import (
    AnyRequest,
    Body,
    Parts,
    Section,
    in_query,
    reshaped,
    routes_of,
)

MESSAGE_OFFSET_MAX: Final = 100_000
"""How deep pages go; older messages are found by partition and time."""

_RESOURCES: Final = "/api/v1/resources"
_QUEUE: Final = f"{_RESOURCES}/queues/{{queue:str}}"
_STATUS: Final = "/api/v1/status/queues"
_WORDING: Final = {".queue": "queue is required"}

PartitionLimit: TypeAlias = Annotated[
    int, in_query("Maximum number of partitions.", "partitionLimit", ge=0, le=PAGE_ROWS_MAX)
]
PartitionOffset: TypeAlias = Annotated[
    int, in_query("Number of partitions to skip.", "partitionOffset", ge=0, le=given.OFFSET_MAX)
]
Partitions: TypeAlias = Annotated[Page, Parts(limit=PartitionLimit, offset=PartitionOffset)]
MessageOffset: TypeAlias = Annotated[
    int, in_query("Number of messages to skip.", ge=0, le=MESSAGE_OFFSET_MAX)
]
Newest: TypeAlias = Annotated[Page, Parts(limit=given.LimitOrNone, offset=MessageOffset)]


class ConfigureRequest(msgspec.Struct, rename="camel", frozen=True):
    """What to configure. Namespace and task follow the rule for options."""

    queue: str
    namespace: str | UnsetType | None = UNSET
    task: str | UnsetType | None = UNSET
    options: OptionChanges | None = None
    mode: Literal["merge", "replace"] = "merge"


class _OptionsSent(msgspec.Struct):
    """All options of a request, including those that `OptionChanges` does not know."""

    options: dict[str, Any] | None = None


_options_decoder: Final = msgspec.json.Decoder(_OptionsSent)


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


@routes_of("Queues")
def configure_route(section: Section, configure: Configure) -> None:
    """Declare the route that creates and changes queues."""

    # The document describes it with the hot routes, whose conventions it shares.
    @section.post(
        "/api/v1/configure",
        access.WRITE_BY_BODY,
        body=Body(ConfigureRequest, wording=_WORDING),
        status_code=201,
        include_in_schema=False,
    )
    async def configure_queue(request: AnyRequest, asked: ConfigureRequest) -> Configured:
        await requester_of(request).require_place(asked.queue, asked.namespace or None)
        sent = decode_body(_options_decoder, await request.body(), _WORDING)
        return await configure.configure_queue(
            asked.queue,
            namespace=_given(asked.namespace),
            task=_given(asked.task),
            options=sent.options or {},
            replace=asked.mode == "replace",
        )


def _given(name: str | UnsetType | None) -> str | None:
    """A name left out stays as it is; null takes the default, which is none."""
    return None if isinstance(name, UnsetType) else name or ""


@routes_of("Resources")
def resource_routes(
    section: Section, catalog: QueueCatalog, configure: Configure, depths: Depths
) -> None:
    """Declare the routes that read."""

    @section.get(f"{_RESOURCES}/queues", access.READ_QUEUES)
    async def list_queues(
        page: given.RowsOrNone = given.FIRST_1000,
        namespace: given.OnlyNamespace = None,
        task: given.OnlyTask = None,
        search: given.Search = None,
        condition: Annotated[
            QueueCondition | None, in_query("Only queues in this condition.")
        ] = None,
        sort: Annotated[QueueOrder, in_query("Order of the rows.")] = "newest",
        minutes: Annotated[
            int,
            in_query("How many of the last minutes to show one by one.", ge=0, le=MINUTES_MAX),
        ] = 0,
    ) -> resources.QueuePage:
        """List queues.

        Counts are current; `estimated` ones are extrapolated from a sample of partitions. With
        `condition` all queues that match otherwise are examined.
        """
        wanted = QueueFilter(namespace=namespace, task=task, search=search, order=sort)
        return await catalog.queues(wanted, page, condition=condition, minutes=minutes)

    @section.get(_QUEUE, access.READ_QUEUE)
    async def describe_queue(
        queue: given.QueueName, page: Partitions = given.FIRST_1000
    ) -> resources.QueueDetail:
        """Describe a queue: options, groups, partitions and counts."""
        return await catalog.queue(queue, page)

    @section.get(f"{_QUEUE}/depth", access.READ_QUEUE)
    async def measure_depth(
        queue: given.QueueName,
        group: Annotated[
            str | None, in_query("Only messages that this group has yet to finish.")
        ] = None,
        page: given.RowsOrNone = given.FIRST_1000,
    ) -> QueueDepth:
        """Count the waiting messages of a queue, by partition."""
        if group:
            return await depths.of_group(queue, group, page)
        return await depths.of_queue(queue, page)

    @section.get("/api/v1/queues/{queue:str}/config", access.READ_QUEUE)
    async def show_configuration(queue: given.QueueName) -> Configured:
        """Show the full configuration of a queue."""
        return await configure.show(queue)

    @section.get(
        f"{_RESOURCES}/partitions", access.READ_LIST, responses={404: "There is no such queue."}
    )
    async def list_partitions(
        page: given.RowsOrNone = given.FIRST_100,
        queue: given.OnlyQueue = None,
        search: given.Search = None,
        after: Annotated[str | None, in_query("Start behind the partition with this id.")] = None,
    ) -> resources.PartitionPage:
        """List partitions of one queue or of all, by queue and name.

        Pages by `after` take equally long however many partitions precede them.
        """
        return await catalog.partitions(queue, search, after, page)

    @section.get(f"{_RESOURCES}/namespaces", access.READ)
    async def list_namespaces(page: given.RowsOrNone = given.FIRST_1000) -> resources.NamespacePage:
        """List the namespaces of the queues."""
        return await catalog.namespaces(page)

    @section.get(f"{_RESOURCES}/tasks", access.READ)
    async def list_tasks(page: given.RowsOrNone = given.FIRST_1000) -> resources.TaskPage:
        """List the tasks of the queues."""
        return await catalog.tasks(page)

    @section.get(f"{_RESOURCES}/overview", access.READ)
    async def show_overview() -> resources.Overview:
        """Summarize the whole installation."""
        return await catalog.overview()


@routes_of("Queues")
def queue_routes(section: Section, lifecycle: QueueLifecycle) -> None:
    """Declare the routes that change a whole queue."""

    @section.delete(_QUEUE, access.ADMIN_QUEUE)
    async def delete_queue(queue: given.QueueName) -> QueueDeleted:
        """Delete a queue with its messages, groups and dead letters.

        A later push or poll with the same name creates a new queue. Refused while a hold keeps
        some of the messages for an external reader.
        """
        return QueueDeleted(queue, existed=await lifecycle.delete(queue))

    @section.delete("/api/v1/queues/{queue:str}/clear", access.ADMIN_QUEUE)
    async def clear_queue(
        queue: given.QueueName,
        partition: Annotated[str | None, in_query("Only the messages of this partition.")] = None,
    ) -> QueueCleared:
        """Delete all messages of a queue.

        Moves all groups to the end and ends their leases; dead letters stay. The transaction ids
        of deleted messages may be used again. Refused while a hold keeps some of the messages for
        an external reader.
        """
        cleared = await lifecycle.clear(queue, partition)
        return reshaped(QueueCleared, cleared, cleared=True, queue=queue, partition=partition)

    @section.post("/api/v1/queues/{queue:str}/pause", access.WRITE_QUEUE)
    async def pause_queue(queue: given.QueueName) -> QueuePaused:
        """Deliver nothing from a queue until it is resumed.

        Pushes continue. Messages under lease can be acknowledged.
        """
        await lifecycle.pause(queue)
        return QueuePaused(queue, is_paused=True)

    @section.post("/api/v1/queues/{queue:str}/resume", access.WRITE_QUEUE)
    async def resume_queue(queue: given.QueueName) -> QueuePaused:
        """Resume the delivery of a paused queue."""
        await lifecycle.resume(queue)
        return QueuePaused(queue, is_paused=False)


class ConfigExcerpt(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The options that the dashboard shows."""

    lease_time: int
    retry_limit: int
    retry_delay: int
    ttl: int
    max_queue_size: int
    dead_letter_queue: bool


class QueueFacts(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The queue itself."""

    id: str
    name: str
    namespace: str
    task: str
    priority: int
    created_at: datetime
    is_paused: bool
    config: ConfigExcerpt


class CursorFacts(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """How much of a partition was consumed."""

    total_consumed: int
    batches_consumed: int = 0
    """Not counted: always 0."""


class PartitionStatus(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A partition as the dashboard shows it. `messages` and `stats` are the same."""

    id: str
    name: str
    created_at: datetime
    messages: resources.MessageCounts
    stats: resources.MessageCounts
    cursor: CursorFacts
    last_activity: datetime | None
    oldest_message: datetime | None
    newest_message: datetime | None


class StatusTotals(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The counts of a queue, once by themselves and once as `messages`."""

    messages: resources.MessageCounts
    total: int
    pending: int
    processing: int
    completed: int
    failed: int
    dead_letter: int


class QueueStatus(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One queue for the dashboard, with a page of its partitions."""

    queue: QueueFacts
    partitions: list[PartitionStatus]
    partitions_total: int
    totals: StatusTotals
    estimated: bool


class RefreshStep(msgspec.Struct, frozen=True):
    """A step of Queen's recomputation. Nothing is stored here, so nothing is out of date."""

    status: str = "done"
    updated: int = 0


class RefreshReport(msgspec.Struct, frozen=True):
    """The steps of a recomputation."""

    partition: RefreshStep = RefreshStep()
    queue: RefreshStep = RefreshStep()
    namespace: RefreshStep = RefreshStep()
    task: RefreshStep = RefreshStep()
    system: RefreshStep = RefreshStep()
    cleanup: RefreshStep = RefreshStep()


@routes_of("Status")
def queue_status_routes(section: Section, catalog: QueueCatalog) -> None:
    """Declare the routes for dashboards."""

    @section.get(_STATUS, access.READ_QUEUES)
    async def list_queue_status(
        page: given.RowsOrNone = given.FIRST_100,
        namespace: given.OnlyNamespace = None,
        task: given.OnlyTask = None,
    ) -> resources.QueuePage:
        """List queues for the dashboard."""
        wanted = QueueFilter(namespace=namespace, task=task)
        return await catalog.queues(wanted, page)

    @section.get(f"{_STATUS}/{{queue:str}}", access.READ_QUEUE)
    async def show_queue_status(
        queue: given.QueueName, page: Partitions = given.FIRST_1000
    ) -> QueueStatus:
        """Describe a queue for the dashboard."""
        return _queue_status(await catalog.queue(queue, page))

    @section.get(f"{_STATUS}/{{queue:str}}/messages", access.READ_QUEUE)
    async def list_newest_messages(
        queue: given.QueueName, page: Newest = given.FIRST_50
    ) -> list[resources.MessageSummary]:
        """List the messages of a queue, newest first.

        Deleted messages count for the offset but are not shown.
        """
        return await catalog.newest_messages(queue, page)

    @section.post("/api/v1/stats/refresh", access.ADMIN)
    async def refresh_stats() -> RefreshReport:
        """Do nothing: statistics need no refresh.

        Every figure is computed on request. Queen's clients may still call this.
        """
        return RefreshReport()


def _queue_status(detail: resources.QueueDetail) -> QueueStatus:
    options = detail.options
    config = reshaped(ConfigExcerpt, options, max_queue_size=options.max_size)
    return reshaped(
        QueueStatus,
        detail,
        queue=reshaped(QueueFacts, detail, priority=options.priority, config=config),
        partitions=[_partition_status(each) for each in detail.partitions],
        totals=reshaped(StatusTotals, detail.totals, messages=detail.totals),
    )


def _partition_status(partition: resources.PartitionSummary) -> PartitionStatus:
    consumed = CursorFacts(total_consumed=partition.head - partition.stats.pending)
    return reshaped(PartitionStatus, partition, messages=partition.stats, cursor=consumed)
