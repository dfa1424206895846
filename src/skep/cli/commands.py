"""The commands of `skep`, each described by its function."""

from collections.abc import Callable
from typing import Any

import typer

from skep import __version__
from skep.cli.admin.apply import apply
from skep.cli.admin.broker import maintenance_app, metrics, operations_app, streams_app
from skep.cli.admin.groups import groups_app
from skep.cli.admin.queues import partitions_app, queues_app
from skep.cli.admin.top import top
from skep.cli.context import context_app
from skep.cli.jobs.actions import jobs_app
from skep.cli.jobs.worker import worker
from skep.cli.messages.dead_letters import dlq_app
from skep.cli.messages.messages import messages_app, traces_app
from skep.cli.messages.pop import ack, pop
from skep.cli.messages.push import push
from skep.cli.messages.tail import tail
from skep.cli.messages.transaction import transaction
from skep.cli.server.bench import bench
from skep.cli.server.config import config, openapi
from skep.cli.server.database import PSQL_CONTEXT, dsn, psql
from skep.cli.server.doctor import doctor
from skep.cli.server.serve import migrate, serve
from skep.cli.shared.options import examples
from skep.cli.spark.analytics import analytics_app, report
from skep.cli.spark.archive import archive_app
from skep.cli.spark.pipeline import pipeline_app
from skep.cli.spark.transfer import export_messages, import_rows, replay

app = typer.Typer(
    name="skep",
    help="A partitioned message broker on the PostgreSQL you already run.",
    no_args_is_help=True,
    # Help in boxes costs 0.2 s of CPU each time.
    rich_markup_mode=None,
    # A traceback is for a bug report: whole, plain, and without the values of variables.
    pretty_exceptions_enable=False,
)


def _add(command: Callable[..., Any], *lines: str, name: str | None = None) -> None:
    app.command(name, epilog=examples(*lines) if lines else None)(command)


_add(
    serve,
    "skep serve",
    "skep serve --database-url postgresql://user:password@host/database --host 0.0.0.0",
    name="serve",
)
_add(worker, "skep worker shop.jobs:app --concurrency 50 --health-port 9100")
_add(migrate)
_add(config)
_add(dsn, "psql $(skep dsn)")
app.command(
    context_settings=PSQL_CONTEXT,
    epilog=examples("skep psql", """skep psql -- -c 'select * from message limit 10'"""),
)(psql)
_add(doctor)
_add(openapi)
_add(
    push,
    """skep push orders '{"total": 42}' --partition customer-7""",
    "skep push orders.ndjson --partition-key customer",
)
_add(
    pop,
    "skep pop orders --group billing --batch 10 -o ndjson > popped.ndjson",
    "skep pop orders --wait 5 --auto-ack",
)
_add(ack, "skep ack < popped.ndjson", "skep ack --status failed < popped.ndjson")
_add(tail, "skep tail orders", "skep tail orders --from 2h --limit 10")
_add(transaction)
_add(
    replay,
    "skep replay --queue orders --from 2026-01-31T08:00Z --to 2026-01-31T09:00Z --into again",
)
_add(
    import_rows,
    "skep import --from orders.parquet --queue orders",
    "skep import --from events.csv --queue events --map partition=customer",
    name="import",
)
_add(
    export_messages,
    "skep export --queue orders --to backup/orders.parquet --since 2026-01-01",
    name="export",
)
_add(report)
for group in (
    *(analytics_app, archive_app, context_app, jobs_app, pipeline_app, queues_app),
    *(partitions_app, groups_app, messages_app, dlq_app),
):
    app.add_typer(group)
_add(apply, "skep apply -f queues.yaml", "skep apply -f queues.yaml --check")
app.add_typer(maintenance_app)
app.add_typer(operations_app)
_add(metrics)
_add(top)
_add(bench, "skep bench http://127.0.0.1:6632 --producers 8 --consumers 8 --duration 30")
app.add_typer(traces_app)
app.add_typer(streams_app)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"skep {__version__}")
