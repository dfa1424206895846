"""The commands of `skep jobs` that change chains and jobs: named ones, or all that match a filter.

With `--all`, nothing changes before the number of matches is shown and confirmed.
"""

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from uuid import UUID

import typer
from typer import Argument, Option

from skep.cli.jobs.database import with_jobs, with_jobs_flags, work_on_jobs
from skep.cli.jobs.lists import ChainState, jobs_app
from skep.cli.shared.options import DatabaseFlags, Since, Until, Yes, confirm, declare_options
from skep.cli.shared.output import progress_bar
from skep.model.errors import BadRequest

if TYPE_CHECKING:
    from skep.jobs import ChainFilter, JobClient, JobFilter
    from skep.jobs.client.bulk import Sweep

JobName = Annotated[str, Argument(help="Job name, as workers declare it.")]
ScheduleName = Annotated[str, Argument(help="Schedule name.")]
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
OnlyState = Annotated[ChainState | None, Option("--state", help="Only this state; with --all.")]
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
    state: ChainState | None = None
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

    @property
    def named(self) -> Sequence[UUID]:
        """The ids, if there are any."""
        return self.ids or ()

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

    The filters are types of options by the fields of a choice; `state` is the default of that one.
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
    which: "ChainFilter | JobFilter",
    change: "Callable[[JobClient], Awaitable[str]]",
    sweep: "Callable[[JobClient], Callable[..., Awaitable[Sweep]]]",
    *,
    asks: bool = True,
) -> None:
    """Change what was named, or count, ask and change all that match.

    The question has `{}` for the number. Named ones are changed without a question unless `asks`.
    """
    from rich.progress import Progress

    async def work(client: "JobClient") -> None:
        if not choice.is_all:
            typer.echo(await change(client))
            return
        matches = await client.bulk.count(which)
        number = f"{matches.count:,}" if matches.is_exact else f"more than {matches.count:,}"
        if choice.dry_run or not matches.count:
            typer.echo(f"{number} match")
            return
        confirm(question.format(number), is_answered=choice.yes)
        with progress_bar(*Progress.get_default_columns()) as progress:
            bar = progress.add_task("working", total=matches.count if matches.is_exact else None)

            def show(so_far: "Sweep") -> None:
                progress.update(bar, completed=so_far.seen)

            done = await sweep(client)(which, told=show)
        _print(done)

    if asks and not choice.is_all:
        confirm(question.format(len(choice.named)), is_answered=choice.yes)
    work_on_jobs(flags, work)


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

    async def change(client: "JobClient") -> str:
        states = await client.cancel(*choice.named, cascade=cascade, reason=reason)
        return "\n".join(f"{chain_id} {state}" for chain_id, state in states.items())

    _change(
        flags,
        choice,
        "Cancel {} chains?",
        choice.chains(),
        change,
        lambda client: partial(client.bulk.cancel, cascade=cascade, reason=reason),
    )


@jobs_app.command("retry")
@with_choice(ChainIds, {**CHAIN_FILTERS, "state": OnlyEnded}, state="failed")
def retry(flags: DatabaseFlags, choice: Choice) -> None:
    """Resume failed and cancelled chains where they ended."""

    async def change(client: "JobClient") -> str:
        await client.retry(*choice.named)
        return f"Resumed {len(choice.named)} chains"

    which = choice.chains()
    _change(flags, choice, "Resume {} chains?", which, change, lambda c: c.bulk.retry, asks=False)


@jobs_app.command("trigger")
@with_choice(JobIds, {"type": OnlyType, "since": Since, "until": Until})
def trigger(flags: DatabaseFlags, choice: Choice) -> None:
    """Run scheduled jobs now; with --all, those that match."""
    from skep.jobs import JobFilter

    async def change(client: "JobClient") -> str:
        await client.trigger(*choice.named)
        return f"Triggered {len(choice.named)} jobs"

    which = JobFilter(
        type=choice.type,
        state="scheduled",
        created_from=choice.since,
        created_to=choice.until,
    )
    _change(flags, choice, "Run {} jobs now?", which, change, lambda c: c.bulk.trigger, asks=False)


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


@jobs_app.command("pause-schedule")
@with_jobs
async def pause_schedule(client: "JobClient", name: ScheduleName) -> None:
    """Pause a schedule; deployments do not resume it."""
    from skep.jobs import Scheduler

    await Scheduler(client.slots).pause(name)
    typer.echo(f"Paused schedule {name}")


@jobs_app.command("resume-schedule")
@with_jobs
async def resume_schedule(client: "JobClient", name: ScheduleName) -> None:
    """Resume a paused schedule with its next tick."""
    from skep.jobs import Scheduler

    await Scheduler(client.slots).resume(name)
    typer.echo(f"Resumed schedule {name}")


@jobs_app.command("delete")
@with_choice(ChainIds, {**CHAIN_FILTERS, "state": OnlyState})
def delete(
    flags: DatabaseFlags,
    choice: Choice,
    *,
    cascade: Annotated[
        bool,
        Option(
            "--cascade",
            help="Also delete the chains that waited for them, and those that these waited for.",
        ),
    ] = False,
) -> None:
    """Delete chains with their jobs."""
    if choice.is_all and cascade:
        raise BadRequest("--cascade requires ids: --all deletes only what matches")

    async def change(client: "JobClient") -> str:
        deleted = await client.delete(*choice.named, cascade=cascade)
        return f"Deleted {len(deleted)} chains"

    _change(flags, choice, "Delete {} chains?", choice.chains(), change, lambda c: c.bulk.delete)


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
