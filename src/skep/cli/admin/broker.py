"""The broker itself: `skep maintenance`, `skep operations`, `skep metrics` and `skep streams`."""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import quote
from uuid import UUID

import typer
from typer import Argument, Option

from skep.cli.shared.connection import OnlyQueue, with_client
from skep.cli.shared.declare import action, listing
from skep.cli.shared.help import Commands
from skep.cli.shared.options import Yes, confirm
from skep.cli.shared.output import Output, Pages, print_members, print_record, print_rows
from skep.cli.shared.spelling import spell_bytes, spell_seconds
from skep.model.errors import BadRequest, NotFound, Refused
from skep.model.plurals import counted

if TYPE_CHECKING:
    from skep.client import Client

maintenance_app: Final = Commands(
    "maintenance", "Buffer pushes on disk, or stop deliveries, on all instances."
)
operations_app: Final = Commands("operations", "Requests that brokers accepted to execute later.")
streams_app: Final = Commands("streams", "Registered stream queries and their state.")

Mode = Annotated[
    Literal["push", "pop"],
    Option("--mode", help="`push`: brokers keep pushes on disk. `pop`: deliveries stop."),
]
OperationId = Annotated[UUID, Argument(help="Operation id.", metavar="ID")]
QueryName = Annotated[str, Argument(help="Query name.")]

_MAINTENANCE: Final = {
    "push": "/api/v1/system/maintenance",
    "pop": "/api/v1/system/maintenance/pop",
}
_EFFECTS: Final = {
    "push": "Keep all pushes on disk instead of storing them",
    "pop": "Stop deliveries to all consumers",
}
_OPERATIONS: Final = "/api/v1/operations"
_QUERIES: Final = "/streams/v1/queries"
_OPERATION_COLUMNS: Final = (
    *("createdAt", "type", "status", "queue", "partition", "itemCount as items", "retries"),
    *("error", "operationId as id"),
)
_ALERT_COLUMNS: Final = (
    *("dueAt", "type", "status", "queue", "partition", "retries", "operationId as id"),
)
_QUERY_COLUMNS: Final = (
    *("name as query", "source_queue as from", "sink_queue as into", "partitions"),
    *("state_rows", "state_bytes as size", "updated_at"),
)


@maintenance_app.command("status")
@with_client
def show_status(client: "Client", *, output: Output = "table") -> None:
    """Show the maintenance modes, and what the broker has on disk."""
    found = client.request("GET", _MAINTENANCE["push"])
    if output == "table":
        stats: dict[str, Any] = found.pop("bufferStats")
        found |= {name: stats[name] for name in ("pendingBytes", "failedCount", "dbHealthy")}
    print_record(found, output)


@maintenance_app.command("on")
@with_client
def switch_on(client: "Client", *, mode: Mode = "push", yes: Yes = False) -> None:
    """Switch a mode on, for all instances."""
    confirm(f"{_EFFECTS[mode]}, on all instances?", is_answered=yes)
    _switch(client, mode, is_on=True)


@maintenance_app.command("off")
@with_client
def switch_off(client: "Client", *, mode: Mode = "push") -> None:
    """Switch a mode off, for all instances. Pushes on disk are then stored, in order."""
    _switch(client, mode, is_on=False)


def _switch(client: "Client", mode: str, *, is_on: bool) -> None:
    answer = client.request("POST", _MAINTENANCE[mode], {"enabled": is_on})
    waiting = answer.get("bufferedMessages")
    typer.echo(answer["message"] + (f" On disk: {counted(waiting, 'message')}." if waiting else ""))


@operations_app.command("list")
@listing(_OPERATION_COLUMNS, empty="no operation matches", cursor="before")
def list_operations(
    client: "Client",
    limit: int,
    before: str | None,
    *,
    queue: OnlyQueue = None,
    status: Annotated[
        Literal["waiting", "processing", "completed", "failed", "cancelled"] | None,
        Option(help="Only this status."),
    ] = None,
) -> Any:
    """List operations, newest first."""
    return _operations(client, limit, before, queue, status)


@operations_app.command("stats")
@with_client
def show_stats(client: "Client", *, output: Output = "table") -> None:
    """Count operations by type and status."""
    stats = client.request("GET", f"{_OPERATIONS}/stats")
    if output != "table":
        print_record(stats, output)
        return
    rows = [{"type": name, **counts} for name, counts in stats["byType"].items()]
    rows.append({"type": "all", **stats["total"]})
    print_rows(rows, ("type", "waiting", "processing", "completed", "failed", "cancelled"), output)
    typer.echo()
    latency = stats["latency"]
    print_record(
        {
            **{name: stats[name] for name in ("systemHealth", "waitingBytes", "oldestWaitingAt")},
            "estimatedWaitSeconds": stats["estimatedWait"],
            "perOperationSeconds": stats["secondsPerOperation"],
            **{f"latency{name.title()}Seconds": latency[name] for name in ("p50", "p95", "max")},
        },
        output,
    )
    if stats["alerts"]:
        typer.echo("\nStuck:")
        print_rows(stats["alerts"], _ALERT_COLUMNS, output)


@operations_app.command("show")
@with_client
def show_operation(
    client: "Client", operation_id: OperationId, *, output: Output = "table"
) -> None:
    """Show an operation, with its answer once it is executed."""
    print_record(client.request("GET", f"{_OPERATIONS}/{operation_id}"), output)


@operations_app.command("retry")
@with_client
def retry_operation(
    client: "Client", operation_id: OperationId, *, output: Output = "table"
) -> None:
    """Queue a failed operation again."""
    print_record(client.request("POST", f"{_OPERATIONS}/{operation_id}/retry"), output)


@operations_app.command("cancel")
@action("Cancelled operation {operation_id}", question="Cancel operation {operation_id}?")
def cancel_operation(client: "Client", operation_id: OperationId) -> None:
    """Cancel a waiting or failed operation."""
    client.request("DELETE", f"{_OPERATIONS}/{operation_id}")


@operations_app.command("cleanup")
@with_client
def clean_up(
    client: "Client",
    *,
    queue: OnlyQueue = None,
    status: Annotated[
        Literal["failed", "waiting"], Option(help="Which operations to cancel.")
    ] = "failed",
    yes: Yes = False,
) -> None:
    """Cancel all failed operations."""
    pages = Pages(lambda rows, before: _operations(client, rows, before, queue, status), limit=None)
    found = [row["operationId"] for page in pages for row in page]
    if not found:
        typer.echo("No operations to cancel")
        return
    confirm(f"Cancel {counted(len(found), f'{status} operation')}?", is_answered=yes)
    cancelled = sum(_cancel_if_there(client, each) for each in found)
    typer.echo(f"Cancelled {counted(cancelled, 'operation')}")


def _operations(
    client: "Client", limit: int, before: str | None, queue: str | None, status: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    """Return a page of operations, and the cursor of the next."""
    from skep.client.endpoints import path_of

    path = path_of("operations", queue=queue, status=status, before=before, limit=limit)
    page = client.request("GET", path)
    return page["operations"], page["nextBefore"]


def _cancel_if_there(client: "Client", operation_id: str) -> bool:
    """Cancel an operation; return whether it could be. Others may have acted meanwhile."""
    try:
        client.request("DELETE", f"{_OPERATIONS}/{operation_id}")
    except (NotFound, Refused):
        return False
    return True


@with_client
def metrics(
    client: "Client",
    *,
    prometheus: Annotated[
        bool, Option("--prometheus", help="Print all metrics in Prometheus format.")
    ] = False,
    search: Annotated[
        str | None, Option(help="With --prometheus: only names that contain this.")
    ] = None,
    output: Output = "table",
) -> None:
    """Show the metrics of an instance; `skep top` watches them."""
    if search is not None and not prometheus:
        raise BadRequest("--search requires --prometheus")
    if prometheus:
        for line in client.download("/metrics/prometheus").decode().splitlines():
            name = line.removeprefix("# HELP ").removeprefix("# TYPE ").split("{")[0].split(" ")[0]
            if search is None or search in name:
                typer.echo(line)
        return
    found = client.request("GET", "/metrics")
    if output == "table":
        print_members(_told(found))
    else:
        print_record(found, output)


def _told(found: Any) -> dict[str, str]:
    """Return what people read of the metrics; the rest is there for Queen's tools."""
    database, cpu = found["database"], found["cpu"]
    flows = {name: found[name] for name in ("requests", "messages")}
    told = {
        name.capitalize(): f"{flow['total']:,}, {flow['rate']:,.1f} per second"
        for name, flow in flows.items()
    }
    return {
        **told,
        "Database": f"{counted(database['poolSize'], 'connection')}, "
        f"{database['idleConnections']:,} idle, "
        f"{counted(database['waitingRequests'], 'request')} waiting",
        "Memory": spell_bytes(found["memory"]["rss"]),
        "CPU time": f"{spell_seconds((cpu['user'] + cpu['system']) / 1e6)}",
    }


@streams_app.command("list")
@listing(_QUERY_COLUMNS, empty="no query is registered")
def list_queries(client: "Client", limit: int, offset: int) -> Any:
    """List the queries, with the size of their state."""
    return client.request("GET", f"{_QUERIES}?limit={limit}&offset={offset}")["queries"]


def _find_query(client: "Client", name: str) -> dict[str, Any]:
    return client.request("GET", f"{_QUERIES}/{quote(name, safe='')}")


@streams_app.command("show")
@with_client
def show_query(client: "Client", name: QueryName, *, output: Output = "table") -> None:
    """Show a query."""
    print_record(_find_query(client, name), output)


def _ask_to_delete_query(client: "Client", name: str) -> str:
    rows = counted(_find_query(client, name)["state_rows"], "row")
    return f"Delete query {name} with {rows} of state?"


@streams_app.command("delete")
@action("Deleted query {name}", question=_ask_to_delete_query)
def delete_query(client: "Client", name: QueryName) -> None:
    """Delete a query with its state."""
    client.request("DELETE", f"{_QUERIES}/{quote(name, safe='')}")
