"""`skep apply`: make queues as a file declares them, after showing what would change."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skep.cli.admin.queue_diff import render_diff, summary_of
from skep.cli.shared.connection import with_client
from skep.cli.shared.output import Format, Output, print_rows
from skep.cli.shared.pages import Pages, by_offset
from skep.cli.shared.prompts import Yes, confirm
from skep.model.errors import BadRequest, NotFound, Refused

if TYPE_CHECKING:
    from skep.cli.admin.declared_queues import Declaration, ExistingQueue, QueueChange
    from skep.client import Client


@with_client
def apply(
    client: "Client",
    *,
    files: Annotated[
        list[str],
        typer.Option(
            "--file", "-f", help="A YAML file that declares queues; `-` is stdin. Repeat."
        ),
    ],
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete the queues that are not declared, too.")
    ] = False,
    namespace: Annotated[
        str | None, typer.Option(help="Prune only queues of this namespace.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="As --dry-run, and end with 1 if something differs.")
    ] = False,
    yes: Yes = False,
    output: Output = "table",
) -> None:
    """Make queues as a file declares them. Shows what would change, and asks.

    An option that the file leaves out gets its default. Queues that it does not name stay, unless
    --prune says otherwise.
    """
    if namespace is not None and not prune:
        raise BadRequest("--namespace says which queues to prune: it needs --prune")
    changes = list(_plan(client, _read(files), is_pruning=prune, namespace=namespace))
    _show(changes, output)
    if check and changes:
        raise Refused(f"the broker differs from what is declared: {summary_of(changes)}")
    if dry_run or check or not changes:
        return
    confirm(f"Do this: {summary_of(changes)}?", is_answered=yes)
    for change in changes:
        _carry_out(client, change)
    if output == "table":
        typer.echo("done")


def _read(files: Iterable[str]) -> "Declaration":
    from skep.cli.admin.declared_queues import merge_declarations, parse_declaration

    return merge_declarations([parse_declaration(_text_of(file), source=file) for file in files])


def _text_of(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file} is not UTF-8: {error}") from error


def _plan(
    client: "Client", declared: "Declaration", *, is_pruning: bool, namespace: str | None
) -> Iterator["QueueChange"]:
    from skep.cli.admin.declared_queues import QueueChange, differences

    yield from differences(declared, lambda queue: _look(client, queue))
    if is_pruning:
        for queue in _existing_names(client, namespace):
            if queue not in declared:
                yield QueueChange(queue, "delete")


def _look(client: "Client", queue: str) -> "ExistingQueue | None":
    from skep.cli.admin.declared_queues import ExistingQueue

    try:
        found = client.queues.describe(queue, partition_limit=1)
    except NotFound:
        return None
    return ExistingQueue(found["namespace"], found["task"], found["isPaused"], found["options"])


def _existing_names(client: "Client", namespace: str | None) -> list[str]:
    def fetch(rows: int, offset: int) -> Sequence[str]:
        page = client.queues.find(namespace=namespace, limit=rows, offset=offset)
        return [queue.name for queue in page.queues]

    # All of them before the first is deleted: pages by offset would skip some otherwise.
    return [name for page in Pages(by_offset(fetch), limit=None) for name in page]


def _show(changes: "Sequence[QueueChange]", output: Format) -> None:
    if output != "table":
        rows = [
            {
                "queue": change.queue,
                "action": change.action,
                "members": [member._asdict() for member in change.members],
            }
            for change in changes
        ]
        print_rows(rows, ("queue", "action", "members"), output)
    elif not changes:
        typer.echo("nothing differs")
    else:
        from rich.console import Console

        Console(highlight=False, soft_wrap=True).print(render_diff(changes), end="")


def _carry_out(client: "Client", change: "QueueChange") -> None:
    if change.action == "delete":
        client.queues.delete(change.queue)
        return
    # Only what differs, so that what others change meanwhile stays.
    client.queues.configure(
        change.queue,
        namespace=change.value_of("namespace"),
        task=change.value_of("task"),
        **change.options(),
    )
    is_paused = change.value_of("paused")
    if is_paused is not None:
        (client.queues.pause if is_paused else client.queues.resume)(change.queue)
