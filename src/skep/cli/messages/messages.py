"""`skep messages` and `skep traces`: single messages, and the events recorded about them.

A message goes by its message id, which contains its place; or by its transaction id, together with
its queue or the id of its partition.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from typer import Argument, Option

from skep.cli.shared.connection import OnlyPartition, QueueName, complete_queue, with_client
from skep.cli.shared.declare import listing
from skep.cli.shared.help import Commands
from skep.cli.shared.options import Since, Until, Yes, confirm, declare_options
from skep.cli.shared.output import Output, print_found, print_record, print_rows
from skep.model.errors import BadRequest, NotFound
from skep.model.ids import parse_address, partition_uuid

if TYPE_CHECKING:
    from skep.client import Client

messages_app: Final = Commands("messages", "List, show, delete, retry and dead-letter messages.")
traces_app: Final = Commands("traces", "Events that applications recorded about messages.")

MessageName = Annotated[
    str, Argument(help="Message id; or a transaction id, with --queue or --partition-id.")
]
OfQueue = Annotated[
    str | None, Option("--queue", help="Queue of the message.", autocompletion=complete_queue)
]
OfPartition = Annotated[str | None, Option("--partition", help="Partition name of the message.")]
OfPartitionId = Annotated[str | None, Option("--partition-id", help="Partition id of the message.")]
ForGroup = Annotated[str | None, Option("--group", help="Only this group; default: all groups.")]

OnlyHeader = Annotated[
    str | None, Option("--header", help="Only messages with this header: `name=value`, or a name.")
]
OnlyPayload = Annotated[
    str | None,
    Option(
        "--payload",
        help="Only payloads with this text, or that fulfil `$.customer.id = 7`; also !=, <, <=, >, "
        ">= and ~ (contains).",
    ),
]
PREVIEW_CHARS: Final = 200

_COLUMNS: Final = ("createdAt as stored", "partition", "status", "id", "preview as payload")
_PEEK_COLUMNS: Final = ("createdAt as stored", "partition", "transactionId", "id", "data")
_TRACE_COLUMNS: Final = (
    *("created_at as at", "event_type as type", "consumer_group as group"),
    *("trace_names as traces", "data"),
)
_NAMED_TRACE_COLUMNS: Final = (
    *("created_at as at", "event_type as type", "queue_name as queue"),
    *("partition_name as partition", "transaction_id", "data"),
)


@messages_app.command("list")
@listing(_COLUMNS, empty="no message matches", cursor="cursor")
def list_messages(
    client: "Client",
    limit: int,
    cursor: str | None,
    queue: QueueName,
    *,
    partition: OnlyPartition = None,
    status: Annotated[
        Literal["pending", "processing", "completed", "dead_letter"] | None,
        Option(help="Only this status."),
    ] = None,
    transaction_id: Annotated[
        str | None, Option(help="Only this transaction id, whenever it was pushed.")
    ] = None,
    header: OnlyHeader = None,
    payload: OnlyPayload = None,
    since: Since = None,
    until: Until = None,
) -> Any:
    """List messages, newest first. Shows the last hour, unless --since is passed."""
    from skep.client.endpoints import path_of

    which = {"queue": queue, "partition": partition, "status": status, "from": since, "to": until}
    which |= {"transactionId": transaction_id, "header": header, "payload": payload}
    path = path_of("messages", **which, preview=PREVIEW_CHARS, limit=limit, cursor=cursor)
    page = client.request("GET", path)
    return page["messages"], page["nextCursor"]


@messages_app.command("peek")
@with_client
def peek_messages(
    client: "Client",
    queue: QueueName,
    *,
    group: Annotated[str | None, Option(help="Consumer group; default: the default group.")] = None,
    partition: OnlyPartition = None,
    limit: Annotated[int, Option(min=1, max=1000, help="Maximum number of rows.")] = 10,
    output: Output = "table",
) -> None:
    """Show the next messages of a group without claiming them."""
    found = client.messages.peek(queue, group=group, partition=partition, limit=limit)
    print_found(found, _PEEK_COLUMNS, output, empty="no message waits")


def with_place(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that locate a message; the command's `place` is the id of its partition."""
    options = {"queue": OfQueue, "partition": OfPartition, "partition_id": OfPartitionId}

    def run(client: "Client", *, message: str, **arguments: Any) -> None:
        place = _locate(client, message, **{name: arguments.pop(name) for name in options})
        command(client, message=message, place=place, **arguments)

    declare_options(run, command, options, hidden=("place",))
    return run


@messages_app.command("show")
@with_client
@with_place
def show_message(
    client: "Client",
    message: MessageName,
    place: str,
    *,
    output: Output = "table",
) -> None:
    """Show a message and its state in each group."""
    found = client.messages.show(place, message)
    groups: list[Any] = found.pop("consumerGroups") if output == "table" else []
    print_record(found, output)
    if groups:
        typer.echo()
        print_rows(groups, ("name as group", "consumed", "leaseExpiresAt as leased until"), output)


@messages_app.command("delete")
@with_client
@with_place
def delete_message(
    client: "Client",
    message: MessageName,
    place: str,
    *,
    yes: Yes = False,
) -> None:
    """Delete a message for all groups, with its dead letters."""
    confirm(f"Delete message {message} for all groups?", is_answered=yes)
    _echo_answer(client.messages.delete(place, message))


@messages_app.command("retry")
@with_client
@with_place
def retry_message(
    client: "Client",
    message: MessageName,
    place: str,
    *,
    group: ForGroup = None,
) -> None:
    """Deliver a failed message again now."""
    _echo_answer(client.messages.retry(place, message, group=group))


@messages_app.command("dead-letter")
@with_client
@with_place
def dead_letter_message(
    client: "Client",
    message: MessageName,
    place: str,
    *,
    group: ForGroup = None,
    error: Annotated[str | None, Option(help="Reason, stored with the dead letter.")] = None,
    yes: Yes = False,
) -> None:
    """Move a message to the dead letters. `skep dlq redrive` brings it back."""
    confirm(f"Dead-letter message {message} for {group or 'all groups'}?", is_answered=yes)
    _echo_answer(client.messages.dead_letter(place, message, group=group, error=error))


def _echo_answer(answer: dict[str, Any]) -> None:
    groups = ", ".join(answer.get("consumerGroups") or ())
    typer.echo(answer["message"] + (f" ({groups})" if groups else ""))


def _locate(
    client: "Client",
    message: str,
    queue: str | None,
    partition: str | None,
    partition_id: str | None,
) -> str:
    """Return the id of the partition of a message."""
    if partition_id is not None:
        return partition_id
    address = parse_address(message)
    if address is not None and address[1] > 0 and queue is None:
        return partition_uuid(address[0])
    if queue is None:
        raise BadRequest("a transaction id does not determine the queue: add --queue")
    found = client.messages.find(queue=queue, partition=partition, transaction_id=message, limit=10)
    places = {each.partition_id: each.partition for each in found.messages}
    if not places:
        raise NotFound(f"queue {queue} has no message {message}")
    if len(places) > 1:
        names = ", ".join(sorted(places.values()))
        raise BadRequest(f"several partitions have a message {message}: {names}; add --partition")
    return next(iter(places))


@traces_app.command("names")
@listing(
    ("trace_name as trace", "trace_count as events", "message_count as messages", "last_seen"),
    empty="no trace is recorded",
    limit=50,
)
def list_names(client: "Client", limit: int, offset: int) -> Any:
    """List the trace names, last seen first."""
    return client.traces.names(limit=limit, offset=offset)


@traces_app.command("show")
@listing(_NAMED_TRACE_COLUMNS, empty="no event has the trace name {name}")
def show_name(
    client: "Client",
    limit: int,
    offset: int,
    name: Annotated[str, Argument(help="Trace name.")],
) -> Any:
    """Show the events of a trace name, oldest first."""
    return client.traces.by_name(name, limit=limit, offset=offset)


@traces_app.command("message")
@with_client
def show_traces_of_message(
    client: "Client",
    partition_id: Annotated[str, Argument(help="Partition id.")],
    message: Annotated[str, Argument(help="Transaction id or message id.")],
    *,
    output: Output = "table",
) -> None:
    """Show the events of a message, oldest first."""
    found = client.traces.of_message(partition_id, message)
    print_found(found, _TRACE_COLUMNS, output, empty="no event is recorded")
