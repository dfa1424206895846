"""The commands of `skep`, each described by its function."""

import typer

from skep import __version__
from skep.cli.analytics import analytics_app
from skep.cli.apply import apply
from skep.cli.archive import archive_app
from skep.cli.bench import bench
from skep.cli.config import config
from skep.cli.context import context_app
from skep.cli.dead_letters import dlq_app
from skep.cli.doctor import doctor
from skep.cli.groups import groups_app
from skep.cli.jobs import jobs_app
from skep.cli.maintenance import maintenance_app
from skep.cli.messages import messages_app
from skep.cli.metrics import metrics
from skep.cli.migrate import migrate
from skep.cli.openapi import openapi
from skep.cli.operations import operations_app
from skep.cli.partitions import partitions_app
from skep.cli.pipeline import pipeline_app
from skep.cli.pop import ack, pop
from skep.cli.push import push
from skep.cli.queues import queues_app
from skep.cli.replay import replay
from skep.cli.report import report
from skep.cli.serve import serve
from skep.cli.streams import streams_app
from skep.cli.tail import tail
from skep.cli.top import top
from skep.cli.traces import traces_app
from skep.cli.transaction import transaction
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
app.command()(doctor)
app.command()(openapi)
app.command()(push)
app.command()(pop)
app.command()(ack)
app.command()(tail)
app.command()(transaction)
app.command()(replay)
app.command("import")(import_rows)
app.command("export")(export_messages)
app.command()(report)
app.add_typer(analytics_app)
app.add_typer(archive_app)
app.add_typer(context_app)
app.add_typer(jobs_app)
app.add_typer(pipeline_app)
app.add_typer(queues_app)
app.add_typer(partitions_app)
app.add_typer(groups_app)
app.add_typer(messages_app)
app.add_typer(dlq_app)
app.command()(apply)
app.add_typer(maintenance_app)
app.add_typer(operations_app)
app.command()(metrics)
app.command()(top)
app.command()(bench)
app.add_typer(traces_app)
app.add_typer(streams_app)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"skep {__version__}")
