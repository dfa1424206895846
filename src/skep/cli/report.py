"""`skep report`: write what analytics found out as one HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from skep.cli.options import (
    ConfigFile,
    DatabaseSchema,
    DatabaseUrl,
    DataDir,
    PostgresBin,
    effective_settings,
)
from skep.cli.transfer_options import moment
from skep.model.errors import BadRequest, NotFound


def report(
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path(
        "skep-report.html"
    ),
    since: Annotated[
        str | None,
        typer.Option("--from", help="From the hour of this time on; by default a week before."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--to", help="Up to the hour of this time; by default up to what was computed."
        ),
    ] = None,
    queue: Annotated[str | None, typer.Option(help="Only this queue.")] = None,
    database_url: DatabaseUrl = None,
    database_schema: DatabaseSchema = None,
    data_dir: DataDir = None,
    postgres_bin: PostgresBin = None,
    config_file: ConfigFile = None,
) -> None:
    """Write a page with plots about what `skep analytics run` has computed."""
    from skep.app.database import open_database
    from skep.spark.analytics_hours import FIRST_SPAN, Hours, begin_of_hour
    from skep.spark.postgres import database as connected
    from skep.spark.report import render_report
    from skep.spark.report_figures import PROGRESS, STATEMENT_TIMEOUT_S, gather_figures, rows_of

    first, end = moment("--from", since), moment("--to", until)
    flags = {
        "database_url": database_url,
        "database_schema": database_schema,
        "data_dir": data_dir,
        "postgres_bin": postgres_bin,
    }
    settings = effective_settings(config_file, **flags).settings
    with open_database(settings) as database:
        (progress,) = connected(database.dsn, STATEMENT_TIMEOUT_S).rows(PROGRESS)
        upto = begin_of_hour(end or progress["watermark"] or progress["now"])
        hours = Hours(begin_of_hour(first or upto - FIRST_SPAN), upto)
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
