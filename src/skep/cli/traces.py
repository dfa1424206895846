"""`skep traces`: events that were noted about messages."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from skep.cli.connection import with_client
from skep.cli.exits import Nothing
from skep.cli.output import Output, print_rows

if TYPE_CHECKING:
    from skep.client import Client

traces_app: Final = typer.Typer(
    name="traces", help="Events that were noted about messages.", no_args_is_help=True
)

_COLUMNS: Final = ("created_at", "event_type", "trace_names", "data")


@traces_app.command()
@with_client
def names(
    client: "Client",
    *,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Rows at most.")] = 50,
    output: Output = "table",
) -> None:
    """List the names under which events are filed."""
    rows = client.traces.names(limit=limit)
    print_rows(rows, ("trace_name", "trace_count", "message_count", "last_seen"), output)


@traces_app.command()
@with_client
def show(
    client: "Client",
    name: Annotated[str, typer.Argument(help="Under which events are filed.")],
    *,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Rows at most.")] = 100,
    output: Output = "table",
) -> None:
    """Show the events filed under a name, oldest first."""
    rows = client.traces.by_name(name, limit=limit)
    if not rows:
        raise Nothing(f"no event is filed under {name}")
    print_rows(rows, (*_COLUMNS, "queue_name", "transaction_id"), output)


@traces_app.command()
@with_client
def message(
    client: "Client",
    partition_id: Annotated[str, typer.Argument(help="As `skep pop` shows it.")],
    transaction_id: Annotated[str, typer.Argument(help="Of the message, or its id.")],
    *,
    output: Output = "table",
) -> None:
    """Show the events of one message, oldest first."""
    rows = client.traces.of_message(partition_id, transaction_id)
    if not rows:
        raise Nothing("no event was noted about this message")
    print_rows(rows, _COLUMNS, output)
