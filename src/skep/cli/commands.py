"""The commands of `skep` in their groups, each described by its function."""

from collections.abc import Callable
from typing import Annotated, Any, Final

import typer
from typer import Option

from skep import __version__
from skep.cli.admin.apply import apply
from skep.cli.admin.broker import maintenance_app, metrics, operations_app, streams_app
from skep.cli.admin.groups import groups_app
from skep.cli.admin.queues import partitions_app, queues_app
from skep.cli.admin.top import top
from skep.cli.context import context_app
from skep.cli.jobs.actions import jobs_app
from skep.cli.jobs.replays import replays_app
from skep.cli.jobs.worker import worker
from skep.cli.messages.dead_letters import dlq_app
from skep.cli.messages.fetch import fetch
from skep.cli.messages.kv import kv_app
from skep.cli.messages.locks import locks_app
from skep.cli.messages.messages import messages_app, traces_app
from skep.cli.messages.pop import ack, pop
from skep.cli.messages.push import push
from skep.cli.messages.tail import tail
from skep.cli.messages.timers import timers_app
from skep.cli.messages.transaction import transaction
from skep.cli.server.adopt import adopt
from skep.cli.server.bench import bench
from skep.cli.server.config import config, openapi
from skep.cli.server.database import PSQL_CONTEXT, dsn, psql
from skep.cli.server.doctor import doctor
from skep.cli.server.serve import migrate, serve
from skep.cli.shared.help import Commands
from skep.cli.shared.options import examples
from skep.cli.spark.analytics import analytics_app, report
from skep.cli.spark.archive import archive_app
from skep.cli.spark.pipeline import pipeline_app
from skep.cli.spark.transfer import export_messages, import_rows, replay

app: Final = Commands("skep", "A partitioned message broker on the PostgreSQL you already run.")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"skep {__version__}")
        raise typer.Exit


@app.callback()
def skep(
    *,
    version: Annotated[
        bool,
        Option("--version", help="Print the version.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """A partitioned message broker on the PostgreSQL you already run."""


def _add(
    panel: str,
    command: Callable[..., Any] | typer.Typer,
    *lines: str,
    name: str | None = None,
    **settings: Any,
) -> None:
    """Add a command or a group to a panel of the help; the lines are examples."""
    if isinstance(command, typer.Typer):
        app.add_typer(command, rich_help_panel=panel)
        return
    epilog = examples(*lines) if lines else None
    app.command(name, epilog=epilog, rich_help_panel=panel, **settings)(command)


_add(
    "Messages",
    push,
    """skep push orders '{"total": 42}' --partition customer-7""",
    "skep push orders.ndjson --partition-key customer",
)
_add(
    "Messages",
    pop,
    "skep pop orders --group billing --batch 10 -o ndjson > popped.ndjson",
    "skep pop orders --wait 5 --auto-ack",
)
_add("Messages", ack, "skep ack < popped.ndjson", "skep ack --status failed < popped.ndjson")
_add("Messages", tail, "skep tail orders", "skep tail orders --from 2h --limit 10")
_add(
    "Messages",
    fetch,
    "skep fetch orders --partition customer-7 --offset 100",
    "skep fetch orders --from 2h -o ndjson",
)
_add("Messages", transaction)
_add("Messages", messages_app)
_add("Messages", dlq_app)
_add("Messages", traces_app)
_add("Messages", kv_app)
_add("Messages", timers_app)
_add("Messages", locks_app)

_add("Operate", top)
_add("Operate", doctor)
_add("Operate", queues_app)
_add("Operate", partitions_app)
_add("Operate", groups_app)
_add("Operate", apply, "skep apply -f queues.yaml", "skep apply -f queues.yaml --check")
_add("Operate", metrics)
_add("Operate", maintenance_app)
_add("Operate", operations_app)
_add("Operate", bench, "skep bench http://127.0.0.1:6632 --producers 8 --duration 30")

_add("Jobs", jobs_app)
_add("Jobs", worker, "skep worker shop.jobs:app --concurrency 50 --health-port 9100")

_add("Data", pipeline_app)
_add("Data", replays_app)
_add("Data", streams_app)
_add(
    "Data",
    replay,
    "skep replay --queue orders --from 2026-01-31T08:00Z --to 2026-01-31T09:00Z --into again",
)
_add(
    "Data",
    import_rows,
    "skep import --from orders.parquet --queue orders",
    "skep import --from events.csv --queue events --map partition=customer",
    name="import",
)
_add(
    "Data",
    export_messages,
    "skep export --queue orders --to backup/orders.parquet --since 2026-01-01",
    name="export",
)
_add("Data", archive_app)
_add("Data", analytics_app)
_add("Data", report)

_add(
    "Server",
    serve,
    "skep serve",
    "skep serve --database-url postgresql://user:password@host/database --host 0.0.0.0",
    name="serve",
)
_add("Server", migrate)
_add("Server", adopt, "skep adopt --database-url postgresql://user:password@host/database")
_add("Server", config)
_add("Server", context_app)
_add("Server", dsn, "psql $(skep dsn)")
_add(
    "Server",
    psql,
    "skep psql",
    """skep psql -- -c 'select * from message limit 10'""",
    context_settings=PSQL_CONTEXT,
)
_add("Server", openapi)
