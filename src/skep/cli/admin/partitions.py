"""`skep partitions`: list and show the partitions of queues, and empty one."""

from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from skep.cli.shared.completion import QueueName, complete_queue
from skep.cli.shared.connection import with_client
from skep.cli.shared.output import Output, print_record
from skep.cli.shared.pages import Everything, Limit, Pages, print_pages
from skep.cli.shared.prompts import Yes, confirm
from skep.model.errors import NotFound

if TYPE_CHECKING:
    from skep.client import Client

partitions_app: Final = typer.Typer(
    name="partitions", help="List, show and empty partitions.", no_args_is_help=True
)

PartitionName: TypeAlias = Annotated[str, typer.Argument(help="The name of a partition.")]

_COLUMNS: Final = (
    "queue",
    "name",
    "tail",
    "head",
    "stats.pending",
    "stats.processing",
    "stats.deadLetter",
    "lastActivity",
    "id",
)


@partitions_app.command("list")
@with_client
def list_partitions(
    client: "Client",
    queue: Annotated[
        str | None, typer.Argument(help="Only of this queue.", autocompletion=complete_queue)
    ] = None,
    *,
    search: Annotated[str | None, typer.Option(help="Only names that contain this.")] = None,
    after: Annotated[
        str | None, typer.Option(help="Go on behind this one, as the page before says.")
    ] = None,
    limit: Limit = 100,
    everything: Everything = False,
    output: Output = "table",
) -> None:
    """List partitions, by queue and name."""

    def fetch(rows: int, rest: str | None) -> Any:
        page = client.queues.partitions(queue, search=search, after=rest, limit=rows)
        return page.partitions, page.next_after

    pages = Pages(fetch, limit=None if everything else limit, start=after)
    print_pages(pages, _COLUMNS, output, what="partition matches", go_on="--after")


@partitions_app.command("show")
@with_client
def show_partition(
    client: "Client", queue: QueueName, partition: PartitionName, *, output: Output = "table"
) -> None:
    """Show one partition."""
    found = _find(client, queue, partition)
    if output == "table":
        found |= found.pop("stats")
    print_record(found, output)


@partitions_app.command("clear")
@with_client
def clear_partition(
    client: "Client", queue: QueueName, partition: PartitionName, *, yes: Yes = False
) -> None:
    """Drop all messages of a partition, read or not."""
    stats = _find(client, queue, partition)["stats"]
    confirm(
        f"Drop {stats['total']:,} messages of partition {partition} of {queue}, "
        f"{stats['pending']:,} of them not done?",
        is_answered=yes,
    )
    cleared = client.queues.clear(queue, partition=partition)
    typer.echo(f"{cleared['messages']:,} messages dropped")


def _find(client: "Client", queue: str, partition: str) -> dict[str, Any]:
    """Return a partition by its name: the search also finds longer ones."""
    import msgspec

    rest: str | None = None
    while True:
        page = client.queues.partitions(queue, search=partition, after=rest, limit=1000)
        for each in page.partitions:
            if each.name == partition:
                return msgspec.to_builtins(each)
        rest = page.next_after
        if rest is None:
            raise NotFound(f"the queue {queue} has no partition {partition}")
