"""`skep analytics`: find out what happened in each hour, and show how far that has come."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from skep.cli.shared.options import DatabaseFlags, with_database_flags
from skep.cli.shared.times import read_moment
from skep.cli.spark.options import Master, StorageText, Warehouse, session
from skep.spark.runtime.encryption_keys import key_options

if TYPE_CHECKING:
    from skep.spark.analytics.analytics import Computed, OnDay

analytics_app: Final = typer.Typer(
    name="analytics", help="Find out what happened in each hour and queue.", no_args_is_help=True
)


@analytics_app.command()
@with_database_flags
def run(
    flags: DatabaseFlags,
    *,
    since: Annotated[
        datetime | None,
        typer.Option(
            "--from",
            parser=read_moment,
            metavar="TIME",
            help="From the hour of this time on: ISO 8601, or `2h`. By default where the last "
            "run ended, with its last hour once more; the first run goes back a week.",
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(
            "--to",
            parser=read_moment,
            metavar="TIME",
            help="Up to the hour of this time; by default the last that is over.",
        ),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue", help="Count only this queue; may be given several times. No progress then."
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            help="Count the values of this expression of Spark SQL besides partitions: "
            "`get_json_object(payload, '$.customer')`. Needs --queue."
        ),
    ] = None,
    master: Master = None,
    warehouse: Warehouse = None,
    storage: StorageText = None,
) -> None:
    """Compute hours that are over, from log and archive."""
    from skep.app.processes.database import join_database
    from skep.spark.analytics.analytics import Analytics, AnalyticsPlan
    from skep.spark.lake.lake import Lake, explained
    from skep.spark.lake.storage import storage_properties

    settings = flags.settings(archive_warehouse=warehouse, archive_storage=storage)
    properties = storage_properties(settings.archive_storage)
    with join_database(settings) as database, explained(), Lake(database.dsn, properties) as lake:
        plan = AnalyticsPlan(
            url=database.dsn,
            since=since,
            until=until,
            queues=tuple(queue or ()),
            key=key,
            keep_days=settings.history_retention_days,
            warehouse=settings.archive_warehouse,
            storage=settings.archive_storage,
            keys=key_options(settings),
        )
        job = Analytics(lambda: session("skep analytics", master), lake, plan)
        with _bar() as on_day:
            done = job.run(on_day)
    typer.echo(_summary(done))


@analytics_app.command()
@with_database_flags
def status(
    flags: DatabaseFlags,
) -> None:
    """Show how far analytics have come."""
    from skep.app.processes.database import join_database
    from skep.spark.analytics.analytics import analytics_progress
    from skep.spark.lake.lake import Lake, explained

    with join_database(flags.settings()) as database, explained(), Lake(database.dsn, {}) as lake:
        progress = analytics_progress(lake)
    if progress.watermark is None:
        typer.echo("nothing is computed yet: `skep analytics run`")
        return
    typer.echo(
        f"computed up to {progress.watermark.isoformat()}; the last run ended "
        f"{progress.finished_at.isoformat()}, with {progress.messages:,} messages"
    )


def _summary(done: "Computed") -> str:
    if done.hours is None:
        return "nothing to do: every hour that is over was computed"
    said = (
        f"computed {done.hours.since.isoformat()} to {done.hours.upto.isoformat()}: "
        f"{done.messages:,} messages"
    )
    if done.left_out:
        said += f"; {done.left_out:,} hours of queues are left out, others were busier"
    if not done.has_lake:
        said += "; no lake, because there is no warehouse: --warehouse, or archive_warehouse"
    return said


@contextmanager
def _bar() -> Generator["OnDay"]:
    """Show the progress of a run, day by day, until the end of the block."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("analytics"), BarColumn(), MofNCompleteColumn(), TextColumn("hours"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("analytics", total=None)

        def advance(day: Any, hours: Any) -> None:
            progress.update(
                task,
                total=(hours.upto - hours.since).total_seconds() / 3600,
                completed=(day.upto - hours.since).total_seconds() / 3600,
            )

        yield advance
