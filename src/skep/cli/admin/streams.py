"""`skep streams`: the queries of the streams SDK that are registered, and their state."""

from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias
from urllib.parse import quote

import typer

from skep.cli.shared.connection import with_client
from skep.cli.shared.output import Output, print_record
from skep.cli.shared.pages import Everything, Limit, Offset, Pages, by_offset, print_pages
from skep.cli.shared.prompts import Yes, confirm

if TYPE_CHECKING:
    from skep.client import Client

streams_app: Final = typer.Typer(
    name="streams", help="Registered stream queries and their state.", no_args_is_help=True
)

QueryName: TypeAlias = Annotated[str, typer.Argument(help="The name of a query.")]

_PATH: Final = "/streams/v1/queries"
_COLUMNS: Final = (
    "name",
    "source_queue",
    "sink_queue",
    "partitions",
    "state_rows",
    "state_bytes",
    "updated_at",
)


@streams_app.command("list")
@with_client
def list_queries(
    client: "Client",
    *,
    limit: Limit = 100,
    offset: Offset = 0,
    everything: Everything = False,
    output: Output = "table",
) -> None:
    """List the queries, with the size of their state."""

    def fetch(rows: int, start: int) -> Any:
        return client.request("GET", f"{_PATH}?limit={rows}&offset={start}")["queries"]

    pages = Pages(by_offset(fetch), limit=None if everything else limit, start=str(offset))
    print_pages(pages, _COLUMNS, output, what="query is registered")


@streams_app.command("show")
@with_client
def show_query(client: "Client", name: QueryName, *, output: Output = "table") -> None:
    """Show a query."""
    print_record(client.request("GET", f"{_PATH}/{quote(name, safe='')}"), output)


@streams_app.command("delete")
@with_client
def delete_query(client: "Client", name: QueryName, *, yes: Yes = False) -> None:
    """Delete a query with its state."""
    found = client.request("GET", f"{_PATH}/{quote(name, safe='')}")
    confirm(f"Delete the query {name} with {found['state_rows']:,} rows of state?", is_answered=yes)
    client.request("DELETE", f"{_PATH}/{quote(name, safe='')}")
    typer.echo(f"{name} is gone")
