"""`skep traces`: what applications noted about messages."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from skep.cli.shared.connection import with_client
from skep.cli.shared.output import Output
from skep.cli.shared.pages import Everything, Limit, Offset, Pages, by_offset, one_page, print_pages

if TYPE_CHECKING:
    from skep.client import Client

traces_app: Final = typer.Typer(
    name="traces", help="What applications noted about messages.", no_args_is_help=True
)

_COLUMNS: Final = ("created_at", "event_type", "consumer_group", "trace_names", "data")
_FILED_COLUMNS: Final = (
    "created_at",
    "event_type",
    "queue_name",
    "partition_name",
    "transaction_id",
    "data",
)


@traces_app.command("names")
@with_client
def list_names(
    client: "Client",
    *,
    limit: Limit = 50,
    offset: Offset = 0,
    everything: Everything = False,
    output: Output = "table",
) -> None:
    """List the names that events are filed under, last seen first."""

    def fetch(rows: int, start: int) -> Any:
        return client.traces.names(limit=rows, offset=start)

    pages = Pages(by_offset(fetch), limit=None if everything else limit, start=str(offset))
    columns = ("trace_name", "trace_count", "message_count", "last_seen")
    print_pages(pages, columns, output, what="trace was recorded")


@traces_app.command("show")
@with_client
def show_name(
    client: "Client",
    name: Annotated[str, typer.Argument(help="A name that events are filed under.")],
    *,
    limit: Limit = 100,
    offset: Offset = 0,
    everything: Everything = False,
    output: Output = "table",
) -> None:
    """Show the events filed under a name, the oldest first."""

    def fetch(rows: int, start: int) -> Any:
        return client.traces.by_name(name, limit=rows, offset=start)

    pages = Pages(by_offset(fetch), limit=None if everything else limit, start=str(offset))
    print_pages(pages, _FILED_COLUMNS, output, what=f"event is filed under {name}")


@traces_app.command("message")
@with_client
def show_message(
    client: "Client",
    partition_id: Annotated[str, typer.Argument(help="The id of a partition.")],
    message: Annotated[str, typer.Argument(help="A transaction id or message id.")],
    *,
    output: Output = "table",
) -> None:
    """Show the events of a message, oldest first."""
    pages = one_page(client.traces.of_message(partition_id, message))
    print_pages(pages, _COLUMNS, output, what="event was recorded")
