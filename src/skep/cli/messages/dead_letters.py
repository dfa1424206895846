"""`skep dlq`: list, redrive and delete dead letters."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer import Argument, Option

from skep.cli.shared.connection import OnlyQueue, with_client
from skep.cli.shared.declare import listing
from skep.cli.shared.help import Commands
from skep.cli.shared.options import Since, Until, Yes, confirm, declare_options
from skep.cli.shared.output import Output, print_record, progress_bar
from skep.model.errors import BadRequest, NotFound, Refused
from skep.model.plurals import counted

if TYPE_CHECKING:
    from skep.client import Client
    from skep.client.values import Redrive

dlq_app: Final = Commands("dlq", "List, redrive and delete dead letters.")

POLL_S: Final = 0.2
"""How often a running redrive is polled."""

OnlyPartition = Annotated[
    str | None, Option("--partition", help="Only this partition; requires --queue.")
]
OnlyGroup = Annotated[str | None, Option("--group", help="Only this consumer group.")]
ErrorText = Annotated[str | None, Option("--error", help="Only errors that contain this.")]
AllLetters = Annotated[bool, Option("--all", help="All dead letters, without a filter.")]
LetterIds = Annotated[list[int] | None, Argument(help="Dead letter ids.", metavar="[ID]...")]

_COLUMNS: Final = (
    *("dlqId as id", "failedAt", "queue", "partition", "consumerGroup as group", "attempts"),
    *("errorMessage as error", "transactionId"),
)
_REDRIVE_COLUMNS: Final = (
    *("id", "state", "total", "moved", "duplicates", "createdAt as started", "error"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which dead letters a command is about."""

    queue: str | None
    partition: str | None
    group: str | None
    error: str | None
    since: datetime | None
    until: datetime | None

    @property
    def is_everything(self) -> bool:
        """Whether it has no conditions."""
        return self.members() == {}

    def members(self) -> dict[str, Any]:
        """Return the conditions by their names on the wire."""
        given = {
            "queue": self.queue,
            "partition": self.partition,
            "consumerGroup": self.group,
            "error": self.error,
            "from": self.since,
            "to": self.until,
        }
        return {name: value for name, value in given.items() if value is not None}

    def check(self, letters: list[int] | None, *, is_all: bool) -> None:
        """Require ids, a filter or `--all`."""
        if letters and not self.is_everything:
            raise BadRequest("pass ids or a filter, not both")
        if not letters and self.is_everything and not is_all:
            raise BadRequest("pass ids, a filter such as --queue, or --all")


def with_filter(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a filter, which the command gets as its argument `which`."""
    options = {
        "queue": OnlyQueue,
        "partition": OnlyPartition,
        "group": OnlyGroup,
        "error": ErrorText,
        "since": Since,
        "until": Until,
    }

    def run(*args: Any, **arguments: Any) -> Any:
        which = Filter(**{name: arguments.pop(name) for name in options})
        return command(*args, which=which, **arguments)

    declare_options(run, command, options, hidden=("which",))
    return run


@dlq_app.command("list")
@listing(_COLUMNS, empty="no dead letter matches")
@with_filter
def list_letters(client: "Client", limit: int, offset: int, which: Filter) -> Any:
    """List dead letters, newest failure first."""
    return client.dead_letters.find(**asdict(which), limit=limit, offset=offset).messages


@dlq_app.command("show")
@with_client
def show_letter(
    client: "Client",
    letter: Annotated[int, Argument(help="Dead letter id.", metavar="ID")],
    *,
    output: Output = "table",
) -> None:
    """Show a dead letter, or the outcome of a redriven one."""
    found = client.request("GET", f"/api/v1/dlq/{letter}")
    if output == "table":
        found = {"id": found.pop("dlqId"), "messageId": found.pop("id"), **found}
    print_record(found, output)


@dlq_app.command("redrive")
@with_client
@with_filter
def redrive(
    client: "Client",
    letters: LetterIds = None,
    *,
    which: Filter,
    every: AllLetters = False,
    limit: Annotated[int | None, Option(min=1, help="Maximum number of messages.")] = None,
    to_queue: Annotated[str | None, Option(help="Target queue; default: the original.")] = None,
    to_partition: Annotated[
        str | None, Option(help="Target partition; default: the original, by name.")
    ] = None,
    all_groups: Annotated[
        bool, Option("--all-groups", help="Deliver to all groups, not only to the one that failed.")
    ] = False,
    again: Annotated[
        bool, Option("--again", help="Push ids that were redriven already once more.")
    ] = False,
    detach: Annotated[bool, Option("--detach", help="Print the id; do not wait.")] = False,
    yes: Yes = False,
    output: Output = "table",
) -> None:
    """Push dead letters again, to the group that failed.

    Takes ids, a filter, or --all. The broker continues if this command is interrupted.
    """
    which.check(letters, is_all=every)
    if not letters:
        confirm(f"Redrive {_count(client, which)}?", is_answered=yes)
    started = client.dead_letters.redrive(
        **asdict(which),
        ids=letters or None,
        target_queue=to_queue,
        target_partition=to_partition,
        groups="all" if all_groups else None,
        limit=limit,
        again=again or None,
    )
    ended = started if detach else _watch(client, started)
    if letters and not detach and not ended.total:
        named = ", ".join(map(str, letters))
        raise NotFound(f"no such dead letter: {named}; `skep dlq list` shows them")
    print_record(ended, output)


@dlq_app.command("redrives")
@listing(_REDRIVE_COLUMNS, empty="no redrive was started", limit=20)
def list_redrives(client: "Client", limit: int, offset: int) -> Any:
    """List redrives, newest first."""
    return client.request("GET", _path("dlq/redrive", limit=limit, offset=offset))["redrives"]


@dlq_app.command("cancel")
@with_client
def cancel_redrive(
    client: "Client",
    redrive_id: Annotated[str, Argument(help="Redrive id.", metavar="ID")],
    *,
    output: Output = "table",
) -> None:
    """Cancel a redrive; moved messages stay moved."""
    print_record(client.dead_letters.cancel_redrive(redrive_id), output)


@dlq_app.command("delete")
@with_client
@with_filter
def delete_letters(
    client: "Client",
    letters: LetterIds = None,
    *,
    which: Filter,
    every: AllLetters = False,
    yes: Yes = False,
) -> None:
    """Delete dead letters: by id, by filter, or all. Other groups keep the messages."""
    which.check(letters, is_all=every)
    count = counted(len(letters), "dead letter") if letters else _count(client, which)
    confirm(f"Delete {count}?", is_answered=yes)
    if letters:
        for letter in letters:
            client.dead_letters.delete(letter)
        deleted = len(letters)
    else:
        query = {**which.members(), **({"all": True} if which.is_everything else {})}
        deleted = client.request("DELETE", _path("dlq", **query))["deleted"]
    typer.echo(f"Deleted {counted(deleted, 'dead letter')}")


def _count(client: "Client", which: Filter) -> str:
    """Return how many dead letters match, with the conditions."""
    page = client.request("GET", _path("dlq", **which.members(), limit=1))
    about = "more than " if page["totalIsEstimate"] else ""
    conditions = ", ".join(f"{name} {value}" for name, value in which.members().items())
    letters = counted(page["total"], "dead letter")
    return f"{about}{letters}{f' ({conditions})' if conditions else ''}"


def _watch(client: "Client", started: "Redrive") -> "Redrive":
    from rich.progress import Progress

    with progress_bar(*Progress.get_default_columns()) as progress:
        bar = progress.add_task(f"redrive {started.id}", total=started.total)
        now = started
        while now.state == "running":
            time.sleep(POLL_S)
            now = client.dead_letters.show_redrive(started.id)
            progress.update(bar, completed=now.moved + now.duplicates)
    if now.state == "failed":
        raise Refused(f"redrive {now.id} failed after {counted(now.moved, 'message')}: {now.error}")
    return now


def _path(first: str, **query: object) -> str:
    from skep.client.endpoints import path_of

    return path_of(first, **query)
