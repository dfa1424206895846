"""The commands of `skep`, each described by its function."""

import typer

from skep import __version__
from skep.cli.archive import archive_app
from skep.cli.config import config
from skep.cli.context import context_app
from skep.cli.jobs import jobs_app
from skep.cli.migrate import migrate
from skep.cli.openapi import openapi
from skep.cli.pipeline import pipeline_app
from skep.cli.replay import replay
from skep.cli.serve import serve
from skep.cli.transfer import export_messages, import_rows
from skep.cli.worker import worker

app = typer.Typer(
    name="skep",
    help="A partitioned message broker on the PostgreSQL you already run.",
    no_args_is_help=True,
    # Help in boxes costs 0.2 s of CPU each time.
    rich_markup_mode=None,
    # A traceback of ours is for a bug report: whole, plain, and without the values of variables.
    pretty_exceptions_enable=False,
)
app.command()(serve)
app.command()(worker)
app.command()(migrate)
app.command()(config)
app.command()(openapi)
app.command()(replay)
app.command("import")(import_rows)
app.command("export")(export_messages)
app.add_typer(archive_app)
app.add_typer(context_app)
app.add_typer(jobs_app)
app.add_typer(pipeline_app)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"skep {__version__}")
