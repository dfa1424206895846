"""`skep dlq`: look at dead letters, put them back, delete them."""

import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from skep.cli.shared.completion import complete_queue
from skep.cli.shared.connection import with_client
from skep.cli.shared.output import Output, print_record
from skep.cli.shared.pages import Everything, Limit, Offset, Pages, by_offset, print_pages
from skep.cli.shared.prompts import Yes, confirm
from skep.cli.shared.times import Since, Until
from skep.model.errors import BadRequest, Refused

if TYPE_CHECKING:
    from skep.client import Client
    from skep.client.values import Redrive

dlq_app: Final = typer.Typer(
    name="dlq", help="Look at dead letters, put them back, delete them.", no_args_is_help=True
)

LOOK_S: Final = 0.2
"""How often a redrive is asked how far it got."""

OnlyQueue: TypeAlias = Annotated[
    str | None, typer.Option("--queue", help="Only of this queue.", autocompletion=complete_queue)
]
OnlyPartition: TypeAlias = Annotated[
    str | None, typer.Option("--partition", help="Only of this partition; needs --queue.")
]
OnlyGroup: TypeAlias = Annotated[
    str | None, typer.Option("--group", help="Only what this group gave up on.")
]
ErrorText: TypeAlias = Annotated[
    str | None, typer.Option("--error", help="Only where the error contains this.")
]
AllLetters: TypeAlias = Annotated[
    bool, typer.Option("--all", help="All dead letters, if nothing limits them.")
]
LetterIds: TypeAlias = Annotated[
    list[int] | None, typer.Argument(help="Ids of dead letters.", metavar="[ID]...")
]

_COLUMNS: Final = (
    "dlqId",
    "failedAt",
    "queue",
    "partition",
    "consumerGroup",
    "attempts",
    "errorMessage",
    "transactionId",
)
_REDRIVE_COLUMNS: Final = ("id", "state", "total", "moved", "duplicates", "createdAt", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which dead letters."""

    queue: str | None
    partition: str | None
    group: str | None
    error: str | None
    since: datetime | None
    until: datetime | None

    @property
    def is_everything(self) -> bool:
        """Whether nothing limits it."""
        return self.members() == {}

    def members(self) -> dict[str, Any]:
        """Return it by the names of the wire."""
        given = {
            "queue": self.queue,
            "partition": self.partition,
            "consumerGroup": self.group,
            "error": self.error,
            "from": self.since,
            "to": self.until,
        }
        return {name: value for name, value in given.items() if value is not None}

    def spelled(self) -> str:
        """Return it in words."""
        return ", ".join(f"{name} {value}" for name, value in self.members().items())


@dlq_app.command("list")
@with_client
def list_letters(
    client: "Client",
    *,
    queue: OnlyQueue = None,
    partition: OnlyPartition = None,
    group: OnlyGroup = None,
    error: ErrorText = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 100,
    offset: Offset = 0,
    everything: Everything = False,
    output: Output = "table",
) -> None:
    """List dead letters, the newest failure first."""

    def fetch(rows: int, start: int) -> Any:
        page = client.dead_letters.find(
            queue=queue,
            partition=partition,
            group=group,
            error=error,
            since=since,
            until=until,
            limit=rows,
            offset=start,
        )
        return page.messages

    pages = Pages(by_offset(fetch), limit=None if everything else limit, start=str(offset))
    print_pages(pages, _COLUMNS, output, what="dead letter matches")


@dlq_app.command("show")
@with_client
def show_letter(
    client: "Client",
    letter: Annotated[int, typer.Argument(help="The id of a dead letter.", metavar="ID")],
    *,
    output: Output = "table",
) -> None:
    """Show a dead letter, or what became of one that was put back."""
    print_record(client.request("GET", f"/api/v1/dlq/{letter}"), output)


@dlq_app.command("redrive")
@with_client
def redrive(
    client: "Client",
    letters: LetterIds = None,
    *,
    queue: OnlyQueue = None,
    partition: OnlyPartition = None,
    group: OnlyGroup = None,
    error: ErrorText = None,
    since: Since = None,
    until: Until = None,
    every: AllLetters = False,
    limit: Annotated[int | None, typer.Option(min=1, help="So many at most.")] = None,
    to_queue: Annotated[
        str | None, typer.Option(help="To this queue; by default to where they came from.")
    ] = None,
    to_partition: Annotated[
        str | None, typer.Option(help="To this partition; by default to the same one, by name.")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Print its id and do not wait for its end.")
    ] = False,
    yes: Yes = False,
    output: Output = "table",
) -> None:
    """Push dead letters again: those named, those that match, or all.

    It goes on in the broker if this command is interrupted.
    """
    which = Filter(
        queue=queue, partition=partition, group=group, error=error, since=since, until=until
    )
    _require_choice(which, letters, is_all=every)
    if not letters:
        count = _count(client, which)
        confirm(f"Push the messages of {count} dead letters again?", is_answered=yes)
    target = {"queue": to_queue, "partition": to_partition}
    started = _start_redrive(client, which, letters, limit, target)
    print_record(started if detach else _watch(client, started), output)


@dlq_app.command("redrives")
@with_client
def list_redrives(
    client: "Client",
    *,
    limit: Limit = 20,
    offset: Offset = 0,
    everything: Everything = False,
    output: Output = "table",
) -> None:
    """List redrives, the newest first."""

    def fetch(rows: int, start: int) -> Any:
        return client.request("GET", _path("dlq/redrive", limit=rows, offset=start))["redrives"]

    pages = Pages(by_offset(fetch), limit=None if everything else limit, start=str(offset))
    print_pages(pages, _REDRIVE_COLUMNS, output, what="redrive was started")


@dlq_app.command("cancel")
@with_client
def cancel_redrive(
    client: "Client",
    redrive_id: Annotated[str, typer.Argument(help="The id of a redrive.", metavar="ID")],
    *,
    output: Output = "table",
) -> None:
    """End a redrive; what was moved stays moved."""
    print_record(client.dead_letters.cancel_redrive(redrive_id), output)


@dlq_app.command("delete")
@with_client
def delete_letters(
    client: "Client",
    letters: LetterIds = None,
    *,
    queue: OnlyQueue = None,
    partition: OnlyPartition = None,
    group: OnlyGroup = None,
    error: ErrorText = None,
    since: Since = None,
    until: Until = None,
    every: AllLetters = False,
    yes: Yes = False,
) -> None:
    """Delete dead letters: those named, those that match, or all. The messages stay elsewhere."""
    which = Filter(
        queue=queue, partition=partition, group=group, error=error, since=since, until=until
    )
    _require_choice(which, letters, is_all=every)
    count = f"{len(letters):,}" if letters else _count(client, which)
    confirm(f"Delete {count} dead letters?", is_answered=yes)
    if letters:
        for letter in letters:
            client.dead_letters.delete(letter)
        deleted = len(letters)
    else:
        query = {**which.members(), **({"all": True} if which.is_everything else {})}
        deleted = client.request("DELETE", _path("dlq", **query))["deleted"]
    typer.echo(f"{deleted:,} dead letters deleted")


def _require_choice(which: Filter, letters: list[int] | None, *, is_all: bool) -> None:
    if letters and not which.is_everything:
        raise BadRequest("name dead letters by their ids or by what they have in common, not both")
    if not letters and which.is_everything and not is_all:
        raise BadRequest("which dead letters? Name ids, a filter as --queue, or --all")


def _count(client: "Client", which: Filter) -> str:
    """Return how many letters match, as a person is told before something happens to them."""
    page = client.request("GET", _path("dlq", **which.members(), limit=1))
    about = "more than " if page["totalIsEstimate"] else ""
    limits = f" ({which.spelled()})" if not which.is_everything else ""
    return f"{about}{page['total']:,}{limits}"


def _start_redrive(
    client: "Client",
    which: Filter,
    letters: list[int] | None,
    limit: int | None,
    target: dict[str, str | None],
) -> "Redrive":
    from uuid import uuid4

    import msgspec

    from skep.client.values import Redrive

    members = {
        **which.members(),
        "ids": letters or None,
        "limit": limit,
        "target": {name: value for name, value in target.items() if value is not None} or None,
        # Ours, so that a request repeated after a lost answer starts nothing new.
        "id": str(uuid4()),
    }
    body = {name: value for name, value in members.items() if value is not None}
    return msgspec.convert(client.request("POST", "/api/v1/dlq/redrive", body), Redrive)


def _watch(client: "Client", started: "Redrive") -> "Redrive":
    """Show how a redrive comes along until it ends.

    Raises:
        Refused: It failed.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(f"redrive {started.id}", total=started.total)
        now = started
        while now.state == "running":
            time.sleep(LOOK_S)
            now = client.dead_letters.show_redrive(started.id)
            progress.update(bar, completed=now.moved + now.duplicates)
    if now.state == "failed":
        raise Refused(f"redrive {now.id} failed after {now.moved:,} messages: {now.error}")
    return now


def _path(first: str, **query: object) -> str:
    from skep.client.endpoints import path_of

    return path_of(first, **query)
