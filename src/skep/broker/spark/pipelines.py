"""Pipelines on Spark, as those who run them report: listed, shown, asked to stop.

The broker does not run them. It reads and writes the same record as they do, so that people need
not know where a pipeline runs.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from skep.broker.timestamps import wire_time
from skep.db.access.slots import Caller
from skep.model.errors import NotFound
from skep.model.limits import PIPELINE_SILENT_S

LIST_CALL: Final = "select * from skep.list_pipelines($1, $2, $3)"
STOP_CALL: Final = "select * from skep.stop_pipeline($1)"


State = Literal["starting", "running", "stopped", "failed"]


class PipelineBatch(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A micro-batch that ended."""

    sink: str
    number: int
    started_at: str
    rows: int
    duration_ms: int


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


class PipelinePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of pipelines, by name."""

    pipelines: Sequence[PipelineSummary]
    total: int
    limit: int
    offset: int


class StopAsked(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What became of the wish to stop a pipeline."""

    name: str
    state: State
    """As it was."""
    is_stopping: bool
    """Somebody runs it, and will hear of it within a second or so."""


_recent: Final = msgspec.json.Decoder(list[PipelineBatch])


class Pipelines:
    """The record of pipelines."""

    def __init__(self, caller: Caller) -> None:
        self._caller: Final = caller

    async def listed(self, *, limit: int, offset: int) -> PipelinePage:
        """Return a page of the pipelines."""
        rows = await self._caller.call(LIST_CALL, None, limit, offset)
        counted = rows or await self._caller.call(LIST_CALL, None, 1, 0)
        return PipelinePage(
            pipelines=[PipelineSummary(**_summary(row)) for row in rows],
            total=counted[0]["total"] if counted else 0,
            limit=limit,
            offset=offset,
        )

    async def show(self, name: str) -> PipelineDetail:
        """Return one pipeline.

        Raises:
            NotFound: There is none of that name.
        """
        rows = await self._caller.call(LIST_CALL, name, 1, 0)
        if not rows:
            raise NotFound(f"there is no pipeline {name}")
        row = rows[0]
        position = row["position"]
        return PipelineDetail(
            **_summary(row),
            definition=msgspec.Raw(row["definition"].encode()),
            definition_hash=row["definition_hash"],
            checkpoint=row["checkpoint"],
            runner=row["runner"],
            master=row["master"],
            position=None if position is None else msgspec.Raw(position.encode()),
            recent=_batches(row),
        )

    async def stop(self, name: str) -> StopAsked:
        """Ask whoever runs a pipeline to stop it.

        Raises:
            NotFound: There is none of that name.
        """
        rows = await self._caller.call(STOP_CALL, name)
        if not rows:
            raise NotFound(f"there is no pipeline {name}")
        state, silent_s = rows[0]
        return StopAsked(name=name, state=state, is_stopping=_is_alive(state, silent_s))


def _summary(row: Any) -> dict[str, Any]:
    is_alive = _is_alive(row["state"], row["silent_s"])
    return {
        "name": row["name"],
        "state": row["state"],
        "is_alive": is_alive,
        "is_stopping": is_alive and row["should_stop"],
        "messages": row["messages"],
        "batches": row["batches"],
        "messages_per_second": row["rate"],
        "lag_messages": row["lag_messages"],
        "lag_seconds": row["lag_s"],
        "last_batch": next(iter(_batches(row)[-1:]), None),
        "last_error": row["last_error"],
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
