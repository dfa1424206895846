"""Show operations, the requests that were accepted to be done later; retry, cancel, purge."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, get_args
from uuid import UUID

import msgspec

from skep.broker.ack.accept import AckRequest
from skep.broker.cluster.housekeeping import CallDuty
from skep.broker.overload.deferral import ACK_TYPE, PRIORITY_BY_TYPE, DepthLimits
from skep.broker.overload.shares import estimated_wait_s
from skep.broker.paging import from_row
from skep.broker.timestamps import wire_time
from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.model.errors import NotFound, Refused
from skep.model.ids import message_id, partition_uuid
from skep.model.wire import AckItem

PURGE_CALL: Final = "select skep.purge_operations($1, $2, $3)"

PURGE_BATCH: Final = 1_000
PURGE_INTERVAL_S: Final = 60.0

ALERTS_MAX: Final = 10
"""Stuck operations that the statistics name."""

CROWDED_SHARE: Final = 0.8
"""Share of the limit from which on the queue of operations is crowded."""

Health: TypeAlias = Literal["healthy", "crowded", "full", "stuck"]
Status: TypeAlias = Literal["waiting", "processing", "completed", "failed", "cancelled"]


class OperationSummary(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An operation, as a list shows it."""

    operation_id: str
    type: Literal["push", "ack_batch"]
    status: Status
    queue: str
    partition: str
    priority: int
    """The smaller, the sooner it is carried out."""
    retries: int
    """Attempts that failed."""
    item_count: int
    bytes: int
    error: str | None
    """Why the last attempt failed."""
    created_at: str
    started_at: str | None
    finished_at: str | None
    next_attempt_at: str | None
    """Of one that waits: not before then."""


class OperationDetail(OperationSummary, rename="camel", frozen=True, kw_only=True):
    """An operation, its place in line, and its answer when it is done."""

    queue_position: int | None
    """Among the operations of its partition and type; 1 is next."""
    estimated_wait: float | None
    """Seconds until it is done, at the present pace."""
    answer: list[dict[str, Any]] | None
    """What the request would have been answered; null until it is done."""


class OperationPage(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Operations, the newest first."""

    operations: list[OperationSummary]
    next_before: str | None
    """Where the next page begins; null when this is the last."""


class StatusCounts(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Operations by status."""

    waiting: int = 0
    processing: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0


class OperationLatency(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from acceptance to completion, of the last hundred within five minutes."""

    samples: int
    average: float | None
    p50: float | None
    p95: float | None
    max: float | None


class OperationAlert(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An operation that is stuck, and its partition with it."""

    operation_id: str
    type: Literal["push", "ack_batch"]
    queue: str
    partition: str
    status: Status
    retries: int
    due_at: str
    """Since when a process could have carried it out."""


class OperationStats(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """How many operations there are. Those that ended are counted while they are kept."""

    total: StatusCounts
    by_type: dict[str, StatusCounts]
    waiting_bytes: int
    oldest_waiting_at: str | None
    newest_waiting_at: str | None
    latency: OperationLatency
    system_health: Health
    """`stuck`: an operation was not carried out for `operation_timeout_s` although it could have
    been. `full`: no more are accepted; `crowded`: soon. Otherwise `healthy`."""
    alerts: list[OperationAlert]
    """The stuck operations, at most ten."""
    seconds_per_operation: float | None
    """The present pace of all processes together; null when nothing was done of late."""
    estimated_wait: float
    """Seconds until everything that waits now is done, at this pace."""


class OperationControl:
    """Shows operations, and retries or cancels them on request."""

    def __init__(
        self,
        caller: Caller,
        *,
        when_waiting: Callable[[], None],
        limits: DepthLimits,
        timeout_s: float,
    ) -> None:
        self._sql: Final = Functions(caller)
        self._when_waiting: Final = when_waiting
        self._limits: Final = limits
        self._timeout_s: Final = timeout_s

    async def stats(self) -> OperationStats:
        """Count operations by type and status, and tell how they get on."""
        rows = await self._sql.rows("operation_stats")
        counts: dict[str, dict[str, int]] = {}
        total = dict.fromkeys(get_args(Status), 0)
        waiting_bytes = 0
        for row in rows:
            status, operations = row["status"], row["operations"]
            counts.setdefault(row["type"], {})[status] = operations
            total[status] += operations
            if status in {"waiting", "processing"}:
                waiting_bytes += row["bytes"]
        pace_s = rows[0]["pace_s"] if rows else None
        latency = await self._sql.row("operation_latency")
        stuck = await self._sql.rows(
            "stuck_operations", list(PRIORITY_BY_TYPE.values()), self._timeout_s, ALERTS_MAX
        )
        depth = total["waiting"] + total["processing"]
        return OperationStats(
            total=StatusCounts(**total),
            by_type={type_: StatusCounts(**by_status) for type_, by_status in counts.items()},
            waiting_bytes=waiting_bytes,
            oldest_waiting_at=_time(rows[0]["oldest_at"]) if rows else None,
            newest_waiting_at=_time(rows[0]["newest_at"]) if rows else None,
            latency=OperationLatency(
                samples=latency["samples"],
                average=latency["average_s"],
                p50=latency["p50_s"],
                p95=latency["p95_s"],
                max=latency["max_s"],
            ),
            system_health="stuck" if stuck else self._health(depth, waiting_bytes),
            alerts=[
                from_row(
                    OperationAlert, row, operation_id=str(row["id"]), due_at=_time(row["due_at"])
                )
                for row in stuck
            ],
            seconds_per_operation=pace_s,
            estimated_wait=estimated_wait_s(depth, pace_s),
        )

    def _health(self, depth: int, waiting_bytes: int) -> Health:
        filled = max(depth / self._limits.operations, waiting_bytes / self._limits.bytes)
        if filled >= 1:
            return "full"
        return "crowded" if filled >= CROWDED_SHARE else "healthy"

    async def list_operations(
        self, *, status: Status | None, queue: str | None, before: int | None, limit: int
    ) -> OperationPage:
        """Return a page of operations, the newest first."""
        rows = await self._sql.rows("list_operations", status, queue, before, limit + 1)
        page = rows[:limit]
        return OperationPage(
            operations=[from_row(OperationSummary, row, **_members(row)) for row in page],
            next_before=str(page[-1]["number"]) if len(rows) > limit and page else None,
        )

    async def show(self, operation_id: UUID) -> OperationDetail:
        """Return an operation with its answer."""
        row = await self._sql.row("show_operation", operation_id, missing=_unknown(operation_id))
        wait_s = None
        if row["status"] in {"waiting", "processing"}:
            wait_s = estimated_wait_s(row["waiting"], row["pace_s"])
        return from_row(
            OperationDetail,
            row,
            **_members(row),
            estimated_wait=wait_s,
            answer=None if row["answer"] is None else _answer(row),
        )

    async def retry(self, operation_id: UUID) -> OperationDetail:
        """Queue a failed operation once more, behind all others of its partition."""
        outcome, _ = await self._sql.row("retry_operation", operation_id)
        if outcome == "unknown":
            raise _unknown(operation_id)
        if outcome != "waiting":
            gone = outcome == "gone"
            raise Refused("its queue was deleted" if gone else "only failed operations are retried")
        self._when_waiting()
        return await self.show(operation_id)

    async def cancel(self, operation_id: UUID) -> None:
        """Cancel an operation that waits or has failed."""
        outcome = await self._sql.value("cancel_operation", operation_id)
        if outcome == "unknown":
            raise _unknown(operation_id)
        if outcome != "cancelled":
            raise Refused("the operation is being carried out or has ended")


def operation_purge(caller: Caller, *, keep_s: float, keep_failed_s: float) -> CallDuty:
    """Return the duty that deletes operations that ended long ago."""
    arguments = (keep_s, keep_failed_s, PURGE_BATCH)
    return CallDuty("operation purge", PURGE_INTERVAL_S, caller, PURGE_CALL, arguments, PURGE_BATCH)


def _members(row: Any) -> dict[str, Any]:
    """Read what every view of an operation shows otherwise than it is stored."""
    is_waiting = row["status"] == "waiting"
    return {
        "operation_id": str(row["id"]),
        "created_at": _time(row["created_at"]),
        "started_at": _time(row["started_at"]),
        "finished_at": _time(row["finished_at"]),
        "next_attempt_at": _time(row["available_at"]) if is_waiting else None,
    }


def _answer(row: Any) -> list[dict[str, Any]]:
    """Return what the request would have been answered, in the order of its items."""
    queue, partition_id = row["queue"], row["partition_id"]
    items, outcomes = msgspec.json.decode(row["items"]), msgspec.json.decode(row["answer"])
    if row["type"] == ACK_TYPE:
        results = _ack_results(items, outcomes, queue, row["partition"])
    else:
        results = [
            {
                "index": index,
                "transaction_id": transaction_id,
                "status": "duplicate" if is_duplicate else "queued",
                "message_id": message_id(partition_id, offset),
                "partition_id": partition_uuid(partition_id),
                "trace_id": trace_id,
                "queueName": queue,
            }
            for (index, transaction_id, trace_id), (offset, is_duplicate) in zip(
                items, outcomes, strict=True
            )
        ]
    return sorted(results, key=lambda result: result["index"])


def _ack_results(
    rows: Sequence[Any], outcomes: Sequence[Any], queue: str, partition: str
) -> list[dict[str, Any]]:
    """Render acks as the route itself would have."""
    acks = [
        (index, outcome, is_released, AckItem(transaction_id, message_id=next(iter(rest), None)))
        for row, (outcome, is_released) in zip(rows, outcomes, strict=True)
        for index, transaction_id, *rest in row
    ]
    request = AckRequest([each[3] for each in acks], lambda _: None)
    for at, (_, outcome, is_released, _) in enumerate(acks):
        request.set_outcome(
            at, outcome, queue=queue, partition=partition, lease_released=is_released
        )
    results = [msgspec.json.decode(result) for result in request.results]
    return [{**result, "index": each[0]} for result, each in zip(results, acks, strict=True)]


def _time(moment: datetime | None) -> Any:
    return None if moment is None else wire_time(moment).decode()


def _unknown(operation_id: UUID) -> NotFound:
    return NotFound(f"operation {operation_id} does not exist")
