"""The metric families with Skep's own names.

Names follow the conventions of Prometheus: base units, `_total` for counters. A partition is never
a label; queues are, up to a limit.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from skep.telemetry.histograms import COUNT_BOUNDS, DURATION_BOUNDS_S, LAG_BOUNDS_MS


class Family(NamedTuple):
    """One family of metrics."""

    name: str
    """For a counter without `_total`, which is added when it is exposed."""
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()
    bounds: Sequence[float] = ()


_QUEUE: Final = ("queue",)
_OPERATION: Final = ("operation",)
_LAG_BOUNDS_S: Final = tuple(bound / 1000 for bound in LAG_BOUNDS_MS)

FAMILIES: Final = (
    Family("skep_http_requests", "counter", "HTTP requests answered.", ("route", "status")),
    Family(
        "skep_http_request_duration_seconds",
        "histogram",
        "Time from the last byte of a request to its response, including the wait of long polls.",
        ("route",),
        DURATION_BOUNDS_S,
    ),
    Family(
        "skep_sql_call_duration_seconds",
        "histogram",
        "Duration of SQL function calls.",
        ("function",),
        DURATION_BOUNDS_S,
    ),
    Family("skep_sql_call_failures", "counter", "Failed SQL function calls.", ("function",)),
    Family(
        "skep_engine_call_lots",
        "histogram",
        "Requests combined into one database call.",
        _OPERATION,
        COUNT_BOUNDS,
    ),
    Family(
        "skep_engine_call_messages",
        "histogram",
        "Messages combined into one database call.",
        _OPERATION,
        COUNT_BOUNDS,
    ),
    Family(
        "skep_engine_call_failures",
        "counter",
        "Database calls that failed at first.",
        _OPERATION,
    ),
    Family("skep_engine_calls_in_flight", "gauge", "Database calls in flight.", _OPERATION),
    Family("skep_engine_weight_bytes", "gauge", "Bytes waiting or in flight in the engine."),
    Family("skep_parked_polls", "gauge", "Long polls waiting for messages."),
    Family("skep_waiting_fetches", "gauge", "Reads by offset waiting for messages."),
    Family("skep_fetched_messages", "counter", "Messages read by offset."),
    Family("skep_leases_remembered", "gauge", "Leases cached by this process."),
    Family("skep_live_connections", "gauge", "Open WebSockets and event streams."),
    Family("skep_db_connections", "gauge", "PostgreSQL connections.", ("pool", "state")),
    Family("skep_db_waiting_calls", "gauge", "Calls waiting for a connection.", ("pool",)),
    Family("skep_push_requests", "counter", "Push requests.", _QUEUE),
    Family("skep_pushed_messages", "counter", "Messages stored.", _QUEUE),
    Family("skep_pushed_bytes", "counter", "Bytes of stored messages.", _QUEUE),
    Family("skep_push_duplicates", "counter", "Pushed items that were duplicates.", _QUEUE),
    Family("skep_push_unknown_fields", "counter", "Unknown fields of pushed items."),
    Family("skep_push_missing_payloads", "counter", "Pushed items without a payload."),
    Family("skep_pop_requests", "counter", "Pops that returned messages.", _QUEUE),
    Family("skep_popped_messages", "counter", "Messages delivered.", _QUEUE),
    Family("skep_popped_bytes", "counter", "Bytes of pop responses.", _QUEUE),
    Family("skep_empty_pops", "counter", "Pops that returned nothing.", _QUEUE),
    Family("skep_redelivered_messages", "counter", "Messages redelivered.", _QUEUE),
    Family("skep_ack_requests", "counter", "Acknowledgment calls to the database.", _QUEUE),
    Family("skep_acked_messages", "counter", "Messages acknowledged as completed.", _QUEUE),
    Family("skep_failed_messages", "counter", "Failed and refused acknowledgments.", _QUEUE),
    Family("skep_dead_letters", "counter", "Messages moved to dead letters.", _QUEUE),
    Family("skep_transactions", "counter", "Transactions and stream cycles.", _QUEUE),
    Family("skep_partitions_created", "counter", "Partitions created.", _QUEUE),
    Family("skep_expired_messages", "counter", "Messages skipped because they had expired."),
    Family("skep_dedup_memory_bytes", "gauge", "Memory that recent transaction ids take."),
    Family("skep_dedup_disk_bytes", "gauge", "Files that recent transaction ids take."),
    Family("skep_dedup_keys", "gauge", "Transaction ids in memory inside the duplicate window."),
    Family("skep_dedup_keys_max", "gauge", "Transaction ids that the memory limit has room for."),
    Family(
        "skep_dedup_lacking_seconds",
        "gauge",
        "Part of the longest duplicate window that memory does not cover; 0 if it is whole.",
    ),
    Family("skep_dedup_lookups", "counter", "Transaction ids looked up in memory."),
    Family("skep_dedup_hits", "counter", "Transaction ids found in memory."),
    Family("skep_dedup_loaded_keys", "counter", "Transaction ids read from PostgreSQL."),
    Family(
        "skep_dedup_searches",
        "counter",
        "Windows searched in PostgreSQL because memory did not cover them.",
    ),
    Family("skep_line_requests", "gauge", "Requests waiting for engine capacity."),
    Family("skep_line_held", "counter", "Requests that had to wait for engine capacity."),
    Family("skep_line_refused", "counter", "Requests refused after waiting for capacity."),
    Family("skep_operations_accepted", "counter", "Deferred operations accepted."),
    Family("skep_operations_ended", "counter", "Deferred operations finished.", ("result",)),
    Family("skep_timer_operations", "counter", "Operations on timers.", ("status",)),
    Family("skep_lock_operations", "counter", "Operations on locks.", ("op", "result")),
    Family("skep_lock_waiters", "gauge", "Acquirers that wait in line."),
    Family("skep_spill_pending_messages", "gauge", "Messages on disk, not yet in PostgreSQL."),
    Family("skep_spill_pending_bytes", "gauge", "Bytes of messages on disk."),
    Family("skep_spill_rejected_files", "gauge", "Spilled records that could not be stored."),
    Family("skep_spilled_messages", "counter", "Messages written to local disk."),
    Family("skep_spill_refused_messages", "counter", "Messages refused: the spill is full."),
    Family("skep_spill_fsyncs", "counter", "Group commits of the spill."),
    Family("skep_maintenance_mode", "gauge", "1 while maintenance mode is on.", ("mode",)),
    Family("skep_database_away", "gauge", "1 while pushes go to disk for lack of PostgreSQL."),
    Family("skep_peer_notices_heard", "counter", "Notices from other instances.", ("verdict",)),
    Family("skep_peer_notices_sent", "counter", "Notices sent to other instances.", ("carrier",)),
    Family("skep_peer_notices_failed", "counter", "Notices that could not be sent.", ("carrier",)),
    Family(
        "skep_delivery_lag_seconds",
        "histogram",
        "Time from push to delivery, per message.",
        (),
        _LAG_BOUNDS_S,
    ),
    Family(
        "skep_event_loop_lag_seconds",
        "histogram",
        "Delay of event loop timers.",
        (),
        DURATION_BOUNDS_S,
    ),
    Family("skep_process_resident_memory_bytes", "gauge", "Resident memory."),
    Family("skep_process_virtual_memory_bytes", "gauge", "Virtual memory."),
    Family("skep_process_cpu_seconds", "counter", "CPU time.", ("mode",)),
    Family("skep_process_start_time_seconds", "gauge", "Start time of the process, in Unix time."),
    Family("skep_build_info", "gauge", "The running version.", ("version",)),
)

FAMILY_BY_COUNTER: Final = {
    "push_requests": "skep_push_requests",
    "push_messages": "skep_pushed_messages",
    "push_bytes": "skep_pushed_bytes",
    "push_duplicates": "skep_push_duplicates",
    "pop_requests": "skep_pop_requests",
    "pop_messages": "skep_popped_messages",
    "pop_bytes": "skep_popped_bytes",
    "pop_empty": "skep_empty_pops",
    "redelivered": "skep_redelivered_messages",
    "ack_requests": "skep_ack_requests",
    "ack_success": "skep_acked_messages",
    "ack_failed": "skep_failed_messages",
    "dead_letters": "skep_dead_letters",
    "transactions": "skep_transactions",
    "partitions_created": "skep_partitions_created",
}
"""The family of each queue counter. The lag sum is part of its histogram."""
