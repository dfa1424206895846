"""The commands of `skep jobs` that show chains, jobs, attempts, workers and schedules."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from uuid import UUID

import typer
from typer import Argument, Option

from skep.cli.jobs.database import jobs_dsn, with_jobs, with_jobs_flags
from skep.cli.shared.help import Commands
from skep.cli.shared.options import DatabaseFlags, Since, Until
from skep.cli.shared.output import Format, Output, print_rows

if TYPE_CHECKING:
    from skep.jobs import JobClient

jobs_app: Final = Commands("jobs", "Start, list, cancel, retry and delete job chains.")

# As in `skep.jobs.client.inspection`, which takes long to import.
ChainState = Literal["open", "completed", "failed", "cancelled"]
JobState = Literal[
    "blocked", "scheduled", "ready", "running", "completed", "continued", "failed", "cancelled"
]
Limit = Annotated[int, Option(min=1, max=1000, help="Maximum number of rows.")]
After = Annotated[UUID | None, Option(help="Continue after this id, the last of a page.")]
OnlyType = Annotated[str | None, Option("--type", help="Only jobs of this name.")]
Oldest = Annotated[bool, Option("--oldest", help="Oldest first.")]


@jobs_app.command("chains")
@with_jobs
async def list_chains(
    client: "JobClient",
    *,
    only_type: OnlyType = None,
    state: Annotated[ChainState | None, Option(help="Only this state.")] = None,
    key: Annotated[str | None, Option(help="Only chains started with this key.")] = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    after: After = None,
    oldest: Oldest = False,
    output: Output = "table",
) -> None:
    """List chains, newest first."""
    from skep.jobs import ChainFilter

    which = ChainFilter(type=only_type, state=state, key=key, created_from=since, created_to=until)
    page = await client.inspection.chains(which, limit=limit, after=after, descending=not oldest)
    columns = (
        *("id", "type", "state", "created_at", "job_count", "last_job_type", "last_job_state"),
        *("failed_blockers", "last_error"),
    )
    _print(page.items, columns, output)


@jobs_app.command("list")
@with_jobs
async def list_jobs(
    client: "JobClient",
    *,
    only_type: OnlyType = None,
    state: Annotated[JobState | None, Option(help="Only this state.")] = None,
    chain: Annotated[UUID | None, Option(help="Only jobs of this chain.")] = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    after: After = None,
    oldest: Oldest = False,
    output: Output = "table",
) -> None:
    """List jobs, newest first."""
    from skep.jobs import JobFilter

    which = JobFilter(
        type=only_type, state=state, chain_id=chain, created_from=since, created_to=until
    )
    page = await client.inspection.jobs(which, limit=limit, after=after, descending=not oldest)
    columns = (
        *("id", "type", "state", "attempts", "due_at", "progress", "on_blocker_failure"),
        *("failed_blockers", "last_error"),
    )
    _print(page.items, columns, output)


@jobs_app.command("attempts")
@with_jobs
async def list_attempts(
    client: "JobClient",
    job_id: Annotated[UUID, Argument(help="Job id.")],
    *,
    output: Output = "table",
) -> None:
    """List the attempts of a job, with their errors."""
    attempts = await client.inspection.attempts(job_id)
    _print(attempts, ("attempt", "outcome", "started_at", "ended_at", "error"), output)


@jobs_app.command("blockers")
@with_jobs
async def list_blockers(
    client: "JobClient",
    job_id: Annotated[UUID, Argument(help="Job id.")],
    *,
    output: Output = "table",
) -> None:
    """List the chains that a job waits or waited for."""
    blockers = await client.inspection.blockers(job_id)
    _print(blockers, ("chain", "type", "state", "on_failure"), output)


@jobs_app.command("types")
@with_jobs
async def list_types(client: "JobClient", *, output: Output = "table") -> None:
    """Count the open jobs of each type. Very large counts are estimates."""
    counts = await client.inspection.counts()
    columns = ("type", "ready", "scheduled", "blocked", "running", "oldest_ready_s", "is_exact")
    _print(counts, columns, output)


@jobs_app.command("workers")
@with_jobs
async def list_workers(client: "JobClient", *, limit: Limit = 50, output: Output = "table") -> None:
    """List the workers, with the number of jobs that each runs."""
    page = await client.inspection.workers(limit=limit)
    _print(page.items, ("id", "name", "running", "enrolled_at", "is_late"), output)


@jobs_app.command("schedules")
@with_jobs
async def list_schedules(
    client: "JobClient", *, limit: Limit = 50, output: Output = "table"
) -> None:
    """List schedules, with their last and next runs."""
    from skep.jobs import Scheduler

    rows = await Scheduler(client.slots).page(limit=limit)
    columns = (
        *("name", "type", "cron", "timezone", "is_enabled", "is_paused", "owner"),
        *("last_at", "next_at", "removed_at"),
    )
    _print(rows, columns, output)


@jobs_app.command("vacuum")
@with_jobs_flags
def vacuum(flags: DatabaseFlags) -> None:
    """Let PostgreSQL reclaim the space of finished jobs now."""
    from skep.db.schema.server import vacuum_tables
    from skep.jobs.store import TABLES

    for table, size in asyncio.run(vacuum_tables(jobs_dsn(flags.settings()), TABLES)).items():
        typer.echo(f"{table:24} {size:>14,} bytes")


def _print(rows: Sequence[Any], columns: Sequence[str], output: Format) -> None:
    if output != "table":
        print_rows(rows, columns, output)
        return
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
    return str(value).strip().rpartition("\n")[2]  # the last line of a stack trace is the error
