"""`skep messages`: find messages, look at one, delete it, retry it, give it up.

A message goes by its message id alone, which says where it lies; or by its transaction id, together
with its queue or the id of its partition.
"""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import typer

from skep.cli.shared.completion import QueueName, complete_queue
from skep.cli.shared.connection import with_client
from skep.cli.shared.output import Output, print_record, print_rows
from skep.cli.shared.pages import Everything, Limit, Pages, one_page, print_pages
from skep.cli.shared.prompts import Yes, confirm
from skep.cli.shared.times import Since, Until
from skep.model.errors import BadRequest, NotFound
from skep.model.ids import parse_address, partition_uuid

if TYPE_CHECKING:
    from skep.client import Client

messages_app: Final = typer.Typer(
    name="messages",
    help="Find messages; show, delete, retry and give up single ones.",
    no_args_is_help=True,
)

MessageName: TypeAlias = Annotated[
    str, typer.Argument(help="A message id; or a transaction id, with --queue or --partition-id.")
]
OfQueue: TypeAlias = Annotated[
    str | None,
    typer.Option("--queue", help="The queue of the message.", autocompletion=complete_queue),
]
OfPartition: TypeAlias = Annotated[
    str | None, typer.Option("--partition", help="The partition of the message, by name.")
]
OfPartitionId: TypeAlias = Annotated[
    str | None, typer.Option("--partition-id", help="The partition of the message, by id.")
]
ForGroup: TypeAlias = Annotated[
    str | None, typer.Option("--group", help="Only for this group; by default for all.")
]

_COLUMNS: Final = ("createdAt", "partition", "status", "transactionId", "id")
_PEEK_COLUMNS: Final = ("createdAt", "partition", "transactionId", "id", "data")


@messages_app.command("list")
@with_client
def list_messages(
    client: "Client",
    queue: QueueName,
    *,
    partition: Annotated[str | None, typer.Option(help="Only of this partition.")] = None,
    status: Annotated[
        Literal["pending", "processing", "completed", "dead_letter"] | None,
        typer.Option(help="Only in this state."),
    ] = None,
    transaction_id: Annotated[
        str | None, typer.Option(help="Only with this transaction id, whenever pushed.")
    ] = None,
    since: Since = None,
    until: Until = None,
    cursor: Annotated[
        str | None, typer.Option(help="Go on there, as the page before says.")
    ] = None,
    limit: Limit = 100,
    everything: Everything = False,
    output: Output = "table",
) -> None:
    """List messages, the newest first. Those of the last hour, unless --since says otherwise."""

    def fetch(rows: int, rest: str | None) -> Any:
        page = client.messages.find(
            queue=queue,
            partition=partition,
            status=status,
            since=since,
            until=until,
            transaction_id=transaction_id,
            limit=rows,
            cursor=rest,
        )
        return page.messages, page.next_cursor

    pages = Pages(fetch, limit=None if everything else limit, start=cursor)
    print_pages(pages, _COLUMNS, output, what="message matches", go_on="--cursor")


@messages_app.command("peek")
@with_client
def peek_messages(
    client: "Client",
    queue: QueueName,
    *,
    group: Annotated[
        str | None, typer.Option(help="The group; by default the one of queue mode.")
    ] = None,
    partition: Annotated[str | None, typer.Option(help="Only of this partition.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Rows at most.")] = 10,
    output: Output = "table",
) -> None:
    """Show what a group would get next, claiming nothing."""
    found = client.messages.peek(queue, group=group, partition=partition, limit=limit)
    print_pages(one_page(found), _PEEK_COLUMNS, output, what="message waits")


@messages_app.command("show")
@with_client
def show_message(
    client: "Client",
    message: MessageName,
    *,
    queue: OfQueue = None,
    partition: OfPartition = None,
    partition_id: OfPartitionId = None,
    output: Output = "table",
) -> None:
    """Show a message, and what each group made of it."""
    place = _locate(client, message, queue, partition, partition_id)
    found = client.messages.show(place, message)
    groups: list[Any] = found.pop("consumerGroups") if output == "table" else []
    print_record(found, output)
    if groups:
        typer.echo()
        print_rows(groups, ("name", "consumed", "leaseExpiresAt"), output)


@messages_app.command("delete")
@with_client
def delete_message(
    client: "Client",
    message: MessageName,
    *,
    queue: OfQueue = None,
    partition: OfPartition = None,
    partition_id: OfPartitionId = None,
    yes: Yes = False,
) -> None:
    """Delete a message for all groups, with its dead letters."""
    place = _locate(client, message, queue, partition, partition_id)
    confirm(f"Delete the message {message} for all groups?", is_answered=yes)
    _echo_done(client.messages.delete(place, message))


@messages_app.command("retry")
@with_client
def retry_message(
    client: "Client",
    message: MessageName,
    *,
    group: ForGroup = None,
    queue: OfQueue = None,
    partition: OfPartition = None,
    partition_id: OfPartitionId = None,
) -> None:
    """Deliver a message that failed again, now."""
    place = _locate(client, message, queue, partition, partition_id)
    _echo_done(client.messages.retry(place, message, group=group))


@messages_app.command("dead-letter")
@with_client
def give_up_message(
    client: "Client",
    message: MessageName,
    *,
    group: ForGroup = None,
    error: Annotated[str | None, typer.Option(help="Why; kept with the dead letter.")] = None,
    queue: OfQueue = None,
    partition: OfPartition = None,
    partition_id: OfPartitionId = None,
    yes: Yes = False,
) -> None:
    """Move a message to the dead letters. `skep dlq redrive` brings it back."""
    place = _locate(client, message, queue, partition, partition_id)
    confirm(f"Give the message {message} up for {group or 'all groups'}?", is_answered=yes)
    _echo_done(client.messages.dead_letter(place, message, group=group, error=error))


def _echo_done(answer: dict[str, Any]) -> None:
    groups = ", ".join(answer.get("consumerGroups") or ())
    typer.echo(answer["message"] + (f" ({groups})" if groups else ""))


def _locate(
    client: "Client",
    message: str,
    queue: str | None,
    partition: str | None,
    partition_id: str | None,
) -> str:
    """Return the id of the partition that a message lies in.

    Raises:
        BadRequest: What was said is not enough to find it.
        NotFound: There is no such message in the queue.
    """
    if partition_id is not None:
        return partition_id
    address = parse_address(message)
    if address is not None and address[1] > 0 and queue is None:
        return partition_uuid(address[0])
    if queue is None:
        raise BadRequest("a transaction id alone does not say where the message is: add --queue")
    found = client.messages.find(queue=queue, partition=partition, transaction_id=message, limit=10)
    places = {each.partition_id: each.partition for each in found.messages}
    if not places:
        raise NotFound(f"{queue} has no message {message}")
    if len(places) > 1:
        names = ", ".join(sorted(places.values()))
        raise BadRequest(f"several partitions have a message {message}: {names}; add --partition")
    return next(iter(places))
