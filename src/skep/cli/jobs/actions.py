"""The commands of `skep jobs` that change chains and jobs: named ones, or all that match a filter.

With `--all`, nothing changes before the number of matches is shown and confirmed.
"""

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from uuid import UUID

import typer
from typer import Argument, Option

from skep.cli.jobs.database import with_jobs, with_jobs_flags, work_on_jobs
from skep.cli.jobs.lists import jobs_app
from skep.cli.shared.options import DatabaseFlags, Since, Until, Yes, confirm, declare_options
from skep.cli.shared.output import progress_bar
from skep.model.errors import BadRequest

if TYPE_CHECKING:
    from skep.jobs import ChainFilter, JobClient
    from skep.jobs.client.bulk import Matches, Sweep, Told

JobName = Annotated[str, Argument(help="Job name, as workers declare it.")]
ChainIds = Annotated[list[UUID] | None, Argument(help="Chain ids.", metavar="ID")]
JobIds = Annotated[list[UUID] | None, Argument(help="Job ids.", metavar="ID")]
All = Annotated[bool, Option("--all", help="All that match the filter, instead of ids.")]
DryRun = Annotated[bool, Option("--dry-run", help="Only count the matches; with --all.")]
OnlyType = Annotated[str | None, Option("--type", help="Only jobs of this name; with --all.")]
OnlyKey = Annotated[
    str | None, Option("--key", help="Only chains started with this key; with --all.")
]
OnlyEnded = Annotated[
    Literal["failed", "cancelled"], Option("--state", help="Only this state; with --all.")
]
OnlyState = Annotated[
    Literal["open", "completed", "failed", "cancelled"] | None,
    Option("--state", help="Only this state; with --all."),
]
CHAIN_FILTERS: Final[Mapping[str, Any]] = {
    "type": OnlyType,
    "key": OnlyKey,
    "since": Since,
    "until": Until,
}

_REASONS: Final = {
    "unavailable": "locked, or changed meanwhile",
    "needed": "a job of another chain needs it",
    "key_taken": "another chain has its key now",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which chains or jobs to change: named ones, or all that match."""

    ids: Sequence[UUID] | None
    is_all: bool
    dry_run: bool
    yes: bool
    type: str | None = None
    state: Literal["open", "completed", "failed", "cancelled"] | None = None
    key: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def check(self) -> None:
        """Require either ids or `--all`."""
        if self.is_all and self.ids:
            raise BadRequest("pass ids, or --all with a filter; not both")
        if not self.is_all and not self.ids:
            raise BadRequest("pass at least one id, or --all with a filter")
        filters = (self.type, self.key, self.since, self.until)
        if not self.is_all and (self.dry_run or any(each is not None for each in filters)):
            raise BadRequest("filters and --dry-run require --all")

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


def with_choice(
    ids: Any, filters: Mapping[str, Any], *, state: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add ids, filters and `--yes` to a command, which gets a `Choice` as its second argument.

    Args:
        ids: The type of the ids.
        filters: Types of options by the fields of a choice.
        state: The default of the state.
    """
    options = {"ids": ids, "is_all": All, **filters, "dry_run": DryRun, "yes": Yes}
    defaults = {"is_all": False, "dry_run": False, "yes": False, "state": state}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run(flags: DatabaseFlags, **arguments: Any) -> None:
            given: dict[str, Any] = {"state": state}
            given |= {name: arguments.pop(name) for name in options}
            choice = Choice(**given)
            choice.check()
            command(flags, choice, **arguments)

        declare_options(run, command, options, defaults=defaults, hidden=("choice",))
        return with_jobs_flags(run)

    return decorate


def _change(
    flags: DatabaseFlags,
    choice: Choice,
    question: str,
    change: "Callable[[JobClient], Awaitable[None]]",
    count: "Callable[[JobClient], Awaitable[Matches]]",
    sweep: "Callable[[JobClient, Told], Awaitable[Sweep]]",
    *,
    asks: bool = True,
) -> None:
    """Change what was named, or count, ask and change all that match.

    The question has `{}` for the number. Named ones are changed without a question unless `asks`.
    """

    async def work(client: "JobClient") -> None:
        if not choice.is_all:
            await change(client)
            return
        matches = await count(client)
        number = f"{matches.count:,}" if matches.is_exact else f"more than {matches.count:,}"
        if choice.dry_run or not matches.count:
            typer.echo(f"{number} match")
            return
        confirm(question.format(number), is_answered=choice.yes)
        _print(await _watched(client, matches, sweep))

    if asks and not choice.is_all:
        confirm(question.format(len(choice.ids or ())), is_answered=choice.yes)
    work_on_jobs(flags, work)


async def _watched(
    client: "JobClient",
    matches: "Matches",
    sweep: "Callable[[JobClient, Told], Awaitable[Sweep]]",
) -> "Sweep":
    from rich.progress import Progress

    with progress_bar(*Progress.get_default_columns()) as progress:
        bar = progress.add_task("working", total=matches.count if matches.is_exact else None)
        return await sweep(client, lambda state: progress.update(bar, completed=state.seen))


def _print(sweep: "Sweep") -> None:
    typer.echo(f"{sweep.done:,} done")
    for reason, count in sweep.refused.items():
        said = _REASONS.get(reason, f"it is {reason}")
        examples = [str(each.id) for each in sweep.examples if each.reason == reason][:3]
        typer.echo(f"{count:,} refused: {said}, such as {', '.join(examples) or '(others)'}")


@jobs_app.command("start")
@with_jobs_flags
def start(
    flags: DatabaseFlags,
    job: JobName,
    value: Annotated[
        str, Argument(metavar="[INPUT]", help="Input as JSON; `-` reads it from stdin.")
    ] = "null",
    *,
    key: Annotated[
        str | None, Option(help="Idempotency key: reuse an open chain with this key.")
    ] = None,
    delay: Annotated[float, Option(min=0, help="Start after (seconds).")] = 0.0,
    priority: Annotated[int, Option(help="Priority; smaller runs first.")] = 0,
    wait: Annotated[float | None, Option(min=0, help="Seconds to wait for the result.")] = None,
) -> None:
    """Start a chain; print its id, or with --wait its result."""
    import msgspec

    from skep.jobs import Job, Start

    text = sys.stdin.read() if value == "-" else value
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadRequest(f"the input is not JSON: {error}") from error

    async def work(client: "JobClient") -> None:
        declared: Job[Any, Any] = Job(job, msgspec.Raw, msgspec.Raw)
        request = Start(
            declared,
            msgspec.Raw(text.encode()),
            key=key,
            after=timedelta(seconds=delay),
            priority=priority,
        )
        (chain,) = await client.start_many([request])
        if wait is None:
            typer.echo(f"{chain.id}{' (already started)' if chain.is_duplicate else ''}")
        else:
            typer.echo(bytes(await chain.result(timeout=wait)).decode())

    work_on_jobs(flags, work)


@jobs_app.command("cancel")
@with_choice(ChainIds, CHAIN_FILTERS, state="open")
def cancel(
    flags: DatabaseFlags,
    choice: Choice,
    *,
    cascade: Annotated[
        bool, Option("--cascade", help="Also cancel chains that wait for them.")
    ] = False,
    reason: Annotated[str | None, Option(help="Reason, stored with the chain.")] = None,
) -> None:
    """Cancel chains; with --all, the open ones that match."""
    which = choice.chains()

    async def change(client: "JobClient") -> None:
        states = await client.cancel(*(choice.ids or ()), cascade=cascade, reason=reason)
        for chain_id, state in states.items():
            typer.echo(f"{chain_id} {state}")

    _change(
        flags,
        choice,
        "Cancel {} chains?",
        change,
        lambda client: client.bulk.count_chains(which),
        lambda client, told: client.bulk.cancel(which, cascade=cascade, reason=reason, told=told),
    )


@jobs_app.command("retry")
@with_choice(ChainIds, {**CHAIN_FILTERS, "state": OnlyEnded}, state="failed")
def retry(flags: DatabaseFlags, choice: Choice) -> None:
    """Resume failed and cancelled chains where they ended."""
    which = choice.chains()

    async def change(client: "JobClient") -> None:
        await client.retry(*(choice.ids or ()))
        typer.echo(f"Resumed {len(choice.ids or ())} chains")

    _change(
        flags,
        choice,
        "Resume {} chains?",
        change,
        lambda client: client.bulk.count_chains(which),
        lambda client, told: client.bulk.retry(which, told=told),
        asks=False,
    )


@jobs_app.command("trigger")
@with_choice(JobIds, {"type": OnlyType})
def trigger(flags: DatabaseFlags, choice: Choice) -> None:
    """Run scheduled jobs now; with --all, those that match."""
    from skep.jobs import JobFilter

    which = JobFilter(type=choice.type, state="scheduled")

    async def change(client: "JobClient") -> None:
        await client.trigger(*(choice.ids or ()))
        typer.echo(f"Triggered {len(choice.ids or ())} jobs")

    _change(
        flags,
        choice,
        "Run {} jobs now?",
        change,
        lambda client: client.bulk.count_jobs(which),
        lambda client, told: client.bulk.trigger(which, told=told),
        asks=False,
    )


@jobs_app.command("pause")
@with_jobs
async def pause(client: "JobClient", job: JobName) -> None:
    """Start no more jobs of a name; running ones continue."""
    await client.pause(job)
    typer.echo(f"Paused job {job}")


@jobs_app.command("resume")
@with_jobs
async def resume(client: "JobClient", job: JobName) -> None:
    """Start jobs of a name again."""
    await client.resume(job)
    typer.echo(f"Resumed job {job}")


@jobs_app.command("delete")
@with_choice(ChainIds, {**CHAIN_FILTERS, "state": OnlyState})
def delete(
    flags: DatabaseFlags,
    choice: Choice,
    *,
    cascade: Annotated[
        bool, Option("--cascade", help="Also delete the chains that their jobs waited for.")
    ] = False,
) -> None:
    """Delete chains with their jobs; with --all, those that match."""
    if choice.is_all and cascade:
        raise BadRequest("--cascade requires ids: --all deletes only what matches")
    which = choice.chains()

    async def change(client: "JobClient") -> None:
        deleted = await client.delete(*(choice.ids or ()), cascade=cascade)
        typer.echo(f"Deleted {len(deleted)} chains")

    _change(
        flags,
        choice,
        "Delete {} chains?",
        change,
        lambda client: client.bulk.count_chains(which),
        lambda client, told: client.bulk.delete(which, told=told),
    )


@jobs_app.command("prune")
@with_jobs_flags
def prune(
    flags: DatabaseFlags,
    days: Annotated[float, Option(min=0, help="Only chains that ended this many days ago.")] = 30.0,
    *,
    yes: Yes = False,
) -> None:
    """Delete chains that ended long ago."""
    confirm(f"Delete all chains that ended more than {days:g} days ago?", is_answered=yes)
    before = datetime.now(UTC) - timedelta(days=days)

    async def work(client: "JobClient") -> None:
        typer.echo(f"Deleted {await client.prune(before)} chains")

    work_on_jobs(flags, work)
