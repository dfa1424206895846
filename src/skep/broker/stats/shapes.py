"""The answers of charts and the status, with the names of the wire.

Rates are per second, times in milliseconds unless their name says otherwise; null means not
measured.
"""

from typing import Literal

import msgspec

from skep.broker.queues.resources import MessageCounts
from skep.broker.stats.ranges import ChartSpan


class Wire(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Members are spelled as on the wire."""


class _Chart(Wire, rename="camel", frozen=True, kw_only=True):
    """What is charted over time."""

    time_range: ChartSpan
    bucket_minutes: int


class ThroughputPoint(Wire, rename="camel", frozen=True, kw_only=True):
    """What happened in the minutes from `timestamp` on, in all queues asked for."""

    timestamp: str
    ingested: int
    processed: int
    """Messages completed."""
    pop_messages: int
    ingested_per_second: float
    processed_per_second: float
    pop_per_second: float
    avg_lag_ms: float
    """From push to delivery."""
    p50_lag_ms: float | None
    """Estimates, never above `maxLagMs`. Null where nothing was delivered, or over more than twenty
    queues of a namespace or task."""
    p95_lag_ms: float | None
    p99_lag_ms: float | None
    max_lag_ms: int
    avg_event_loop_lag_ms: float | None
    max_event_loop_lag_ms: float | None
    min_free_slots: int | None
    db_errors: int
    ack_failed: int
    dlq_count: int
    queen_cpu_user_pct: float | None
    queen_cpu_sys_pct: float | None
    queen_rss_mb: float | None
    db_pool_active: float | None
    db_pool_idle: float | None
    db_pool_size: float | None


class StatusQueue(Wire, rename="camel", frozen=True, kw_only=True):
    """A queue in the status."""

    id: str
    name: str
    namespace: str
    task: str
    partitions: int
    total_consumed: int


class RequestCounts(msgspec.Struct, frozen=True):
    """Requests by operation."""

    push: int
    pop: int
    ack: int


class BatchSizes(msgspec.Struct, frozen=True):
    """Messages per request, by operation."""

    push: float
    pop: float
    ack: float


class StatusMessages(MessageCounts, rename="camel", frozen=True, kw_only=True):
    """The messages there are, and the requests about them in the time asked for."""

    requests: RequestCounts
    batch_efficiency: BatchSizes
    estimated: bool


class StatusLeases(Wire, rename="camel", frozen=True, kw_only=True):
    """What is under lease."""

    active: int
    partitions_with_leases: int
    total_batch_size: int
    """Messages under lease that are not done yet."""
    total_acked: int
    """Messages acknowledged in the time asked for: a lease does not keep what is done under it."""


class TopError(msgspec.Struct, frozen=True):
    """Why letters died."""

    error: str | None
    count: int


class StatusLetters(Wire, rename="camel", frozen=True, kw_only=True):
    """Dead letters; errors and partitions are those of the newest thousand."""

    total_messages: int
    affected_partitions: int
    top_errors: list[TopError]


class WorkerBrief(Wire, rename="camel", frozen=True, kw_only=True):
    """A worker that reported in the time asked for."""

    hostname: str
    worker_id: int
    avg_event_loop_lag_ms: float
    max_event_loop_lag_ms: float
    free_slots: int
    db_connections: int
    job_queue_size: int
    messages_processed: int


class WorkerReport(WorkerBrief, rename="camel", frozen=True, kw_only=True):
    """A worker in the chart of workers."""

    backoff_size: int = 0
    """Queues do not back off one by one: always 0."""
    last_seen: str


class StatusErrors(Wire, rename="camel", frozen=True, kw_only=True):
    """What went wrong in the time asked for."""

    db_errors: int
    ack_failed: int
    dlq_messages: int


class Status(_Chart, rename="camel", frozen=True, kw_only=True):
    """The state of the installation."""

    point_count: int
    throughput: list[ThroughputPoint]
    """Newest first."""
    queues: list[StatusQueue]
    messages: StatusMessages
    leases: StatusLeases
    dead_letter_queue: StatusLetters
    workers: list[WorkerBrief]
    errors: StatusErrors
    stats_age: float | None
    """Seconds since a worker reported; null when none did in the time asked for."""


class MessagePoint(msgspec.Struct, frozen=True):
    """Messages pushed from `timestamp` on."""

    timestamp: str
    messages: int


class MessageChart(
    msgspec.Struct,
    rename={"data_points": "dataPoints", "since": "from", "until": "to"},
    frozen=True,
    kw_only=True,
):
    """Messages pushed, by time."""

    data_points: list[MessagePoint]
    interval: str
    since: str
    until: str


class GaugeFigures(msgspec.Struct, frozen=True):
    """What was seen of a value."""

    avg: float
    min: float
    max: float
    last: float


class SystemPoint(Wire, rename="camel", frozen=True, kw_only=True):
    """What a worker used in the minutes from `timestamp` on."""

    timestamp: str
    sample_count: int
    metrics: dict[str, object]


class Replica(Wire, rename="camel", frozen=True, kw_only=True):
    """A worker and what it used."""

    hostname: str
    port: int
    worker_id: int
    time_series: list[SystemPoint]


class SystemChart(Wire, rename="camel", frozen=True, kw_only=True):
    """What the workers used."""

    time_range: ChartSpan
    replicas: list[Replica]
    replica_count: int
    bucket_minutes: int
    point_count: int


class WorkerPoint(Wire, rename="camel", frozen=True, kw_only=True):
    """What all workers did in the minutes from `timestamp` on."""

    timestamp: str
    push_messages: int
    pop_messages: int
    ack_messages: int
    push_requests: int
    pop_requests: int
    ack_requests: int
    jobs_done: int
    """Calls to the database."""
    push_per_second: float
    pop_per_second: float
    ack_per_second: float
    avg_event_loop_lag_ms: float
    max_event_loop_lag_ms: float
    avg_free_slots: float
    min_free_slots: int
    db_connections: int
    avg_job_queue_size: float
    """Calls that wait for a connection."""
    max_job_queue_size: int
    backoff_size: int = 0
    avg_lag_ms: float
    max_lag_ms: int
    lag_count: int
    """Messages that the lag is of."""
    db_errors: int
    ack_success: int
    ack_failed: int
    dlq_count: int


class QueueLagSummary(Wire, rename="camel", frozen=True, kw_only=True):
    """How long messages of a queue took from push to delivery."""

    queue_name: str
    pop_count: int
    avg_lag_ms: float
    max_lag_ms: int


class QueueLagPoint(QueueLagSummary, rename="camel", frozen=True, kw_only=True):
    """The same in the minutes from `bucketTime` on."""

    bucket_time: str


class WorkerTotals(Wire, rename="camel", frozen=True, kw_only=True):
    """The sums over the time asked for, and what is pending now."""

    total_push_messages: int
    total_pop_messages: int
    total_ack_messages: int
    total_push_requests: int
    total_pop_requests: int
    total_ack_requests: int
    total_db_errors: int
    total_ack_failed: int
    total_dlq: int
    pending_messages: int


class WorkerChart(_Chart, rename="camel", frozen=True, kw_only=True):
    """What the workers did."""

    point_count: int
    time_series: list[WorkerPoint]
    workers: list[WorkerReport]
    queues: list[QueueLagSummary]
    summary: WorkerTotals


class QueueOpsPoint(Wire, rename="camel", frozen=True, kw_only=True):
    """What happened in a queue in the minutes from `bucket` on."""

    bucket: str
    queue_name: str
    push_requests: int
    push_messages: int
    push_bytes: int
    push_duplicates: int
    pop_requests: int
    pop_messages: int
    pop_bytes: int
    pop_empty: int
    redelivered: int
    ack_requests: int
    ack_success: int
    ack_failed: int
    dead_letters: int
    transactions: int
    partitions_created: int
    partitions_deleted: int
    partition_count: int
    """Current, not of the bucket."""
    avg_lag_ms: float
    p50_lag_ms: float | None
    """Quantiles only when one queue is requested, else null."""
    p95_lag_ms: float | None
    p99_lag_ms: float | None
    max_lag_ms: int
    push_per_second: float
    pop_per_second: float
    ack_per_second: float
    empty_per_second: float
    parked_count: int
    """The most polls that waited, over all workers."""


class QueueOpsChart(_Chart, rename="camel", frozen=True, kw_only=True):
    """What happened in queues: in the one asked for, or in the busiest."""

    series: list[QueueOpsPoint]
    queues: list[str]


class ParkedPoint(Wire, rename="camel", frozen=True, kw_only=True):
    """The most polls that waited for a queue in a worker in the minutes from `bucket` on."""

    bucket: str
    queue_name: str
    hostname: str
    worker_id: int
    parked_count: int


class ReplicaName(Wire, rename="camel", frozen=True, kw_only=True):
    """A worker."""

    hostname: str
    worker_id: int


class ParkedChart(_Chart, rename="camel", frozen=True, kw_only=True):
    """Where polls waited."""

    series: list[ParkedPoint]
    replicas: list[ReplicaName]


class GroupLagPoint(Wire, rename="camel", frozen=True, kw_only=True):
    """The most that a group was behind in the minutes from `bucket` on."""

    bucket: str
    queue_name: str
    consumer_group: str
    offset_lag: int
    time_lag_seconds: int


class GroupLagChart(_Chart, rename="camel", frozen=True, kw_only=True):
    """How far groups of queues in use were behind."""

    series: list[GroupLagPoint]


class ReaderLag(Wire, rename="camel", frozen=True, kw_only=True):
    """How far a reader on Spark is behind in a queue."""

    queue: str
    name: str
    messages: int
    time_lag_seconds: int
    updated_at: str
    active: bool
    """Whether the log is still kept for it."""


class ReaderPage(msgspec.Struct, frozen=True):
    """Readers, by queue and name."""

    readers: list[ReaderLag]


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to an instance."""

    at: str
    kind: Literal["deploy", "start", "restart", "stop", "loss"]
    """`deploy`: a version seen for the first time; `loss`: it stopped reporting unannounced."""
    instance: str
    """Host and port."""
    text: str


class MarkerList(Wire, rename="camel", frozen=True, kw_only=True):
    """What happened to instances, newest first; five hundred at most."""

    time_range: ChartSpan
    markers: list[Marker]
