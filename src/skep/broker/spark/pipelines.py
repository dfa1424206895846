"""Pipelines on Spark as their runners report them, and how far the archive of each queue reaches.

The broker neither runs pipelines nor archives. It reads the records that runners and `skep archive`
write, and asks runners through them to stop, so that users need not know where a pipeline runs.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from skep.broker.paging import from_row, rows_and_total
from skep.broker.timestamps import wire_time
from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.model.errors import NotFound
from skep.model.limits import PIPELINE_SILENT_S

State = Literal["starting", "running", "stopped", "failed"]


class PipelineBatch(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A micro-batch that ended."""

    sink: str
    number: int
    started_at: str
    rows: int
    duration_ms: int


class PipelineExpectation(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What a pipeline expects of its results, and how many of the last run met it."""

    sink: str
    name: str
    otherwise: Literal["warn", "drop", "fail"]
    """What happens to a row that does not meet it."""
    rows: int
    """All that were looked at."""
    failed: int


class PipelineSummary(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """How a pipeline is doing, by its last report."""

    name: str
    state: State
    is_alive: bool
    """It runs, and has reported in the last seconds."""
    is_stopping: bool
    messages: int
    """Read by the last run."""
    batches: int
    messages_per_second: float
    lag_messages: int | None
    lag_seconds: int | None
    last_batch: PipelineBatch | None
    """Null before the first one of the run."""
    last_error: str | None
    started_at: str
    reported_at: str
    ended_at: str | None


class PipelineDetail(PipelineSummary, frozen=True, kw_only=True):
    """All that is known of a pipeline."""

    definition: msgspec.Raw
    definition_hash: str
    checkpoint: str
    runner: str
    master: str
    position: msgspec.Raw | None
    """By sink, the positions of its sources."""
    recent: list[PipelineBatch]
    """The last micro-batches of the run, the oldest first."""
    expectations: list[PipelineExpectation]


class PipelinePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of pipelines, by name."""

    pipelines: Sequence[PipelineSummary]
    total: int
    limit: int
    offset: int


class StopAsked(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The answer to a request to stop a pipeline."""

    name: str
    state: State
    """As it was."""
    is_stopping: bool
    """It has a runner, which notices within about a second."""


class ArchivedQueue(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Which time of a queue is where."""

    queue: str
    messages: int
    """Archived so far."""
    archived_at: datetime | None
    is_wanted: bool
    """The queue's configuration asks for an archive."""
    is_running: bool
    """A run was begun and has not ended."""
    is_foreign: bool
    """The archive belongs to the server that this database was restored from."""
    gone_to: datetime | None
    """What was stored until then was deleted, and is in no archive."""
    covered_from: datetime | None
    covered_to: datetime | None
    """What was stored between is in the archive."""
    live_from: datetime | None
    """The oldest message of the live log."""


class ArchivePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the queues that have an archive or want one, by name."""

    queues: list[ArchivedQueue]
    total: int
    limit: int
    offset: int


_expectations: Final = msgspec.json.Decoder(list[PipelineExpectation])
_recent: Final = msgspec.json.Decoder(list[PipelineBatch])


class Pipelines:
    """The records of pipelines and of the archive."""

    def __init__(self, caller: Caller) -> None:
        self._sql: Final = Functions(caller)

    async def listed(self, *, limit: int, offset: int) -> PipelinePage:
        """Return a page of the pipelines."""
        rows, total = await rows_and_total(self._sql, "list_pipelines", None, limit, offset)
        pipelines = [from_row(PipelineSummary, row, **_summary(row)) for row in rows]
        return PipelinePage(pipelines=pipelines, total=total, limit=limit, offset=offset)

    async def show(self, name: str) -> PipelineDetail:
        """Return one pipeline; raise `NotFound` if there is none of that name."""
        missing = NotFound(f"there is no pipeline {name}")
        row = await self._sql.row("list_pipelines", name, 1, 0, missing=missing)
        position = row["position"]
        return from_row(
            PipelineDetail,
            row,
            **_summary(row),
            definition=msgspec.Raw(row["definition"].encode()),
            position=None if position is None else msgspec.Raw(position.encode()),
            recent=_batches(row),
            expectations=_expectations.decode(row["expectations"] or "[]"),
        )

    async def stop(self, name: str) -> StopAsked:
        """Ask the runner of a pipeline to stop it; raise `NotFound` if there is none."""
        missing = NotFound(f"there is no pipeline {name}")
        row = await self._sql.row("stop_pipeline", name, missing=missing)
        state = row["state"]
        return StopAsked(name=name, state=state, is_stopping=_is_alive(state, row["silent_s"]))

    async def archived(self, *, limit: int, offset: int) -> ArchivePage:
        """Return a page of the queues that have an archive or want one."""
        rows, total = await rows_and_total(self._sql, "archive_coverage", limit, offset)
        queues = [from_row(ArchivedQueue, row) for row in rows]
        return ArchivePage(queues=queues, total=total, limit=limit, offset=offset)


def _summary(row: Any) -> dict[str, Any]:
    is_alive = _is_alive(row["state"], row["silent_s"])
    return {
        "is_alive": is_alive,
        "is_stopping": is_alive and row["should_stop"],
        "messages_per_second": row["rate"],
        "lag_seconds": row["lag_s"],
        "last_batch": next(iter(_batches(row)[-1:]), None),
        "started_at": _time(row["started_at"]),
        "reported_at": _time(row["seen_at"]),
        "ended_at": None if row["ended_at"] is None else _time(row["ended_at"]),
    }


def _batches(row: Any) -> list[PipelineBatch]:
    recent = row["recent"]
    return [] if recent is None else _recent.decode(recent)


def _is_alive(state: State, silent_s: float) -> bool:
    return state in ("starting", "running") and silent_s <= PIPELINE_SILENT_S


def _time(moment: datetime) -> str:
    return wire_time(moment).decode()
