"""`skep analytics` and `skep report`: compute hourly statistics, and render them as a page."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Option

from skep.cli.shared.help import Commands
from skep.cli.shared.options import DatabaseFlags, time_option, with_database_flags
from skep.cli.shared.output import Output, print_record
from skep.cli.spark import options
from skep.model.errors import BadRequest, NotFound
from skep.model.plurals import counted
from skep.spark.runtime.encryption_keys import key_options

if TYPE_CHECKING:
    from skep.spark.analytics.analytics import Computed

analytics_app: Final = Commands("analytics", "Compute hourly statistics of queues.")


@analytics_app.command()
@with_database_flags
def run(
    flags: DatabaseFlags,
    *,
    since: Annotated[
        datetime | None,
        time_option(
            "--from",
            summary="Start, rounded to the hour: ISO 8601, or `2h`. Default: the last hour of the "
            "previous run; a week ago for the first run.",
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        time_option("--to", summary="End, rounded to the hour; default: the last full hour."),
    ] = None,
    queue: Annotated[
        list[str] | None,
        Option("--queue", help="Only this queue; repeatable. Does not advance the progress."),
    ] = None,
    key: Annotated[
        str | None,
        Option(
            help="Also count the values of this Spark SQL expression: "
            "`get_json_object(payload, '$.customer')`. Requires --queue."
        ),
    ] = None,
    master: options.Master = None,
    warehouse: options.Warehouse = None,
    storage: options.StorageText = None,
) -> None:
    """Compute statistics of full hours, from log and archive."""
    from skep.spark.analytics.analytics import Analytics, AnalyticsPlan
    from skep.spark.analytics.hours import HOUR

    settings = flags.settings(archive_warehouse=warehouse, archive_storage=storage)
    with options.opened_lake(settings) as (lake, database):
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
        job = Analytics(lambda: options.session("skep analytics", master), lake, plan)
        with options.counting_bar("analytics", "hours") as show:
            done = job.run(
                lambda day, hours: show(
                    (day.upto - hours.since) // HOUR, (hours.upto - hours.since) // HOUR, "hours"
                )
            )
    typer.echo(_summary(done))


@analytics_app.command()
@with_database_flags
def status(
    flags: DatabaseFlags,
    *,
    output: Output = "table",
) -> None:
    """Show how far the statistics are computed."""
    from skep.spark.analytics.analytics import analytics_progress

    with options.opened_lake(flags.settings()) as (lake, _):
        progress = analytics_progress(lake)
    if output == "table" and progress.watermark is None:
        typer.echo("Nothing is computed yet: run `skep analytics run`", err=True)
        return
    computed = progress.watermark and progress.watermark.isoformat()
    finished = progress.finished_at and progress.finished_at.isoformat()
    found = {"computedUpTo": computed, "finishedAt": finished, "messages": progress.messages}
    print_record(found, output)


@with_database_flags
def report(
    flags: DatabaseFlags,
    *,
    out: Annotated[Path, Option("--out", "-o", help="Output file.")] = Path("skep-report.html"),
    since: Annotated[
        datetime | None,
        time_option(
            "--from", summary="Start, rounded to the hour: ISO 8601, or `2h`; default: a week."
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        time_option("--to", summary="End, rounded to the hour; default: all that is computed."),
    ] = None,
    queue: Annotated[str | None, Option(help="Only this queue.")] = None,
) -> None:
    """Write an HTML page with plots of the hourly statistics."""
    from skep.app.processes.database import join_database
    from skep.spark.analytics.hours import FIRST_SPAN, Hours, begin_of_hour
    from skep.spark.analytics.report import render_report
    from skep.spark.analytics.report_figures import (
        PROGRESS,
        STATEMENT_TIMEOUT_S,
        gather_figures,
        rows_of,
    )
    from skep.spark.runtime.postgres import database as connected

    with join_database(flags.settings()) as database:
        (progress,) = connected(database.dsn, STATEMENT_TIMEOUT_S).rows(PROGRESS)
        upto = begin_of_hour(until or progress["watermark"] or progress["now"])
        hours = Hours(begin_of_hour(since or upto - FIRST_SPAN), upto)
        if hours.since >= hours.upto:
            raise BadRequest("no full hour between --from and --to")
        figures = gather_figures(hours, rows_of(database.dsn, hours, queue))
    if figures.is_empty:
        raise NotFound("these hours are not computed: run `skep analytics run`")
    try:
        out.write_text(render_report(figures, progress["now"], queue), encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"cannot write {out}: {error.strerror}") from None
    typer.echo(f"Wrote {out}")


def _summary(done: "Computed") -> str:
    if done.hours is None:
        return "Nothing to do: all full hours are computed"
    said = (
        f"Computed {done.hours.since.isoformat()} to {done.hours.upto.isoformat()}: "
        f"{counted(done.messages, 'message')}"
    )
    if done.left_out:
        said += f"; left out: {counted(done.left_out, 'hour')} of less busy queues"
    if not done.has_lake:
        said += "; no lake: pass --warehouse or set archive_warehouse"
    return said
