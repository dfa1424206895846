"""The answers of listings of queues, partitions, namespaces and tasks, with the names of the wire.

What the counts mean is defined here: see `MessageCounts`.
"""

from datetime import datetime

import msgspec

from skep.broker.groups.condition import QueueCondition
from skep.broker.messages.stored_message import MessageAddress, Status
from skep.broker.paging import Page
from skep.model.queue_options import QueueOptions


class MessageCounts(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """How many messages there are, by what has become of them.

    Progress is that of queue mode where it has ever claimed something of a partition or is the only
    group; elsewhere that of the slowest named group.
    """

    total: int = 0
    """Kept in the log, consumed or not."""
    pending: int = 0
    """Not acknowledged yet; those being processed are among them."""
    processing: int = 0
    """Under a lease that has not expired."""
    completed: int = 0
    """Acknowledged, and still kept."""
    failed: int = 0
    """Failed at least once and waiting to be delivered again; a part of `pending`."""
    dead_letter: int = 0
    """Dead letters, of all groups."""


class BriefCounts(msgspec.Struct, frozen=True):
    """The counts of a namespace or a task."""

    total: int = 0
    pending: int = 0


class QueueSummary(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A queue in a listing."""

    id: str
    name: str
    namespace: str
    task: str
    created_at: datetime
    is_paused: bool
    partitions: int
    messages: MessageCounts
    estimated: bool
    """Whether the counts come from a sample of the partitions."""
    condition: QueueCondition
    in_per_second: float
    """Messages pushed lately."""
    out_per_second: float
    """Deliveries lately, of all groups."""
    pushed: list[int]
    """By whole minute, oldest first, of as many minutes as were asked for."""
    popped: list[int]


class QueuePage(msgspec.Struct, frozen=True):
    """A page of queues; `total` is how many match."""

    queues: list[QueueSummary]
    total: int
    pagination: Page


class PartitionSummary(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A partition in a listing."""

    id: str
    name: str
    queue: str
    created_at: datetime
    head: int
    """The offset of the newest message; 0 before the first."""
    tail: int
    """The offset of the oldest message kept."""
    stats: MessageCounts
    last_activity: datetime | None
    """When the last message was pushed."""
    oldest_message: datetime | None
    newest_message: datetime | None


class PartitionPage(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A page of partitions, by queue (oldest first) and name."""

    partitions: list[PartitionSummary]
    total: int
    pagination: Page
    next_after: str | None
    """Pass it as `after` to get the next page; null when this page was not full."""


class GroupSummary(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A consumer group of a queue."""

    name: str
    subscription_mode: str
    subscription_timestamp: datetime | None
    is_paused: bool
    created_at: datetime


class QueueDetail(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Everything about one queue, with a page of its partitions."""

    id: str
    name: str
    namespace: str
    task: str
    created_at: datetime
    is_paused: bool
    options: QueueOptions
    """All options, as configuring the queue shows them."""
    groups: list[GroupSummary]
    partitions: list[PartitionSummary]
    partitions_total: int
    totals: MessageCounts
    estimated: bool
    """Whether the totals come from a sample of the partitions."""


class NamespaceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The queues of one namespace."""

    namespace: str
    queues: int
    partitions: int
    messages: BriefCounts
    estimated: bool


class NamespacePage(msgspec.Struct, frozen=True):
    """A page of namespaces."""

    namespaces: list[NamespaceSummary]
    total: int
    pagination: Page


class TaskSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The queues of one task."""

    task: str
    queues: int
    partitions: int
    messages: BriefCounts
    estimated: bool


class TaskPage(msgspec.Struct, frozen=True):
    """A page of tasks."""

    tasks: list[TaskSummary]
    total: int
    pagination: Page


class Spread(msgspec.Struct, frozen=True):
    """How a figure is spread over the partitions with something to read."""

    avg: float
    median: float
    min: float
    max: float


class Lag(msgspec.Struct, frozen=True):
    """How far consumers are behind: in seconds, and in messages."""

    time: Spread
    offset: Spread


class Throughput(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Messages per second over the last five minutes, about."""

    ingested_per_second: float
    processed_per_second: float | None
    """Null: the times of acknowledgments are not recorded."""


class Overview(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The whole installation in figures. They are of this moment: `statsAge` is always 0."""

    queues: int
    partitions: int
    namespaces: int
    tasks: int
    messages: MessageCounts
    estimated: bool
    lag: Lag
    throughput: Throughput
    timestamp: datetime
    stats_age: int = 0


class MessageSummary(MessageAddress, frozen=True, kw_only=True):
    """A message in a listing, without its payload."""

    status: Status
    created_at: datetime
