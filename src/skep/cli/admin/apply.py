"""`skep apply`: create, change and delete queues as a file declares them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Option

from skep.cli.shared.connection import with_client
from skep.cli.shared.options import Yes, confirm, read_input
from skep.cli.shared.output import Format, Output, Pages, by_offset, print_rows, to_json
from skep.model.errors import BadRequest, NotFound, Refused
from skep.model.plurals import counted

if TYPE_CHECKING:
    from rich.text import Text

    from skep.cli.admin.declared_queues import (
        Declaration,
        ExistingQueue,
        MemberChange,
        QueueChange,
    )
    from skep.client import Client

_SIGNS: Final = {"create": ("+", "green"), "change": ("~", "yellow"), "delete": ("-", "red")}


@with_client
def apply(
    client: "Client",
    *,
    files: Annotated[
        list[str],
        Option("--file", "-f", help="YAML file that declares queues; `-` is stdin. Repeatable."),
    ],
    prune: Annotated[bool, Option("--prune", help="Delete queues that are not declared.")] = False,
    namespace: Annotated[str | None, Option(help="Prune only queues of this namespace.")] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show what would change; change nothing.")
    ] = False,
    check: Annotated[
        bool, Option("--check", help="As --dry-run; exit with 1 if anything differs.")
    ] = False,
    yes: Yes = False,
    output: Output = "table",
) -> None:
    """Make queues as a file declares them. Shows what would change, then asks.

    Options missing from the file get their defaults. Queues missing from it stay, unless --prune
    is passed.
    """
    if namespace is not None and not prune:
        raise BadRequest("--namespace requires --prune: it limits which queues are pruned")
    changes = list(_plan(client, _read(files), is_pruning=prune, namespace=namespace))
    _show(changes, output)
    if check and changes:
        raise Refused(f"the broker differs from the declaration: {_summary(changes)}")
    if dry_run or check or not changes:
        return
    confirm(f"Apply changes: {_summary(changes)}?", is_answered=yes)
    for change in changes:
        _carry_out(client, change)
    if output == "table":
        typer.echo(f"Applied {counted(len(changes), 'change')}")


def _read(files: Iterable[str]) -> "Declaration":
    from skep.cli.admin.declared_queues import merge_declarations, parse_declaration

    return merge_declarations([parse_declaration(_text_of(file), source=file) for file in files])


def _text_of(file: str) -> str:
    try:
        return read_input(file).decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file} is not UTF-8: {error}") from error


def _plan(
    client: "Client", declared: "Declaration", *, is_pruning: bool, namespace: str | None
) -> Iterator["QueueChange"]:
    from skep.cli.admin.declared_queues import QueueChange, differences

    yield from differences(declared, lambda queue: _find(client, queue))
    if is_pruning:
        for queue in _existing_names(client, namespace):
            if queue not in declared:
                yield QueueChange(queue, "delete")


def _find(client: "Client", queue: str) -> "ExistingQueue | None":
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

    # Read all before the first is deleted: pages by offset would skip some otherwise.
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
        typer.echo("No changes")
    else:
        from rich.console import Console

        Console(highlight=False, soft_wrap=True).print(_diff(changes), end="")


def _diff(changes: "Sequence[QueueChange]") -> "Text":
    """Return the changes as lines: `+` creates, `~` changes, `-` deletes."""
    from rich.text import Text

    shown = Text()
    for change in changes:
        sign, colour = _SIGNS[change.action]
        shown.append(f"{sign} {change.queue}\n", style=f"bold {colour}")
        for member in change.members:
            shown.append_text(_member_line(member, change.action))
    return shown


def _summary(changes: "Sequence[QueueChange]") -> str:
    counts = {action: sum(each.action == action for each in changes) for action in _SIGNS}
    return (
        f"{counts['create']} to create, {counts['change']} to change, {counts['delete']} to delete"
    )


def _member_line(member: "MemberChange", action: str) -> "Text":
    from rich.text import Text

    line = Text(f"    {member.name}: ")
    if action != "create":
        line.append(to_json(member.before), style="red")
    if action == "change":
        line.append(" → ")
    if action != "delete":
        line.append(to_json(member.after), style="green")
    return line.append("\n")


def _carry_out(client: "Client", change: "QueueChange") -> None:
    if change.action == "delete":
        client.queues.delete(change.queue)
        return
    # Only what differs, so that concurrent changes of other options stay.
    client.queues.configure(
        change.queue,
        namespace=change.value_of("namespace"),
        task=change.value_of("task"),
        **change.options(),
    )
    is_paused = change.value_of("paused")
    if is_paused is not None:
        (client.queues.pause if is_paused else client.queues.resume)(change.queue)
