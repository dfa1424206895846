"""`skep queues`: list, show, make, change, pause, empty and delete queues."""

from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from skep.cli.admin.queue_options import SetOptions, UnsetOptions, read_options
from skep.cli.shared.completion import QueueName
from skep.cli.shared.connection import with_client
from skep.cli.shared.output import Output, print_record
from skep.cli.shared.pages import Everything, Limit, Offset, Pages, by_offset, print_pages
from skep.cli.shared.prompts import Yes, confirm
from skep.model.errors import NotFound, Refused

if TYPE_CHECKING:
    from skep.client import Client

queues_app: Final = typer.Typer(
    name="queues",
    help="List, show, make, change, pause, empty and delete queues.",
    no_args_is_help=True,
)

Namespace: TypeAlias = Annotated[str | None, typer.Option(help="The namespace of the queue.")]
Task: TypeAlias = Annotated[str | None, typer.Option(help="The task of the queue.")]

_COLUMNS: Final = (
    "name",
    "namespace",
    "task",
    "partitions",
    "messages.pending",
    "messages.processing",
    "messages.deadLetter",
    "messages.total",
    "isPaused",
)


@queues_app.command("list")
@with_client
def list_queues(
    client: "Client",
    search: Annotated[str | None, typer.Argument(help="Only names that contain this.")] = None,
    *,
    namespace: Annotated[str | None, typer.Option(help="Only of this namespace.")] = None,
    task: Annotated[str | None, typer.Option(help="Only of this task.")] = None,
    limit: Limit = 100,
    offset: Offset = 0,
    everything: Everything = False,
    output: Output = "table",
) -> None:
    """List queues, with how many messages wait in each."""

    def fetch(rows: int, start: int) -> Any:
        page = client.queues.find(
            namespace=namespace, task=task, search=search, limit=rows, offset=start
        )
        return page.queues

    pages = Pages(by_offset(fetch), limit=None if everything else limit, start=str(offset))
    print_pages(pages, _COLUMNS, output, what="queue matches")


@queues_app.command("show")
@with_client
def show_queue(client: "Client", queue: QueueName, *, output: Output = "table") -> None:
    """Show a queue: its options, groups and counts. Its partitions: `skep partitions list`."""
    described = client.queues.describe(queue, partition_limit=1)
    del described["partitions"]
    if output == "table":
        described |= described.pop("totals") | described.pop("options")
        described["groups"] = ", ".join(group["name"] for group in described["groups"])
    print_record(described, output)


@queues_app.command("create")
@with_client
def create_queue(
    client: "Client",
    queue: Annotated[str, typer.Argument(help="How it shall be called.")],
    *,
    namespace: Namespace = None,
    task: Task = None,
    given: SetOptions = None,
    output: Output = "table",
) -> None:
    """Make a queue. Pushing to one makes it, too: this is for its options."""
    options = read_options(given)
    try:
        client.queues.configuration(queue)
    except NotFound:
        made = client.queues.configure(queue, namespace=namespace, task=task, **options)
        _print_configured(made, output)
    else:
        raise Refused(f"the queue {queue} exists; `skep queues configure` changes it")


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
    replace: Annotated[
        bool, typer.Option("--replace", help="Give everything that is not set its default.")
    ] = False,
    output: Output = "table",
) -> None:
    """Change options of a queue; without any, show them."""
    options = read_options(given, unset)
    configured = client.queues.configuration(queue)
    if options or replace or namespace is not None or task is not None:
        configured = client.queues.configure(
            queue, namespace=namespace, task=task, replace=replace, **options
        )
    _print_configured(configured, output)


@queues_app.command("pause")
@with_client
def pause_queue(client: "Client", queue: QueueName) -> None:
    """Deliver nothing of a queue until it is resumed; pushes go on."""
    client.queues.pause(queue)
    typer.echo(f"{queue} is paused")


@queues_app.command("resume")
@with_client
def resume_queue(client: "Client", queue: QueueName) -> None:
    """Deliver a paused queue again."""
    client.queues.resume(queue)
    typer.echo(f"{queue} delivers")


@queues_app.command("clear")
@with_client
def clear_queue(
    client: "Client",
    queue: QueueName,
    *,
    partition: Annotated[str | None, typer.Option(help="Only of this partition.")] = None,
    yes: Yes = False,
) -> None:
    """Drop all messages of a queue, read or not. Its groups and dead letters stay."""
    place = queue if partition is None else f"partition {partition} of {queue}"
    pending = client.queues.describe(queue, partition_limit=1)["totals"]["pending"]
    confirm(f"Drop all messages of {place}? In {queue} {pending:,} are not done.", is_answered=yes)
    cleared = client.queues.clear(queue, partition=partition)
    typer.echo(f"{cleared['messages']:,} messages dropped")


@queues_app.command("delete")
@with_client
def delete_queue(client: "Client", queue: QueueName, *, yes: Yes = False) -> None:
    """Delete a queue with its messages, groups and dead letters."""
    found = client.queues.describe(queue, partition_limit=1)
    confirm(
        f"Delete {queue} with {found['totals']['total']:,} messages "
        f"({found['totals']['pending']:,} not done) and {len(found['groups'])} groups?",
        is_answered=yes,
    )
    client.queues.delete(queue)
    typer.echo(f"{queue} is gone")


def _print_configured(configured: Any, output: Any) -> None:
    import msgspec

    shown = msgspec.to_builtins(configured)
    if output == "table":
        shown |= shown.pop("options")
        del shown["ignoredOptions"]
    print_record(shown, output)
