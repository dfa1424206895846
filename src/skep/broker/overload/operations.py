"""Show operations, the requests that were accepted to be done later; retry, cancel, purge."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, get_args
from uuid import UUID

import msgspec

from skep.broker.ack.accept import AckRequest
from skep.broker.overload.deferral import ACK_TYPE
from skep.broker.overload.shares import estimated_wait_s
from skep.broker.timestamps import wire_time
from skep.db.access.slots import Caller
from skep.model.errors import NotFound, Refused
from skep.model.ids import message_id, partition_uuid
from skep.model.wire import AckItem

STATS_CALL: Final = "select * from skep.operation_stats()"
LIST_CALL: Final = "select * from skep.list_operations($1, $2, $3, $4)"
SHOW_CALL: Final = "select * from skep.show_operation($1)"
RETRY_CALL: Final = "select * from skep.retry_operation($1)"
CANCEL_CALL: Final = "select skep.cancel_operation($1)"
PURGE_CALL: Final = "select skep.purge_operations($1, $2, $3)"

_SHOWN_AS_STORED: Final = (
    "type", "status", "queue", "partition", "priority", "retries", "item_count", "bytes", "error"
)  # fmt: skip

PURGE_BATCH: Final = 1_000
PURGE_INTERVAL_S: Final = 60.0

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


class OperationStats(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """How many operations there are. Those that ended are counted while they are kept."""

    total: StatusCounts
    by_type: dict[str, StatusCounts]
    waiting_bytes: int
    oldest_waiting_at: str | None
    seconds_per_operation: float | None
    """The present pace of all processes together; null when nothing was done of late."""
    estimated_wait: float
    """Seconds until everything that waits now is done, at this pace."""


class OperationControl:
    """Shows operations, and retries or cancels them on request."""

    def __init__(self, caller: Caller, *, when_waiting: Callable[[], None]) -> None:
        self._caller: Final = caller
        self._when_waiting: Final = when_waiting

    async def stats(self) -> OperationStats:
        """Count operations by type and status."""
        rows = await self._caller.call(STATS_CALL)
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
        return OperationStats(
            total=StatusCounts(**total),
            by_type={type_: StatusCounts(**by_status) for type_, by_status in counts.items()},
            waiting_bytes=waiting_bytes,
            oldest_waiting_at=_time(rows[0]["oldest_at"]) if rows else None,
            seconds_per_operation=pace_s,
            estimated_wait=estimated_wait_s(total["waiting"] + total["processing"], pace_s),
        )

    async def list_operations(
        self, *, status: Status | None, queue: str | None, before: int | None, limit: int
    ) -> OperationPage:
        """Return a page of operations, the newest first."""
        rows = await self._caller.call(LIST_CALL, status, queue, before, limit + 1)
        page = rows[:limit]
        return OperationPage(
            operations=[OperationSummary(**_summary(row)) for row in page],
            next_before=str(page[-1]["number"]) if len(rows) > limit and page else None,
        )

    async def show(self, operation_id: UUID) -> OperationDetail:
        """Return an operation with its answer.

        Raises:
            NotFound: There is no such operation, or no longer.
        """
        rows = await self._caller.call(SHOW_CALL, operation_id)
        if not rows:
            raise _unknown(operation_id)
        row = rows[0]
        wait_s = None
        if row["status"] in {"waiting", "processing"}:
            wait_s = estimated_wait_s(row["waiting"], row["pace_s"])
        return OperationDetail(
            **_summary(row),
            queue_position=row["queue_position"],
            estimated_wait=wait_s,
            answer=None if row["answer"] is None else _answer(row),
        )

    async def retry(self, operation_id: UUID) -> OperationDetail:
        """Queue a failed operation once more, behind all others of its partition.

        Raises:
            NotFound: There is no such operation, or no longer.
            Refused: It has not failed, or its queue is gone.
        """
        ((outcome, _),) = await self._caller.call(RETRY_CALL, operation_id)
        if outcome == "unknown":
            raise _unknown(operation_id)
        if outcome != "waiting":
            gone = outcome == "gone"
            raise Refused("its queue was deleted" if gone else "only failed operations are retried")
        self._when_waiting()
        return await self.show(operation_id)

    async def cancel(self, operation_id: UUID) -> None:
        """Cancel an operation that waits or has failed.

        Raises:
            NotFound: There is no such operation, or no longer.
            Refused: It is being carried out or has ended.
        """
        ((outcome,),) = await self._caller.call(CANCEL_CALL, operation_id)
        if outcome == "unknown":
            raise _unknown(operation_id)
        if outcome != "cancelled":
            raise Refused("the operation is being carried out or has ended")


class OperationPurge:
    """Deletes operations that ended long ago."""

    def __init__(self, caller: Caller, *, keep_s: float, keep_failed_s: float) -> None:
        self.name: Final = "operation purge"
        self.interval_s: Final = PURGE_INTERVAL_S
        self._caller: Final = caller
        self._keep_s: Final = keep_s
        self._keep_failed_s: Final = keep_failed_s

    async def run(self) -> bool:
        """Delete some; return whether there may be more."""
        ((count,),) = await self._caller.call(
            PURGE_CALL, self._keep_s, self._keep_failed_s, PURGE_BATCH
        )
        return count >= PURGE_BATCH


def _summary(row: Any) -> dict[str, Any]:
    """Read the columns that every view of an operation has."""
    is_waiting = row["status"] == "waiting"
    return {
        "operation_id": str(row["id"]),
        **{name: row[name] for name in _SHOWN_AS_STORED},
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
        (index, transaction_id, outcome, is_released)
        for row, (outcome, is_released) in zip(rows, outcomes, strict=True)
        for index, transaction_id in row
    ]
    items = [AckItem(transaction_id=each[1], partition_id="") for each in acks]
    request = AckRequest(items, lambda _: None)
    for at, (_, _, outcome, is_released) in enumerate(acks):
        request.set_outcome(
            at, outcome, queue=queue, partition=partition, lease_released=is_released
        )
    results = [msgspec.json.decode(result) for result in request.results]
    return [{**result, "index": each[0]} for result, each in zip(results, acks, strict=True)]


def _time(moment: datetime | None) -> Any:
    return None if moment is None else wire_time(moment).decode()


def _unknown(operation_id: UUID) -> NotFound:
    return NotFound(f"operation {operation_id} does not exist")
