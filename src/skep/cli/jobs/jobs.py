"""`skep jobs`: show chains and jobs, and change what becomes of them.

Speaks to the database that has them, as workers do: no broker needs to run.
"""

import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias
from uuid import UUID

import typer

from skep.cli.jobs.bulk import (
    All,
    Choice,
    DryRun,
    MatchingType,
    OnlyEnded,
    OnlyKey,
    OnlyState,
    sweep_matching,
)
from skep.cli.jobs.database import jobs_dsn, with_jobs_flags, work_on_jobs
from skep.cli.shared.options import DatabaseFlags
from skep.cli.shared.output import Format, Output, print_rows
from skep.cli.shared.prompts import Yes, confirm
from skep.cli.shared.times import Since, Until
from skep.model.errors import BadRequest

if TYPE_CHECKING:
    from skep.jobs import JobClient

jobs_app: Final = typer.Typer(
    name="jobs", help="Show job chains, and change what becomes of them.", no_args_is_help=True
)

Limit: TypeAlias = Annotated[int, typer.Option(min=1, max=1000, help="Rows at most.")]
After: TypeAlias = Annotated[
    UUID | None, typer.Option(help="Go on behind this id, the last of the page before.")
]
OnlyType: TypeAlias = Annotated[str | None, typer.Option("--type", help="Only jobs of this name.")]
Oldest: TypeAlias = Annotated[bool, typer.Option("--oldest", help="The oldest first.")]
ChainIds: TypeAlias = Annotated[
    list[UUID] | None, typer.Argument(help="Ids of chains.", metavar="ID")
]
JobIds: TypeAlias = Annotated[list[UUID] | None, typer.Argument(help="Ids of jobs.", metavar="ID")]


@jobs_app.command("start")
@with_jobs_flags
def start(
    flags: DatabaseFlags,
    job: Annotated[str, typer.Argument(help="The job's name, as workers declare it.")],
    value: Annotated[
        str, typer.Argument(metavar="[INPUT]", help="Its input as JSON; `-` reads it from stdin.")
    ] = "null",
    *,
    key: Annotated[
        str | None, typer.Option(help="Start none if an open chain has this key.")
    ] = None,
    delay: Annotated[float, typer.Option(min=0, help="Seconds until it is due.")] = 0.0,
    priority: Annotated[int, typer.Option(help="Smaller runs first.")] = 0,
    wait: Annotated[
        float | None, typer.Option(min=0, help="Seconds to wait for what the chain yields.")
    ] = None,
) -> None:
    """Start a chain; print its id, or with --wait what it yields."""
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
            typer.echo(f"{chain.id}{' (was there already)' if chain.is_duplicate else ''}")
        else:
            typer.echo(bytes(await chain.result(timeout=wait)).decode())

    work_on_jobs(flags, work)


@jobs_app.command("chains")
@with_jobs_flags
def list_chains(
    flags: DatabaseFlags,
    *,
    only_type: OnlyType = None,
    state: Annotated[
        Literal["open", "completed", "failed", "cancelled"] | None,
        typer.Option(help="Only chains in this state."),
    ] = None,
    key: Annotated[str | None, typer.Option(help="Only chains started with this key.")] = None,
    limit: Limit = 50,
    after: After = None,
    oldest: Oldest = False,
    output: Output = "table",
) -> None:
    """List chains, the newest first."""
    from skep.jobs import ChainFilter

    which = ChainFilter(type=only_type, state=state, key=key)

    async def work(client: "JobClient") -> None:
        page = await client.inspection.chains(
            which, limit=limit, after=after, descending=not oldest
        )
        columns = ("id", "type", "state", "created_at", "job_count", "last_job_type", "error")
        _print(page.items, columns, output)

    work_on_jobs(flags, work)


@jobs_app.command("list")
@with_jobs_flags
def list_jobs(
    flags: DatabaseFlags,
    *,
    only_type: OnlyType = None,
    state: Annotated[
        Literal[
            "blocked",
            "scheduled",
            "ready",
            "running",
            "completed",
            "continued",
            "failed",
            "cancelled",
        ]
        | None,
        typer.Option(help="Only jobs in this state."),
    ] = None,
    chain: Annotated[UUID | None, typer.Option(help="Only jobs of this chain.")] = None,
    limit: Limit = 50,
    after: After = None,
    oldest: Oldest = False,
    output: Output = "table",
) -> None:
    """List jobs, the newest first."""
    from skep.jobs import JobFilter

    which = JobFilter(type=only_type, state=state, chain_id=chain)

    async def work(client: "JobClient") -> None:
        page = await client.inspection.jobs(which, limit=limit, after=after, descending=not oldest)
        columns = ("id", "type", "state", "attempts", "due_at", "progress", "error")
        _print(page.items, columns, output)

    work_on_jobs(flags, work)


@jobs_app.command("attempts")
@with_jobs_flags
def list_attempts(
    flags: DatabaseFlags,
    job_id: Annotated[UUID, typer.Argument(help="The id of a job.")],
    *,
    output: Output = "table",
) -> None:
    """List the attempts of a job, with their errors."""

    async def work(client: "JobClient") -> None:
        attempts = await client.inspection.attempts(job_id)
        _print(attempts, ("attempt", "outcome", "started_at", "ended_at", "error"), output)

    work_on_jobs(flags, work)


@jobs_app.command("types")
@with_jobs_flags
def list_types(
    flags: DatabaseFlags,
    *,
    output: Output = "table",
) -> None:
    """Count the open jobs of each type. Very large numbers are estimates."""

    async def work(client: "JobClient") -> None:
        counts = await client.inspection.counts()
        columns = ("type", "ready", "scheduled", "blocked", "running", "oldest_ready_s", "is_exact")
        _print(counts, columns, output)

    work_on_jobs(flags, work)


@jobs_app.command("workers")
@with_jobs_flags
def list_workers(
    flags: DatabaseFlags,
    *,
    limit: Limit = 50,
    output: Output = "table",
) -> None:
    """List the workers, and how many jobs each runs."""

    async def work(client: "JobClient") -> None:
        page = await client.inspection.workers(limit=limit)
        _print(page.items, ("id", "name", "running", "enrolled_at", "is_late"), output)

    work_on_jobs(flags, work)


@jobs_app.command("schedules")
@with_jobs_flags
def list_schedules(
    flags: DatabaseFlags,
    *,
    limit: Limit = 50,
    output: Output = "table",
) -> None:
    """List schedules, when they ran last and when they run next."""
    from skep.jobs import Scheduler

    async def work(client: "JobClient") -> None:
        rows = await Scheduler(client.slots).page(limit=limit)
        columns = ("name", "type", "cron", "timezone", "is_enabled", "last_at", "next_at")
        _print(rows, columns, output)

    work_on_jobs(flags, work)


@jobs_app.command("cancel")
@with_jobs_flags
def cancel(
    flags: DatabaseFlags,
    chain_ids: ChainIds = None,
    *,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Also the chains that wait for them.")
    ] = False,
    reason: Annotated[str | None, typer.Option(help="Why; kept with the chain.")] = None,
    is_all: All = False,
    only_type: MatchingType = None,
    key: OnlyKey = None,
    since: Since = None,
    until: Until = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Cancel chains, or with --all those that are open and match."""
    choice = Choice(chain_ids or [], is_all, only_type, "open", key, since, until)
    choice.check(dry_run=dry_run)

    async def work(client: "JobClient") -> None:
        states = await client.cancel(*choice.ids, cascade=cascade, reason=reason)
        for chain_id, state in states.items():
            typer.echo(f"{chain_id} {state}")

    async def work_all(client: "JobClient") -> None:
        which = choice.chains()
        await sweep_matching(
            "Cancel {} chains?",
            await client.bulk.count_chains(which),
            lambda told: client.bulk.cancel(which, cascade=cascade, reason=reason, told=told),
            yes=yes,
            dry_run=dry_run,
        )

    if not is_all:
        confirm(f"Cancel {len(choice.ids)} chains?", is_answered=yes)
    work_on_jobs(flags, work_all if is_all else work)


@jobs_app.command("retry")
@with_jobs_flags
def retry(
    flags: DatabaseFlags,
    chain_ids: ChainIds = None,
    *,
    is_all: All = False,
    only_type: MatchingType = None,
    state: OnlyEnded = "failed",
    key: OnlyKey = None,
    since: Since = None,
    until: Until = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Let failed and cancelled chains go on where they ended."""
    choice = Choice(chain_ids or [], is_all, only_type, state, key, since, until)
    choice.check(dry_run=dry_run)

    async def work_all(client: "JobClient") -> None:
        which = choice.chains()
        await sweep_matching(
            "Let {} chains go on?",
            await client.bulk.count_chains(which),
            lambda told: client.bulk.retry(which, told=told),
            yes=yes,
            dry_run=dry_run,
        )

    named = choice.ids
    work_on_jobs(
        flags,
        work_all if is_all else lambda client: client.retry(*named),
    )


@jobs_app.command("trigger")
@with_jobs_flags
def trigger(
    flags: DatabaseFlags,
    job_ids: JobIds = None,
    *,
    is_all: All = False,
    only_type: MatchingType = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Let scheduled jobs run now, or with --all those that match."""
    choice = Choice(job_ids or [], is_all, only_type)
    choice.check(dry_run=dry_run)

    async def work_all(client: "JobClient") -> None:
        from skep.jobs import JobFilter

        which = JobFilter(type=only_type, state="scheduled")
        await sweep_matching(
            "Let {} jobs run now?",
            await client.bulk.count_jobs(which),
            lambda told: client.bulk.trigger(which, told=told),
            yes=yes,
            dry_run=dry_run,
        )

    named = choice.ids
    work_on_jobs(
        flags,
        work_all if is_all else lambda client: client.trigger(*named),
    )


@jobs_app.command("pause")
@with_jobs_flags
def pause(
    flags: DatabaseFlags,
    job: Annotated[str, typer.Argument(help="The name of a job.")],
) -> None:
    """Let no more jobs of this name start; those that run go on."""
    work_on_jobs(flags, lambda client: client.pause(job))


@jobs_app.command("resume")
@with_jobs_flags
def resume(
    flags: DatabaseFlags,
    job: Annotated[str, typer.Argument(help="The name of a job.")],
) -> None:
    """Let jobs of this name start again."""
    work_on_jobs(flags, lambda client: client.resume(job))


@jobs_app.command("delete")
@with_jobs_flags
def delete(
    flags: DatabaseFlags,
    chain_ids: ChainIds = None,
    *,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Also the chains that their jobs wait or waited for.")
    ] = False,
    is_all: All = False,
    only_type: MatchingType = None,
    state: OnlyState = None,
    key: OnlyKey = None,
    since: Since = None,
    until: Until = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete chains with their jobs, or with --all those that match."""
    choice = Choice(chain_ids or [], is_all, only_type, state, key, since, until)
    choice.check(dry_run=dry_run)
    if is_all and cascade:
        raise BadRequest("--cascade goes with ids; --all deletes what matches and nothing else")

    async def work(client: "JobClient") -> None:
        gone = await client.delete(*choice.ids, cascade=cascade)
        typer.echo(f"{len(gone)} chains are gone")

    async def work_all(client: "JobClient") -> None:
        which = choice.chains()
        await sweep_matching(
            "Delete {} chains?",
            await client.bulk.count_chains(which),
            lambda told: client.bulk.delete(which, told=told),
            yes=yes,
            dry_run=dry_run,
        )

    if not is_all:
        confirm(f"Delete {len(choice.ids)} chains?", is_answered=yes)
    work_on_jobs(flags, work_all if is_all else work)


@jobs_app.command("prune")
@with_jobs_flags
def prune(
    flags: DatabaseFlags,
    days: Annotated[float, typer.Option(min=0, help="Only chains that ended so long ago.")] = 30.0,
    *,
    yes: Yes = False,
) -> None:
    """Delete chains that ended long ago."""
    confirm(f"Delete all chains that ended more than {days:g} days ago?", is_answered=yes)
    before = datetime.now(UTC) - timedelta(days=days)

    async def work(client: "JobClient") -> None:
        typer.echo(f"{await client.prune(before)} chains are gone")

    work_on_jobs(flags, work)


@jobs_app.command("vacuum")
@with_jobs_flags
def vacuum(
    flags: DatabaseFlags,
) -> None:
    """Let PostgreSQL reclaim at once what finished jobs left."""
    from skep.db.schema.server import vacuum_tables
    from skep.jobs.store import TABLES

    for table, size in asyncio.run(vacuum_tables(jobs_dsn(flags.settings()), TABLES)).items():
        typer.echo(f"{table:24} {size:>14,} bytes")


def _print(rows: Sequence[Any], columns: Sequence[str], output: Format) -> None:
    if output == "table":
        _print_table(rows, columns)
    else:
        print_rows(rows, columns, output)


def _print_table(rows: Sequence[Any], columns: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*(column.replace("_", " ") for column in columns), box=None)
    for row in rows:
        table.add_row(*(Text(_cell(getattr(row, column))) for column in columns))
    Console().print(table)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(sep=" ", timespec="seconds")
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value).strip().rpartition("\n")[2]  # of a stack the last line says what happened
