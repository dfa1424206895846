"""What `skep jobs` does with all that match a filter: count, ask, work them off, say how it went.

Nothing is changed before the number is on the screen and somebody agreed to it, or said `--yes`.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias
from uuid import UUID

import typer

from skep.cli.shared.prompts import confirm
from skep.model.errors import BadRequest

if TYPE_CHECKING:
    from skep.jobs import ChainFilter
    from skep.jobs.client.bulk import Matches, Sweep, Told

All: TypeAlias = Annotated[
    bool, typer.Option("--all", help="All that match the options, instead of ids.")
]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Only say how many match; with --all.")
]
OnlyKey: TypeAlias = Annotated[
    str | None, typer.Option("--key", help="Only chains started with this key; with --all.")
]
MatchingType: TypeAlias = Annotated[
    str | None, typer.Option("--type", help="Only jobs of this name; with --all.")
]
OnlyEnded: TypeAlias = Annotated[
    Literal["failed", "cancelled"], typer.Option("--state", help="Which chains; with --all.")
]
OnlyState: TypeAlias = Annotated[
    Literal["open", "completed", "failed", "cancelled"] | None,
    typer.Option("--state", help="Only chains in this state; with --all."),
]

_WORDS: Final = {
    "unavailable": "others hold it, or it has changed meanwhile",
    "needed": "a job of another chain needs it",
    "key_taken": "another chain has its key now",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """Which chains a command is about: those that are named, or all that match."""

    ids: Sequence[UUID]
    is_all: bool
    type: str | None = None
    state: Literal["open", "completed", "failed", "cancelled"] | None = None
    key: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def check(self, *, dry_run: bool) -> None:
        """Refuse what says both, or neither.

        Raises:
            BadRequest: It does.
        """
        if self.is_all and self.ids:
            raise BadRequest("name ids, or say --all with a filter; not both")
        if not self.is_all and not self.ids:
            raise BadRequest("name at least one id, or say --all with a filter")
        filters = (self.type, self.key, self.since, self.until)
        if not self.is_all and (dry_run or any(each is not None for each in filters)):
            raise BadRequest("filters and --dry-run go with --all")

    def chains(self) -> "ChainFilter":
        """Return the filter."""
        from skep.jobs import ChainFilter

        return ChainFilter(
            type=self.type,
            state=self.state,
            key=self.key,
            created_from=self.since,
            created_to=self.until,
        )


async def sweep_matching(
    question: str,
    matches: "Matches",
    work: "Callable[[Told], Awaitable[Sweep]]",
    *,
    yes: bool,
    dry_run: bool,
) -> None:
    """Say how many match, ask, work them off with a bar, and say what became of them.

    Args:
        question: What is asked, with `{}` where the number belongs.
        matches: How many there are.
        work: Works them off, and tells how far it got.
        yes: Whether the answer was given beforehand.
        dry_run: Whether to stop at the number.

    Raises:
        BadRequest: Nobody can be asked.
    """
    number = f"{matches.count:,}" if matches.is_exact else f"more than {matches.count:,}"
    if dry_run or not matches.count:
        typer.echo(f"{number} match")
        return
    confirm(question.format(number), is_answered=yes)
    _print(await _watched(matches, work))


async def _watched(matches: "Matches", work: "Callable[[Told], Awaitable[Sweep]]") -> "Sweep":
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("working", total=matches.count if matches.is_exact else None)
        return await work(lambda sweep: progress.update(bar, completed=sweep.seen))


def _print(sweep: "Sweep") -> None:
    typer.echo(f"{sweep.done:,} done")
    for reason, count in sweep.refused.items():
        said = _WORDS.get(reason, f"it is {reason}")
        examples = [str(each.id) for each in sweep.examples if each.reason == reason][:3]
        typer.echo(f"{count:,} refused: {said}, such as {', '.join(examples) or '(others)'}")
