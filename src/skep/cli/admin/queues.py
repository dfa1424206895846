"""`skep queues` and `skep partitions`: list, show, create, change, pause, clear and delete."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer import Argument, Option

from skep.cli.shared.connection import OnlyPartition, QueueName, complete_queue, with_client
from skep.cli.shared.declare import action, listing
from skep.cli.shared.help import Commands, closest
from skep.cli.shared.output import Format, Output, print_record, print_rows, to_json
from skep.model.errors import BadRequest, NotFound, Refused
from skep.model.plurals import counted
from skep.model.wire import QUEUE_MODE

if TYPE_CHECKING:
    from skep.client import Client

queues_app: Final = Commands("queues", "List, create, configure, pause, clear and delete queues.")
partitions_app: Final = Commands("partitions", "List, show and clear partitions.")

Namespace = Annotated[str | None, Option(help="Namespace of the queue.")]
Task = Annotated[str | None, Option(help="Task of the queue.")]
PartitionName = Annotated[str, Argument(help="Partition name.")]
SetOptions = Annotated[
    list[str] | None,
    Option("--set", metavar="OPTION=VALUE", help="Queue option, as `leaseTime=60`; repeatable."),
]
UnsetOptions = Annotated[
    list[str] | None,
    Option("--unset", metavar="OPTION", help="Reset an option to its default; repeatable."),
]

_COLUMNS: Final = (
    *("name as queue", "namespace", "task", "partitions", "messages.pending as waiting"),
    *("messages.processing as leased", "messages.deadLetter as dead letters", "messages.total"),
    "isPaused",
)
_PARTITION_COLUMNS: Final = (
    *("queue", "name as partition", "tail", "head", "stats.pending as waiting"),
    *("stats.processing as leased", "stats.deadLetter as dead letters", "lastActivity", "id"),
)


@queues_app.command("list")
@listing(_COLUMNS, empty="no queue matches")
def list_queues(
    client: "Client",
    limit: int,
    offset: int,
    search: Annotated[str | None, Argument(help="Only names that contain this.")] = None,
    *,
    namespace: Annotated[str | None, Option(help="Only this namespace.")] = None,
    task: Annotated[str | None, Option(help="Only this task.")] = None,
) -> Any:
    """List queues with their message counts."""
    page = client.queues.find(
        namespace=namespace, task=task, search=search, limit=limit, offset=offset
    )
    return page.queues


@queues_app.command("show")
@with_client
def show_queue(client: "Client", queue: QueueName, *, output: Output = "table") -> None:
    """Show a queue: its options, groups and counts. Its partitions: `skep partitions list`."""
    described = client.queues.describe(queue, partition_limit=1)
    del described["partitions"]
    if output == "table":
        described |= described.pop("totals")
        names = [group["name"] for group in described["groups"]]
        described["groups"] = ", ".join(name.replace(QUEUE_MODE, "default group") for name in names)
        options = described.pop("options")
        print_record(described, output)
        _print_options(options)
    else:
        print_record(described, output)


@queues_app.command("create")
@with_client
def create_queue(
    client: "Client",
    queue: Annotated[str, Argument(help="Queue name.")],
    *,
    namespace: Namespace = None,
    task: Task = None,
    given: SetOptions = None,
    output: Output = "table",
) -> None:
    """Create a queue with options. A push creates its queue with the defaults."""
    options = _read_options(given)
    try:
        client.queues.configuration(queue)
    except NotFound:
        made = client.queues.configure(queue, namespace=namespace, task=task, **options)
        _print_configured(made, output)
    else:
        raise Refused(f"queue {queue} already exists; `skep queues configure` changes it")


@queues_app.command("configure")
@with_client
def configure_queue(
    client: "Client",
    queue: QueueName,
    *,
    namespace: Namespace = None,
    task: Task = None,
    given: SetOptions = None,
    unset: UnsetOptions = None,
    replace: Annotated[bool, Option("--replace", help="Reset all other options.")] = False,
    output: Output = "table",
) -> None:
    """Change the options of a queue; without any, show them."""
    options = _read_options(given, unset)
    configured = client.queues.configuration(queue)
    if options or replace or namespace is not None or task is not None:
        configured = client.queues.configure(
            queue, namespace=namespace, task=task, replace=replace, **options
        )
    _print_configured(configured, output)


@queues_app.command("pause")
@action("Paused queue {queue}")
def pause_queue(client: "Client", queue: QueueName) -> None:
    """Stop delivering from a queue; pushes continue."""
    client.queues.pause(queue)


@queues_app.command("resume")
@action("Resumed queue {queue}")
def resume_queue(client: "Client", queue: QueueName) -> None:
    """Deliver from a paused queue again."""
    client.queues.resume(queue)


def _ask_to_clear(client: "Client", queue: str, partition: str | None) -> str:
    place = f"queue {queue}" if partition is None else f"partition {partition} of {queue}"
    pending = client.queues.describe(queue, partition_limit=1)["totals"]["pending"]
    return f"Delete all messages of {place}? Queue {queue} has {pending:,} pending."


def _tell_cleared(result: Any, **_: Any) -> str:
    return f"Deleted {counted(result['messages'], 'message')}"


@queues_app.command("clear")
@action(_tell_cleared, question=_ask_to_clear)
def clear_queue(client: "Client", queue: QueueName, *, partition: OnlyPartition = None) -> Any:
    """Delete all messages of a queue, pending ones too. Groups and dead letters stay."""
    return client.queues.clear(queue, partition=partition)


def _ask_to_delete(client: "Client", queue: str) -> str:
    found = client.queues.describe(queue, partition_limit=1)
    return (
        f"Delete queue {queue} with {counted(found['totals']['total'], 'message')} "
        f"({found['totals']['pending']:,} pending) and {counted(len(found['groups']), 'group')}?"
    )


@queues_app.command("delete")
@action("Deleted queue {queue}", question=_ask_to_delete)
def delete_queue(client: "Client", queue: QueueName) -> None:
    """Delete a queue with its messages, groups and dead letters."""
    client.queues.delete(queue)


@partitions_app.command("list")
@listing(_PARTITION_COLUMNS, empty="no partition matches", cursor="after")
def list_partitions(
    client: "Client",
    limit: int,
    after: str | None,
    queue: Annotated[
        str | None, Argument(help="Only this queue.", autocompletion=complete_queue)
    ] = None,
    *,
    search: Annotated[str | None, Option(help="Only names that contain this.")] = None,
) -> Any:
    """List partitions, by queue and name."""
    page = client.queues.partitions(queue, search=search, after=after, limit=limit)
    return page.partitions, page.next_after


@partitions_app.command("show")
@with_client
def show_partition(
    client: "Client", queue: QueueName, partition: PartitionName, *, output: Output = "table"
) -> None:
    """Show a partition."""
    found = _find_partition(client, queue, partition)
    if output == "table":
        found |= found.pop("stats")
    print_record(found, output)


def _ask_to_clear_partition(client: "Client", queue: str, partition: str) -> str:
    stats = _find_partition(client, queue, partition)["stats"]
    return (
        f"Delete {counted(stats['total'], 'message')} of partition {partition} of {queue} "
        f"({stats['pending']:,} pending)?"
    )


@partitions_app.command("clear")
@action(_tell_cleared, question=_ask_to_clear_partition)
def clear_partition(client: "Client", queue: QueueName, partition: PartitionName) -> Any:
    """Delete all messages of a partition, pending ones too."""
    return client.queues.clear(queue, partition=partition)


def check_options(options: Mapping[str, Any]) -> None:
    """Check that queue options exist and have values of the right type.

    A broker ignores unknown options, so a typo would go unnoticed.
    """
    import msgspec

    from skep.model.queue_options import OptionChanges

    known = [field.encode_name for field in msgspec.structs.fields(OptionChanges)]
    for name in options:
        if name not in known:
            raise BadRequest(f"unknown queue option {name}{closest(name, known)}")
        try:
            msgspec.convert({name: options[name]}, OptionChanges)
        except msgspec.ValidationError as error:
            given = msgspec.json.encode(options[name]).decode()
            raise BadRequest(f"{name} cannot be {given}: it is {_accepted(name)}") from error


def _accepted(option: str) -> str:
    """Describe the values that a queue option takes."""
    from msgspec import inspect

    from skep.model.queue_options import OptionChanges

    about: Any = inspect.type_info(OptionChanges)
    (kind,) = [field.type for field in about.fields if field.encode_name == option]
    # Alone, or beside null; and inside of its description.
    for each in getattr(kind, "types", (kind,)):
        match getattr(each, "type", each):
            case inspect.LiteralType(values=values):
                return " or ".join(map(str, values))
            case inspect.BoolType():
                return "true or false"
            case inspect.IntType():
                return "a whole number"
            case _:
                pass
    return "a JSON Schema"


def _read_options(
    given: Sequence[str] | None, unset: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the options of `--set` and `--unset`, checked; None for those to unset."""
    options = dict(map(_read_pair, given or ()))
    options |= dict.fromkeys(unset or ())
    check_options(options)
    return options


def _read_pair(text: str) -> tuple[str, Any]:
    import msgspec

    name, separator, value = text.partition("=")
    if not separator:
        raise BadRequest(f"--set must be OPTION=VALUE, not {text!r}")
    try:
        return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return name, value


def _print_configured(configured: Any, output: Format) -> None:
    import msgspec

    shown = msgspec.to_builtins(configured)
    if output == "table":
        del shown["ignoredOptions"]
        options = shown.pop("options")
        print_record(shown, output)
        _print_options(options)
    else:
        print_record(shown, output)


def _print_options(options: Mapping[str, Any]) -> None:
    """Print options by the names that `--set` takes, the changed ones first."""
    import msgspec

    from skep.model.queue_options import QueueOptions

    defaults = msgspec.to_builtins(QueueOptions())
    rows = [
        {"option": name, "value": _written(value), "default": _written(defaults.get(name))}
        for name, value in options.items()
    ]
    rows.sort(key=lambda row: row["value"] == row["default"])
    typer.echo()
    print_rows(rows, ("option", "value", "default"), "table")


def _written(value: Any) -> str:
    """Return the value of an option as `--set` takes it."""
    return "" if value is None else to_json(value).strip('"')


def _find_partition(client: "Client", queue: str, partition: str) -> dict[str, Any]:
    """Return a partition by its exact name: the search also finds longer ones."""
    import msgspec

    rest: str | None = None
    while True:
        page = client.queues.partitions(queue, search=partition, after=rest, limit=1000)
        for each in page.partitions:
            if each.name == partition:
                return msgspec.to_builtins(each)
        rest = page.next_after
        if rest is None:
            raise NotFound(f"queue {queue} has no partition {partition}")
