"""Operations: what was accepted to be done later, for those who ask what became of it."""

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


class OperationDesk:
    """Shows operations, and lets people decide about those that were given up."""

    def __init__(self, caller: Caller, *, when_waiting: Callable[[], None]) -> None:
        self._caller: Final = caller
        self._when_waiting: Final = when_waiting

    async def stats(self) -> OperationStats:
        """Count operations by type and status."""
        rows = await self._caller.call(STATS_CALL)
        counts: dict[str, dict[str, int]] = {}
        total = dict.fromkeys(get_args(Status), 0)
        waiting_bytes = 0
        for type_, status, operations, size, _, _ in rows:
            counts.setdefault(type_, {})[status] = operations
            total[status] += operations
            if status in {"waiting", "processing"}:
                waiting_bytes += size
        pace_s = rows[0][4] if rows else None
        return OperationStats(
            total=StatusCounts(**total),
            by_type={type_: StatusCounts(**by_status) for type_, by_status in counts.items()},
            waiting_bytes=waiting_bytes,
            oldest_waiting_at=_time(rows[0][5]) if rows else None,
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
            next_before=str(page[-1][1]) if len(rows) > limit and page else None,
        )

    async def show(self, operation_id: UUID) -> OperationDetail:
        """Return an operation with its answer.

        Raises:
            NotFound: There is none, or none any more.
        """
        rows = await self._caller.call(SHOW_CALL, operation_id)
        if not rows:
            raise _unknown(operation_id)
        row = rows[0]
        partition_id, items, answer, position, waiting, pace_s = row[15:]
        is_waiting = row[6] in {"waiting", "processing"}
        return OperationDetail(
            **_summary(row),
            queue_position=position,
            estimated_wait=estimated_wait_s(waiting, pace_s) if is_waiting else None,
            answer=None if answer is None else _answer(row, partition_id, items, answer),
        )

    async def retry(self, operation_id: UUID) -> OperationDetail:
        """Let an operation that was given up wait once more, behind all others of its partition.

        Raises:
            NotFound: There is none, or none any more.
            Refused: It has not failed, or its queue is gone.
        """
        ((outcome, _),) = await self._caller.call(RETRY_CALL, operation_id)
        if outcome == "unknown":
            raise _unknown(operation_id)
        if outcome != "waiting":
            gone = outcome == "gone"
            raise Refused("its queue was deleted" if gone else "only what has failed is retried")
        self._when_waiting()
        return await self.show(operation_id)

    async def cancel(self, operation_id: UUID) -> None:
        """Let an operation that waits or was given up not be done.

        Raises:
            NotFound: There is none, or none any more.
            Refused: It is being carried out or has ended.
        """
        ((outcome,),) = await self._caller.call(CANCEL_CALL, operation_id)
        if outcome == "unknown":
            raise _unknown(operation_id)
        if outcome != "cancelled":
            raise Refused("the operation is being carried out or has ended")


class OperationPurge:
    """The duty to delete operations that ended long ago."""

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
    (id_, _, type_, queue, partition, priority, status, retries, item_count, size, error,
     created_at, started_at, finished_at, available_at) = row[:15]  # fmt: skip
    return {
        "operation_id": str(id_),
        "type": type_,
        "status": status,
        "queue": queue,
        "partition": partition,
        "priority": priority,
        "retries": retries,
        "item_count": item_count,
        "bytes": size,
        "error": error,
        "created_at": _time(created_at),
        "started_at": _time(started_at),
        "finished_at": _time(finished_at),
        "next_attempt_at": _time(available_at) if status == "waiting" else None,
    }


def _answer(row: Any, partition_id: int, items: str, answer: str) -> list[dict[str, Any]]:
    """Say of each item what the request would have been answered, in the order of its items."""
    type_, queue, partition = row[2:5]
    said, became = msgspec.json.decode(items), msgspec.json.decode(answer)
    if type_ == ACK_TYPE:
        results = _ack_results(said, became, queue, partition)
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
                said, became, strict=True
            )
        ]
    return sorted(results, key=lambda result: result["index"])


def _ack_results(
    said: Sequence[Any], became: Sequence[Any], queue: str, partition: str
) -> list[dict[str, Any]]:
    """Render acks as the route itself would have."""
    spoken = [
        (index, transaction_id, outcome, is_released)
        for row, (outcome, is_released) in zip(said, became, strict=True)
        for index, transaction_id in row
    ]
    items = [AckItem(transaction_id=each[1], partition_id="") for each in spoken]
    request = AckRequest(items, lambda _: None)
    for at, (_, _, outcome, is_released) in enumerate(spoken):
        request.set_outcome(
            at, outcome, queue=queue, partition=partition, lease_released=is_released
        )
    results = [msgspec.json.decode(result) for result in request.results]
    return [{**result, "index": each[0]} for result, each in zip(results, spoken, strict=True)]


def _time(moment: datetime | None) -> Any:
    return None if moment is None else wire_time(moment).decode()


def _unknown(operation_id: UUID) -> NotFound:
    return NotFound(f"no operation has the id {operation_id}")
