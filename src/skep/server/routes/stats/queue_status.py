"""What Queen's dashboard asks about queues: the routes below `/api/v1/status/queues`.

The same facts as below `/api/v1/resources`, in the shapes the dashboard and the command line read.
"""

from datetime import datetime
from typing import Annotated, Final

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.params import Parameter

from skep.broker.paging import Page
from skep.broker.queues.catalog import QueueCatalog, QueueFilter
from skep.broker.queues.resources import (
    MessageCounts,
    MessageSummary,
    PartitionSummary,
    QueueDetail,
    QueuePage,
)
from skep.server.auth.access import QUEUE, Level, listed_by, needs
from skep.server.routes.parameters import (
    LIMIT_MAX,
    LimitOrNone,
    Offset,
    OnlyNamespace,
    OnlyTask,
    PartitionLimit,
    PartitionOffset,
    QueueName,
)
from skep.server.routes.section import Section

MESSAGE_OFFSET_MAX: Final = 100_000
"""How deep pages go; older messages are found by partition and time."""

_QUEUES: Final = "/api/v1/status/queues"
_ONE: Final = f"{_QUEUES}/{{queue:str}}"


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
    messages: MessageCounts
    stats: MessageCounts
    cursor: CursorFacts
    last_activity: datetime | None
    oldest_message: datetime | None
    newest_message: datetime | None


class StatusTotals(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The counts of a queue, once by themselves and once as `messages`."""

    messages: MessageCounts
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


def queue_status_routes(catalog: QueueCatalog) -> list[HTTPRouteHandler]:
    """Declare the routes."""
    section, read = Section("Status"), needs(Level.READ_ONLY, QUEUE)

    @section.get(_QUEUES, needs(Level.READ_ONLY, listed_by(namespace="namespace")))
    async def list_queue_status(
        limit: LimitOrNone = 100,
        offset: Offset = 0,
        namespace: OnlyNamespace = None,
        task: OnlyTask = None,
    ) -> QueuePage:
        """List queues for the dashboard."""
        wanted = QueueFilter(namespace=namespace, task=task)
        return await catalog.queues(wanted, Page(limit, offset))

    @section.get(_ONE, read)
    async def show_queue_status(
        queue: QueueName,
        partition_limit: PartitionLimit = LIMIT_MAX,
        partition_offset: PartitionOffset = 0,
    ) -> QueueStatus:
        """Describe a queue for the dashboard."""
        return _queue_status(await catalog.queue(queue, Page(partition_limit, partition_offset)))

    @section.get(f"{_ONE}/messages", read)
    async def list_newest_messages(
        queue: QueueName,
        limit: LimitOrNone = 50,
        offset: Annotated[
            int,
            Parameter(ge=0, le=MESSAGE_OFFSET_MAX, description="Number of messages to skip."),
        ] = 0,
    ) -> list[MessageSummary]:
        """List the messages of a queue, newest first.

        Deleted messages count for the offset but are not shown.
        """
        return await catalog.newest_messages(queue, Page(limit, offset))

    @section.post("/api/v1/stats/refresh", needs(Level.ADMIN))
    async def refresh_stats() -> RefreshReport:
        """Do nothing: statistics need no refresh.

        Every figure is computed on request. Queen's clients may still call this.
        """
        return RefreshReport()

    return section.routes


def _queue_status(detail: QueueDetail) -> QueueStatus:
    options = detail.options
    return QueueStatus(
        queue=QueueFacts(
            id=detail.id,
            name=detail.name,
            namespace=detail.namespace,
            task=detail.task,
            priority=options.priority,
            created_at=detail.created_at,
            is_paused=detail.is_paused,
            config=ConfigExcerpt(
                lease_time=options.lease_time,
                retry_limit=options.retry_limit,
                retry_delay=options.retry_delay,
                ttl=options.ttl,
                max_queue_size=options.max_size,
                dead_letter_queue=options.dead_letter_queue,
            ),
        ),
        partitions=[_partition_status(each) for each in detail.partitions],
        partitions_total=detail.partitions_total,
        totals=StatusTotals(messages=detail.totals, **msgspec.structs.asdict(detail.totals)),
        estimated=detail.estimated,
    )


def _partition_status(partition: PartitionSummary) -> PartitionStatus:
    return PartitionStatus(
        id=partition.id,
        name=partition.name,
        created_at=partition.created_at,
        messages=partition.stats,
        stats=partition.stats,
        cursor=CursorFacts(total_consumed=partition.head - partition.stats.pending),
        last_activity=partition.last_activity,
        oldest_message=partition.oldest_message,
        newest_message=partition.newest_message,
    )
