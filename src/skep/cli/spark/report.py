"""`skep report`: write what analytics found out as one HTML page."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from skep.cli.shared.options import DatabaseFlags, with_database_flags
from skep.cli.shared.times import read_moment
from skep.model.errors import BadRequest, NotFound


@with_database_flags
def report(
    flags: DatabaseFlags,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path(
        "skep-report.html"
    ),
    since: Annotated[
        datetime | None,
        typer.Option(
            "--from",
            parser=read_moment,
            metavar="TIME",
            help="From the hour of this time on: ISO 8601, or `2h`; by default a week before.",
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(
            "--to",
            parser=read_moment,
            metavar="TIME",
            help="Up to the hour of this time; by default up to what was computed.",
        ),
    ] = None,
    queue: Annotated[str | None, typer.Option(help="Only this queue.")] = None,
) -> None:
    """Write a page with plots of what `skep analytics run` found."""
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
            raise BadRequest("there is no whole hour between --from and --to")
        figures = gather_figures(hours, rows_of(database.dsn, hours, queue))
    if figures.is_empty:
        raise NotFound("nothing is known of these hours: `skep analytics run` computes them")
    try:
        out.write_text(render_report(figures, progress["now"], queue), encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"cannot write {out}: {error.strerror}") from None
    typer.echo(f"wrote {out}")
