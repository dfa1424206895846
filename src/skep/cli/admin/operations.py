"""`skep operations`: what brokers accepted while they had no room, and what became of it."""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias
from uuid import UUID

import typer

from skep.cli.shared.completion import complete_queue
from skep.cli.shared.connection import with_client
from skep.cli.shared.output import Output, print_record, print_rows
from skep.cli.shared.pages import PAGE_ROWS, Everything, Limit, Pages, print_pages
from skep.cli.shared.prompts import Yes, confirm
from skep.model.errors import NotFound, Refused

if TYPE_CHECKING:
    from skep.client import Client

operations_app: Final = typer.Typer(
    name="operations",
    help="What brokers accepted to do later, and what became of it.",
    no_args_is_help=True,
)

OperationId: TypeAlias = Annotated[
    UUID, typer.Argument(help="The id of an operation.", metavar="ID")
]
OnlyQueue: TypeAlias = Annotated[
    str | None, typer.Option("--queue", help="Only of this queue.", autocompletion=complete_queue)
]

_PATH: Final = "/api/v1/operations"
_COLUMNS: Final = (
    "createdAt",
    "type",
    "status",
    "queue",
    "partition",
    "itemCount",
    "retries",
    "error",
    "operationId",
)


@operations_app.command("list")
@with_client
def list_operations(
    client: "Client",
    *,
    queue: OnlyQueue = None,
    status: Annotated[
        Literal["waiting", "processing", "completed", "failed", "cancelled"] | None,
        typer.Option(help="Only of this status."),
    ] = None,
    before: Annotated[
        str | None, typer.Option(help="Go on there, as the page before says.")
    ] = None,
    limit: Limit = 100,
    everything: Everything = False,
    output: Output = "table",
) -> None:
    """List operations, the newest first."""

    def fetch(rows: int, rest: str | None) -> Any:
        return _fetch(client, rows, rest, queue=queue, status=status)

    pages = Pages(fetch, limit=None if everything else limit, start=before)
    print_pages(pages, _COLUMNS, output, what="operation matches", go_on="--before")


@operations_app.command("stats")
@with_client
def show_stats(client: "Client", *, output: Output = "table") -> None:
    """Count operations by type and status."""
    stats = client.request("GET", f"{_PATH}/stats")
    if output != "table":
        print_record(stats, output)
        return
    rows = [{"type": name, **counts} for name, counts in stats.pop("byType").items()]
    rows.append({"type": "all", **stats.pop("total")})
    print_rows(rows, ("type", "waiting", "processing", "completed", "failed", "cancelled"), output)
    print_record(stats, output)


@operations_app.command("show")
@with_client
def show_operation(
    client: "Client", operation_id: OperationId, *, output: Output = "table"
) -> None:
    """Show an operation, and its answer when it is done."""
    print_record(client.request("GET", f"{_PATH}/{operation_id}"), output)


@operations_app.command("retry")
@with_client
def retry_operation(
    client: "Client", operation_id: OperationId, *, output: Output = "table"
) -> None:
    """Let an operation that was given up wait once more."""
    print_record(client.request("POST", f"{_PATH}/{operation_id}/retry"), output)


@operations_app.command("cancel")
@with_client
def cancel_operation(client: "Client", operation_id: OperationId, *, yes: Yes = False) -> None:
    """Let an operation that waits or was given up not be done."""
    confirm(f"Cancel the operation {operation_id}: it will not be done?", is_answered=yes)
    client.request("DELETE", f"{_PATH}/{operation_id}")
    typer.echo(f"{operation_id} will not be done")


@operations_app.command("cleanup")
@with_client
def clean_up(
    client: "Client",
    *,
    queue: OnlyQueue = None,
    status: Annotated[
        Literal["failed", "waiting"],
        typer.Option(help="Those that were given up, or those that still wait."),
    ] = "failed",
    yes: Yes = False,
) -> None:
    """Cancel all operations that were given up."""
    found = list(_each(client, queue, status))
    if not found:
        typer.echo("there is nothing to clean up")
        return
    confirm(f"Cancel {len(found):,} operations that are {status}?", is_answered=yes)
    typer.echo(f"{sum(_cancel_if_there(client, each) for each in found):,} operations cancelled")


def _each(client: "Client", queue: str | None, status: str) -> Any:
    pages = Pages(
        lambda rows, rest: _fetch(client, rows, rest, queue=queue, status=status), limit=None
    )
    return (row["operationId"] for page in pages for row in page)


def _cancel_if_there(client: "Client", operation_id: str) -> bool:
    """Cancel an operation; return whether it was one that can be. Others act meanwhile."""
    try:
        client.request("DELETE", f"{_PATH}/{operation_id}")
    except (NotFound, Refused):
        return False
    return True


def _fetch(
    client: "Client", rows: int, rest: str | None, *, queue: str | None, status: str | None
) -> tuple[list[Any], str | None]:
    from skep.client.endpoints import path_of

    path = path_of(
        "operations", queue=queue, status=status, before=rest, limit=min(rows, PAGE_ROWS)
    )
    page = client.request("GET", path)
    return page["operations"], page["nextBefore"]
