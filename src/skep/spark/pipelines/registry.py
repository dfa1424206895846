"""The record of pipelines in PostgreSQL: runner, progress and requests to stop.

The process that runs a pipeline holds a lock that ends with its connection, so a pipeline that was
killed can be started again at once. A run that lost its connection and, meanwhile, its lock to
another run notices with its next report and ends.
"""

import logging
import os
import socket
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias

import msgspec

from skep.model.errors import Refused, SkepError, Unavailable
from skep.spark.runtime.postgres import Connection

BEGIN: Final = (
    "select run_id::text as run_id, known_hash, known_checkpoint, has_progress from "
    "skep.begin_pipeline($1, $2::text::json, $3, $4, $5, $6, $7::text::boolean)"
)
REPORT: Final = (
    "select * from skep.report_pipeline($1::text::uuid, $2, $3::text::json, $4::text::bigint, "
    "$5::text::bigint, $6::text::float8, $7::text::bigint, $8::text::bigint, $9, "
    "$10::text::json, $11::text::json)"
)
LIST: Final = "select * from skep.list_pipelines($1, $2::text::integer, 0)"
FORGET_READER: Final = "select skep.forget_reader($1)"
LOCK: Final = "select pg_try_advisory_lock(hashtextextended('skep.pipeline:' || $1, 0)) as is_taken"
UNLOCK: Final = "select pg_advisory_unlock(hashtextextended('skep.pipeline:' || $1, 0))"

STATEMENT_TIMEOUT_S: Final = 30.0

State: TypeAlias = Literal["starting", "running", "stopped", "failed"]
_logger: Final = logging.getLogger(__name__)


class PipelineBusy(Refused):
    """The pipeline is already running."""


class PipelineChanged(Refused):
    """The definition is another one than that of the checkpoint."""


class Batch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A micro-batch that ended."""

    sink: str
    number: int
    started_at: str
    rows: int
    duration_ms: int


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """How many results of a run met an expectation."""

    sink: str
    name: str
    otherwise: str
    """What happens to a row that does not meet it: `warn`, `drop` or `fail`."""
    rows: int = 0
    failed: int = 0


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is doing."""

    batches: int = 0
    messages: int = 0
    rate: float = 0.0
    lag_messages: int | None = None
    lag_s: int | None = None
    position: dict[str, Any] | None = None
    """By sink, the positions of its sources."""
    recent: tuple[Batch, ...] = ()
    """The last micro-batches, the oldest first."""
    expectations: tuple[Expected, ...] = ()


class Registry:
    """The record of one database; one connection."""

    def __init__(self, url: str) -> None:
        """Connect; raise `Unavailable` if the database is not reachable."""
        self._url: Final = url
        self._database: Connection | None = Connection(url, STATEMENT_TIMEOUT_S)
        self._locked: str | None = None
        self._run_id = ""

    def close(self) -> None:
        """Give up the lock and disconnect."""
        if self._database is not None:
            if self._locked is not None:
                # First: the server notices the end of a connection a little later, and the next
                # run would find the pipeline busy.
                with suppress(SkepError):
                    self._database.rows(UNLOCK, self._locked)
            self._database.close()
            self._database = None

    def lock(self, name: str) -> None:
        """Lock a pipeline for this run; raise `PipelineBusy` if another process runs it."""
        (row,) = self._rows(LOCK, name)
        if not row["is_taken"]:
            known = self.find(name)
            who = f" by {known['runner']}" if known else ""
            raise PipelineBusy(
                f"pipeline {name} is already running{who}: `skep pipeline stop {name}`"
            )
        self._locked = name

    def begin(
        self,
        name: str,
        *,
        definition: bytes,
        digest: str,
        checkpoint: str,
        master: str,
        is_reset: bool,
    ) -> bool:
        """Record the start of a run; return whether one before it got through a micro-batch.

        Raises `PipelineChanged` if the checkpoint belongs to another definition, or lies elsewhere.
        """
        runner = f"{socket.gethostname()}:{os.getpid()}"
        arguments = (name, definition.decode(), digest, checkpoint, runner, master)
        (row,) = self._rows(BEGIN, *arguments, is_reset)
        if row["run_id"] is None:
            raise PipelineChanged(
                f"pipeline {name} was defined otherwise when its checkpoint was made, at "
                f"{row['known_checkpoint']}. Give it another name, or --reset: then it begins "
                "anew, and what it wrote before it writes again"
            )
        self._run_id = row["run_id"]
        return bool(row["has_progress"])

    def report(self, state: State, progress: Progress, error: str | None = None) -> bool:
        """Report how the run is doing; return whether it should go on.

        If the database is away, it should: the run itself finds out whether it can.
        """
        try:
            rows = self._rows(
                REPORT,
                self._run_id,
                state,
                _spelled(progress.position),
                progress.batches,
                progress.messages,
                progress.rate,
                progress.lag_messages,
                progress.lag_s,
                error,
                _spelled(progress.recent),
                _spelled(progress.expectations),
            )
        except PipelineBusy:
            return False
        except Unavailable as failure:
            _logger.warning("Could not report the pipeline: %s", failure.message)
            self.close()
            return True
        return bool(rows) and not rows[0]["should_stop"]

    def _rows(self, sql: str, *arguments: object) -> list[dict[str, Any]]:
        """Run a statement; after a lost connection on a new one that has the lock again."""
        if self._database is None:
            self._database = Connection(self._url, STATEMENT_TIMEOUT_S)
            if self._locked is not None:
                self.lock(self._locked)
        return self._database.rows(sql, *arguments)

    def forget_reader(self, name: str) -> None:
        """Forget how far a reader has come, so that it begins anew."""
        self._rows(FORGET_READER, name)

    def find(self, name: str) -> dict[str, Any] | None:
        """Return one of them."""
        return next(iter(self._rows(LIST, name, 1)), None)


def _spelled(value: Any) -> str | None:
    """Spell a value as JSON; None leaves what is on record."""
    return msgspec.json.encode(value).decode() if value else None
