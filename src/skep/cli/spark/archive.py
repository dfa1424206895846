"""`skep archive`: copy old messages to the lake, compact it, and show what it has."""

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Option

from skep.cli.shared.exits import stop_signals
from skep.cli.shared.help import Commands
from skep.cli.shared.options import (
    DatabaseFlags,
    Since,
    Until,
    examples,
    with_database_flags,
)
from skep.cli.shared.output import Output, print_found
from skep.cli.shared.spelling import spell_bytes
from skep.cli.spark import options
from skep.model.errors import BadRequest, NotFound
from skep.model.plurals import counted

if TYPE_CHECKING:
    from skep.app.processes.database import Database
    from skep.cli.spark.options import ShowCount
    from skep.spark.archive.compaction import Compacted
    from skep.spark.runtime.tasks import RunTasks

archive_app: Final = Commands("archive", "Copy old messages to a lake of Iceberg tables.")

Queues = Annotated[list[str] | None, Option("--queue", help="Only this queue; repeatable.")]


@archive_app.command(epilog=examples("skep archive run --warehouse s3://bucket/skep --every 300"))
@with_database_flags
def run(
    flags: DatabaseFlags,
    *,
    warehouse: options.Warehouse = None,
    storage: options.StorageText = None,
    queue: Queues = None,
    master: options.Master = None,
    once: Annotated[bool, Option("--once", help="Archive once and exit; the default.")] = False,
    every: Annotated[
        float | None, Option(help="Archive repeatedly, at this interval in seconds.", min=1)
    ] = None,
    compact_every: Annotated[
        float,
        Option(
            help="With --every: compact after the first round and at this interval in seconds; "
            "0: never.",
            min=0,
        ),
    ] = 86_400.0,
) -> None:
    """Copy messages older than `archiveAfterSeconds` to the lake."""
    from skep.spark.archive.archiver import ArchivePlan, Archiver, archive_repeatedly
    from skep.spark.archive.compaction import CompactionPlan, compact_lake
    from skep.spark.archive.lake import explained
    from skep.telemetry.logs import configure_logging

    if once and every is not None:
        raise BadRequest("pass --once or --every, not both")
    settings = flags.settings(archive_warehouse=warehouse, archive_storage=storage)
    run_tasks = _on_spark(master)
    with (
        options.opened_lake(settings) as (lake, database),
        options.counting_bar("archiving") as show,
    ):
        bar = _Bar(show)
        plan = ArchivePlan(
            url=database.dsn, warehouse=settings.archive_warehouse, queues=tuple(queue or ())
        )
        archiver = Archiver(lake, plan, run_tasks, on_progress=bar.advance, on_run=bar.expect)

        def archive() -> None:
            with explained():
                done = archiver.archive()
            typer.echo(
                f"Archived {counted(done.messages, 'message')} of "
                f"{counted(len(done.queues), 'queue')} in {counted(done.files, 'file')} "
                f"({spell_bytes(done.bytes)}); {done.deleted:,} left the live log"
            )

        def tidy_up() -> None:
            # There is no archive until something was old enough.
            with explained(), suppress(NotFound):
                _echo_compacted(compact_lake(lake, CompactionPlan(), run_tasks))

        if every is None:
            archive()
            return
        configure_logging(level=settings.log_level, style=settings.log_format)
        with stop_signals() as stop:
            archive_repeatedly(
                archive,
                stop,
                every_s=every,
                before_waiting=partial(_require_recovery, database),
                compact=tidy_up if compact_every else None,
                compact_every_s=compact_every,
            )


@archive_app.command()
@with_database_flags
def compact(
    flags: DatabaseFlags,
    *,
    storage: options.StorageText = None,
    master: options.Master = None,
    keep: Annotated[
        float, Option(help="Seconds to keep old files for running queries.", min=0)
    ] = 86_400.0,
) -> None:
    """Merge small files, and remove unused ones."""
    from skep.spark.archive.compaction import CompactionPlan, compact_lake

    with (
        options.opened_lake(flags.settings(archive_storage=storage)) as (lake, _),
        options.counting_bar("archiving") as show,
    ):
        plan = CompactionPlan(keep_s=keep)
        done = compact_lake(lake, plan, _on_spark(master), on_progress=_Bar(show).advance)
    _echo_compacted(done)


@archive_app.command()
@with_database_flags
def files(
    flags: DatabaseFlags,
    *,
    storage: options.StorageText = None,
    queue: Annotated[str | None, Option(help="Only this queue.")] = None,
    table: Annotated[
        str | None, Option(help="Files of a table that a pipeline writes, instead of messages.")
    ] = None,
    since: Since = None,
    until: Until = None,
    duckdb: Annotated[
        bool,
        Option("--duckdb", help="Print a query for DuckDB over the queue's typed table instead."),
    ] = False,
) -> None:
    """Print the addresses of the files for other programs."""
    from skep.spark.archive.result_table import result_files
    from skep.spark.archive.typed_table import duckdb_statement

    if duckdb and queue is None:
        raise BadRequest("--duckdb reads the table of one queue: name it by --queue")
    if table is not None and (queue, since, until) != (None, None, None):
        raise BadRequest("--table lists all files of a table: leave out --queue and times")
    with options.opened_lake(flags.settings(archive_storage=storage)) as (lake, _):
        if table is None:
            found = lake.plain_files(queue, since=since, until=until)
        else:
            found = result_files(lake, table)
        if duckdb:
            typer.echo(duckdb_statement(found))
            return
        for file in found:
            typer.echo(file.address)


@archive_app.command()
@with_database_flags
def status(
    flags: DatabaseFlags,
    *,
    queue: Queues = None,
    output: Output = "table",
) -> None:
    """Show how far each queue is archived."""
    from skep.spark.archive.archiver import archive_status

    with options.opened_lake(flags.settings()) as (lake, _):
        rows = archive_status(lake, queue or ())
    columns = ("queue", "messages", "archivedAt", "state")
    print_found(rows, columns, output, empty="no queue is archived")


def _echo_compacted(done: "Compacted") -> None:
    typer.echo(
        f"Compacted {counted(done.files_before, 'file')} to {done.files_after:,}; "
        f"deleted {counted(done.snapshots, 'snapshot')} and {counted(done.removed, 'file')}"
    )


def _require_recovery(database: "Database") -> None:
    """Check that an unreachable database can come back; an embedded one is restarted.

    Raises `WrongDatabase` if it cannot be used with this URL.
    """
    from skep.app.processes.supervisor import revive_ended
    from skep.db.access.sessions import is_reachable

    revive_ended(database.companions)
    asyncio.run(is_reachable(database.dsn))


def _on_spark(master: str | None) -> "RunTasks":
    """Return what runs tasks on Spark, which starts with the first task."""
    from skep.spark.runtime.tasks import run_on_spark

    return run_on_spark(lambda: options.session("skep archive", master))


class _Bar:
    """The progress of runs in the terminal: messages, and how fast they are written."""

    def __init__(self, show: "ShowCount") -> None:
        self._show: Final = show
        self._queue = "archiving"
        self._begun_at: Final = time.monotonic()
        self._messages = self._expected = self._bytes = 0

    def expect(self, queue: str, messages: int) -> None:
        """Add a run of a queue to the total."""
        self._queue, self._expected = queue, self._expected + messages
        self.advance(0, 0)

    def advance(self, messages: int, size_bytes: int) -> None:
        """Count messages and bytes that were written."""
        self._messages, self._bytes = self._messages + messages, self._bytes + size_bytes
        seconds = max(time.monotonic() - self._begun_at, 0.001)
        rate = f"{self._messages / seconds:,.0f} messages/s, "
        rate += f"{self._bytes / seconds / 1e6:,.1f} MB/s written"
        self._show(self._messages, self._expected, rate, self._queue)
