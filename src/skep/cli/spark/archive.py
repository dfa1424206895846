"""`skep archive`: copy old messages to the lake, compact it, and show what it has."""

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer import Option

from skep.cli.shared.exits import stop_signals
from skep.cli.shared.options import (
    DatabaseFlags,
    Since,
    Until,
    command_group,
    examples,
    with_database_flags,
)
from skep.cli.shared.output import Output, print_found
from skep.cli.spark.options import Master, StorageText, Warehouse, counting_bar, session
from skep.model.errors import BadRequest, NotFound

if TYPE_CHECKING:
    from rich.progress import Progress

    from skep.app.processes.database import Database
    from skep.settings import Settings
    from skep.spark.archive.compaction import Compacted
    from skep.spark.archive.lake import Lake
    from skep.spark.runtime.tasks import OnProgress, RunTasks

archive_app: Final = command_group("archive", "Copy old messages to a lake of Iceberg tables.")

Queues = Annotated[list[str] | None, Option("--queue", help="Only this queue; repeatable.")]


@archive_app.command(epilog=examples("skep archive run --warehouse s3://bucket/skep --every 300"))
@with_database_flags
def run(
    flags: DatabaseFlags,
    *,
    warehouse: Warehouse = None,
    storage: StorageText = None,
    queue: Queues = None,
    master: Master = None,
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
    from skep.spark.archive.archiver import ArchivePlan, Archiver, ArchiveService
    from skep.spark.archive.compaction import CompactionPlan, Compactor
    from skep.spark.archive.lake import explained
    from skep.telemetry.logs import configure_logging

    if once and every is not None:
        raise BadRequest("pass --once or --every, not both")
    settings = flags.settings(archive_warehouse=warehouse, archive_storage=storage)
    with _lake_and_database(settings) as (lake, database), _bar() as bar:
        plan = ArchivePlan(
            url=database.dsn, warehouse=settings.archive_warehouse, queues=tuple(queue or ())
        )
        archiver = Archiver(
            lake, plan, _on_spark(master), on_progress=bar.advance, on_run=bar.expect
        )

        def archive() -> None:
            with explained():
                done = archiver.archive()
            typer.echo(
                f"Archived {done.messages:,} messages of {len(done.queues)} queues in "
                f"{done.files} files ({done.bytes:,} bytes); {done.deleted:,} left the live log"
            )

        def tidy_up() -> None:
            # There is no archive until something was old enough.
            with explained(), suppress(NotFound):
                _echo_compacted(Compactor(lake, CompactionPlan(), _on_spark(master)).compact())

        if every is None:
            archive()
        else:
            configure_logging(level=settings.log_level, style=settings.log_format)
            service = ArchiveService(
                archive,
                every_s=every,
                before_waiting=partial(_require_recovery, database),
                compact=tidy_up if compact_every else None,
                compact_every_s=compact_every,
            )
            with stop_signals() as stop:
                service.run(stop)


@archive_app.command()
@with_database_flags
def compact(
    flags: DatabaseFlags,
    *,
    storage: StorageText = None,
    master: Master = None,
    keep: Annotated[
        float, Option(help="Seconds to keep old files for running queries.", min=0)
    ] = 86_400.0,
) -> None:
    """Merge small files, and remove unused ones."""
    from skep.spark.archive.compaction import CompactionPlan, Compactor

    with _lake(flags.settings(archive_storage=storage)) as lake, _bar() as bar:
        plan = CompactionPlan(keep_s=keep)
        done = Compactor(lake, plan, _on_spark(master), on_progress=bar.advance).compact()
    _echo_compacted(done)


@archive_app.command()
@with_database_flags
def files(
    flags: DatabaseFlags,
    *,
    storage: StorageText = None,
    queue: Annotated[str | None, Option(help="Only this queue.")] = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """Print the addresses of the files for other programs."""
    with _lake(flags.settings(archive_storage=storage)) as lake:
        for file in lake.files(queue, since=since, until=until):
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

    with _lake(flags.settings()) as lake:
        rows = [
            {
                "queue": row.queue,
                "messages": row.messages,
                "archivedAt": row.archived_at,
                "state": row.state,
            }
            for row in archive_status(lake, tuple(queue or ()))
        ]
    columns = ("queue", "messages", "archivedAt", "state")
    print_found(rows, columns, output, empty="no queue is archived")


def _echo_compacted(done: "Compacted") -> None:
    typer.echo(
        f"Compacted {done.files_before} files to {done.files_after}; deleted {done.snapshots} "
        f"snapshots and {done.removed} files"
    )


@contextmanager
def _lake(settings: "Settings") -> Generator["Lake"]:
    """Open the lake of the database that the settings name."""
    with _lake_and_database(settings) as (lake, _):
        yield lake


@contextmanager
def _lake_and_database(settings: "Settings") -> Generator[tuple["Lake", "Database"]]:
    from skep.app.processes.database import join_database
    from skep.spark.archive.lake import Lake, explained
    from skep.spark.archive.storage import storage_properties

    properties = storage_properties(settings.archive_storage)
    with join_database(settings) as database, explained(), Lake(database.dsn, properties) as lake:
        yield lake, database


def _require_recovery(database: "Database") -> None:
    """Check that an unreachable database can come back; an embedded one is restarted.

    Raises:
        WrongDatabase: It is reachable, and cannot be used with this URL.
        SkepError: The embedded server cannot run.
    """
    from skep.app.processes.supervisor import revive_ended
    from skep.db.access.sessions import is_reachable

    revive_ended(database.companions)
    asyncio.run(is_reachable(database.dsn))


def _on_spark(master: str | None) -> "RunTasks":
    """Return what runs tasks on Spark, which starts with the first task."""
    from skep.spark.runtime.tasks import run_on_spark

    def run_tasks(
        tasks: Sequence[Any], work: Callable[[Any], Any], on_progress: "OnProgress"
    ) -> list[Any]:
        return run_on_spark(session("skep archive", master))(tasks, work, on_progress)

    return run_tasks


class _Bar:
    """The progress of runs in the terminal: messages, and how fast they are written."""

    def __init__(self, progress: "Progress") -> None:
        self._progress: Final = progress
        self._task: Final = progress.add_task("archiving", total=None, size=0, rate="")

    def expect(self, queue: str, messages: int) -> None:
        """Add a run of a queue to the total."""
        task = self._progress.tasks[self._task]
        self._progress.update(
            self._task, description=queue, total=(task.total or 0) + messages, visible=True
        )

    def advance(self, messages: int, size_bytes: int) -> None:
        """Count messages and bytes that were written."""
        task = self._progress.tasks[self._task]
        size = task.fields["size"] + size_bytes
        seconds = max(task.elapsed or 0, 0.001)
        rate = (
            f"{(task.completed + messages) / seconds:,.0f} messages/s, "
            f"{size / seconds / 1e6:,.1f} MB/s written"
        )
        self._progress.update(self._task, advance=messages, size=size, rate=rate)


@contextmanager
def _bar() -> Generator[_Bar]:
    with counting_bar("{task.fields[rate]}") as progress:
        yield _Bar(progress)
