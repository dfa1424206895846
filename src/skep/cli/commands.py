"""The commands of `skep`, each described by its function."""

import typer

from skep import __version__
from skep.cli.admin.apply import apply
from skep.cli.admin.groups import groups_app
from skep.cli.admin.maintenance import maintenance_app
from skep.cli.admin.metrics import metrics
from skep.cli.admin.operations import operations_app
from skep.cli.admin.partitions import partitions_app
from skep.cli.admin.queues import queues_app
from skep.cli.admin.streams import streams_app
from skep.cli.admin.top import top
from skep.cli.jobs.jobs import jobs_app
from skep.cli.jobs.worker import worker
from skep.cli.messages.dead_letters import dlq_app
from skep.cli.messages.messages import messages_app
from skep.cli.messages.pop import ack, pop
from skep.cli.messages.push import push
from skep.cli.messages.tail import tail
from skep.cli.messages.traces import traces_app
from skep.cli.messages.transaction import transaction
from skep.cli.server.bench import bench
from skep.cli.server.config import config
from skep.cli.server.doctor import doctor
from skep.cli.server.migrate import migrate
from skep.cli.server.openapi import openapi
from skep.cli.server.serve import serve
from skep.cli.shared.context_command import context_app
from skep.cli.shared.examples import examples
from skep.cli.spark.analytics import analytics_app
from skep.cli.spark.archive import archive_app
from skep.cli.spark.pipeline import pipeline_app
from skep.cli.spark.replay import replay
from skep.cli.spark.report import report
from skep.cli.spark.transfer import export_messages, import_rows

app = typer.Typer(
    name="skep",
    help="A partitioned message broker on the PostgreSQL you already run.",
    no_args_is_help=True,
    # Help in boxes costs 0.2 s of CPU each time.
    rich_markup_mode=None,
    # A traceback of ours is for a bug report: whole, plain, and without the values of variables.
    pretty_exceptions_enable=False,
)
app.command(
    epilog=examples(
        "skep serve",
        "skep serve --database-url postgresql://user:password@host/database --host 0.0.0.0",
    )
)(serve)
app.command(epilog=examples("skep worker shop.jobs:app --concurrency 50 --health-port 9100"))(
    worker
)
app.command()(migrate)
app.command()(config)
app.command()(doctor)
app.command()(openapi)
app.command(
    epilog=examples(
        """skep push orders '{"total": 42}' --partition customer-7""",
        "skep push orders.ndjson --partition-key customer",
    )
)(push)
app.command(
    epilog=examples(
        "skep pop orders --group billing --batch 10 -o ndjson > popped.ndjson",
        "skep pop orders --wait 5 --auto-ack",
    )
)(pop)
app.command(
    epilog=examples("skep ack < popped.ndjson", "skep ack --status failed < popped.ndjson")
)(ack)
app.command(epilog=examples("skep tail orders", "skep tail orders --from 2h --limit 10"))(tail)
app.command()(transaction)
app.command(
    epilog=examples(
        "skep replay --queue orders --from 2026-01-31T08:00Z --to 2026-01-31T09:00Z --into again"
    )
)(replay)
app.command(
    "import",
    epilog=examples(
        "skep import --from orders.parquet --queue orders",
        "skep import --from events.csv --queue events --map partition=customer",
    ),
)(import_rows)
app.command(
    "export",
    epilog=examples("skep export --queue orders --to backup/orders.parquet --since 2026-01-01"),
)(export_messages)
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
app.command(epilog=examples("skep apply -f queues.yaml", "skep apply -f queues.yaml --check"))(
    apply
)
app.add_typer(maintenance_app)
app.add_typer(operations_app)
app.command()(metrics)
app.command()(top)
app.command(
    epilog=examples("skep bench http://127.0.0.1:6632 --producers 8 --consumers 8 --duration 30")
)(bench)
app.add_typer(traces_app)
app.add_typer(streams_app)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"skep {__version__}")
