"""The metric families that Skep shows under its own names: what each is called, and what it means.

Data. Names follow the conventions of Prometheus: base units, `_total` for what only grows. A
partition is never a label; a queue is one up to a bound.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from skep.telemetry.histograms import COUNT_BOUNDS, DURATION_BOUNDS_S, LAG_BOUNDS_MS


class Family(NamedTuple):
    """One family of metrics."""

    name: str
    """Of a counter without `_total`, which is added when it is shown."""
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()
    bounds: Sequence[float] = ()

    @property
    def shown_name(self) -> str:
        """What it is called by those who ask for it."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


_QUEUE: Final = ("queue",)
_OPERATION: Final = ("operation",)
_LAG_BOUNDS_S: Final = tuple(bound / 1000 for bound in LAG_BOUNDS_MS)

FAMILIES: Final = (
    Family("skep_http_requests", "counter", "Requests answered.", ("route", "status")),
    Family(
        "skep_http_request_duration_seconds",
        "histogram",
        "From the last byte of a request to its answer; polls wait as long as they ask to.",
        ("route",),
        DURATION_BOUNDS_S,
    ),
    Family(
        "skep_sql_call_duration_seconds",
        "histogram",
        "Executions of SQL functions.",
        ("function",),
        DURATION_BOUNDS_S,
    ),
    Family("skep_sql_call_failures", "counter", "Executions that failed.", ("function",)),
    Family(
        "skep_engine_call_lots",
        "histogram",
        "Units that shared a call: what fusion brings.",
        _OPERATION,
        COUNT_BOUNDS,
    ),
    Family(
        "skep_engine_call_messages",
        "histogram",
        "Messages that shared a call.",
        _OPERATION,
        COUNT_BOUNDS,
    ),
    Family("skep_engine_call_failures", "counter", "Calls that failed at first.", _OPERATION),
    Family("skep_engine_calls_in_flight", "gauge", "Calls under way.", _OPERATION),
    Family("skep_engine_weight_bytes", "gauge", "What waits for a call or is in flight."),
    Family("skep_parked_polls", "gauge", "Polls that wait for messages."),
    Family("skep_leases_remembered", "gauge", "Leases whose messages this process remembers."),
    Family("skep_live_connections", "gauge", "Open WebSockets and event streams."),
    Family("skep_db_connections", "gauge", "Connections to PostgreSQL.", ("pool", "state")),
    Family("skep_db_waiting_calls", "gauge", "Calls that wait for a connection.", ("pool",)),
    Family("skep_push_requests", "counter", "Pushes into a queue.", _QUEUE),
    Family("skep_pushed_messages", "counter", "Messages stored.", _QUEUE),
    Family("skep_pushed_bytes", "counter", "Bytes of messages stored.", _QUEUE),
    Family("skep_push_duplicates", "counter", "Items that were stored before.", _QUEUE),
    Family("skep_pop_requests", "counter", "Polls that got messages.", _QUEUE),
    Family("skep_popped_messages", "counter", "Messages delivered.", _QUEUE),
    Family("skep_popped_bytes", "counter", "Bytes of answers with messages.", _QUEUE),
    Family("skep_empty_pops", "counter", "Polls that got nothing.", _QUEUE),
    Family("skep_redelivered_messages", "counter", "Messages delivered again.", _QUEUE),
    Family("skep_ack_requests", "counter", "Acknowledgments, as sent to the database.", _QUEUE),
    Family("skep_acked_messages", "counter", "Acknowledgments that complete.", _QUEUE),
    Family(
        "skep_failed_messages", "counter", "Acknowledgments that give back or are refused.", _QUEUE
    ),
    Family("skep_dead_letters", "counter", "Messages given up.", _QUEUE),
    Family("skep_transactions", "counter", "Transactions and stream cycles.", _QUEUE),
    Family("skep_partitions_created", "counter", "Partitions created.", _QUEUE),
    Family("skep_expired_messages", "counter", "Messages passed over: their time was over."),
    Family("skep_line_requests", "gauge", "Requests that stand in line for room in the engine."),
    Family("skep_line_held", "counter", "Requests that had to stand in line."),
    Family("skep_line_refused", "counter", "Requests for which there was no room in time."),
    Family("skep_operations_accepted", "counter", "Operations accepted to be carried out later."),
    Family("skep_operations_ended", "counter", "Operations that ended.", ("result",)),
    Family("skep_spill_pending_messages", "gauge", "Messages on this machine's disk, not stored."),
    Family("skep_spill_pending_bytes", "gauge", "Bytes they take."),
    Family("skep_spill_rejected_files", "gauge", "Records set aside as they cannot be stored."),
    Family("skep_spilled_messages", "counter", "Messages answered as buffered."),
    Family("skep_spill_refused_messages", "counter", "Messages that found no room on the disk."),
    Family("skep_spill_fsyncs", "counter", "Group commits to the disk."),
    Family("skep_maintenance_mode", "gauge", "1 while maintenance is on.", ("mode",)),
    Family("skep_database_away", "gauge", "1 while pushes wait on disk for a database."),
    Family("skep_peer_notices_heard", "counter", "Notices of other instances.", ("verdict",)),
    Family("skep_peer_notices_sent", "counter", "Notices to other instances.", ("carrier",)),
    Family("skep_peer_notices_failed", "counter", "Notices that could not be sent.", ("carrier",)),
    Family(
        "skep_delivery_lag_seconds",
        "histogram",
        "From push to delivery, by message.",
        (),
        _LAG_BOUNDS_S,
    ),
    Family(
        "skep_event_loop_lag_seconds",
        "histogram",
        "How late timers of the event loop ran.",
        (),
        DURATION_BOUNDS_S,
    ),
    Family("skep_process_resident_memory_bytes", "gauge", "Memory in use."),
    Family("skep_process_virtual_memory_bytes", "gauge", "Memory reserved."),
    Family("skep_process_cpu_seconds", "counter", "Processor time.", ("mode",)),
    Family("skep_process_start_time_seconds", "gauge", "When the process began, in Unix time."),
    Family("skep_build_info", "gauge", "The version that runs.", ("version",)),
)

BY_NAME: Final = {family.name: family for family in FAMILIES}

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
"""What the counters of a queue are shown as. The sum of the lag is part of its histogram."""
