"""The commands of `skep jobs` that show chains, jobs, attempts, workers and schedules."""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from uuid import UUID

import typer
from typer import Argument, Option

from skep.cli.shared.connection import with_client
from skep.cli.shared.declare import listing
from skep.cli.shared.help import Commands
from skep.cli.shared.options import Since, Until
from skep.cli.shared.output import Output, print_found, print_record, print_rows

if TYPE_CHECKING:
    from skep.client import Client

jobs_app: Final = Commands("jobs", "Start, list, cancel, retry and delete job chains.")

# As in `skep.jobs.client.inspection`, which takes long to import.
ChainState = Literal["open", "completed", "failed", "cancelled"]
JobState = Literal[
    "blocked", "scheduled", "ready", "running", "completed", "continued", "failed", "cancelled"
]
OnlyType = Annotated[str | None, Option("--type", help="Only jobs of this name.")]
Oldest = Annotated[bool, Option("--oldest", help="Oldest first.")]
ChainId = Annotated[UUID, Argument(help="Chain id.")]
JobId = Annotated[UUID, Argument(help="Job id; the first job of a chain has the chain's id.")]

_JOB_COLUMNS: Final = (
    *("id", "type", "state", "attempts", "dueAt", "progress", "onBlockerFailure"),
    *("failedBlockers", "lastError as error"),
)


def find_page(client: "Client", *path: str, **query: object) -> tuple[list[Any], str | None]:
    """Return a page of chains, jobs, workers, schedules or replays, and the cursor of the next."""
    from skep.client.endpoints import path_of

    page = client.request("GET", path_of(*path, **query))
    return page["items"], page["after"]


@jobs_app.command("chains")
@listing(
    (
        *("id", "type", "state", "createdAt as started", "jobCount as jobs", "lastJobType as job"),
        *("lastJobState as job state", "failedBlockers", "lastError as error"),
    ),
    empty="no chain matches",
    cursor="after",
)
def list_chains(
    client: "Client",
    limit: int,
    after: str | None,
    *,
    only_type: OnlyType = None,
    state: Annotated[ChainState | None, Option(help="Only this state.")] = None,
    key: Annotated[str | None, Option(help="Only chains started with this key.")] = None,
    since: Since = None,
    until: Until = None,
    oldest: Oldest = False,
) -> Any:
    """List chains, newest first."""
    which = {"type": only_type, "state": state, "key": key, "from": since, "to": until}
    return find_page(client, "chains", **which, **_order(oldest), limit=limit, after=after)


@jobs_app.command("list")
@listing(_JOB_COLUMNS, empty="no job matches", cursor="after")
def list_jobs(
    client: "Client",
    limit: int,
    after: str | None,
    *,
    only_type: OnlyType = None,
    state: Annotated[JobState | None, Option(help="Only this state.")] = None,
    chain: Annotated[UUID | None, Option(help="Only jobs of this chain.")] = None,
    since: Since = None,
    until: Until = None,
    oldest: Oldest = False,
) -> Any:
    """List jobs, newest first."""
    which = {"type": only_type, "state": state, "chainId": chain, "from": since, "to": until}
    return find_page(client, "jobs", **which, **_order(oldest), limit=limit, after=after)


@jobs_app.command("show")
@with_client
def show_chain(client: "Client", chain: ChainId, *, output: Output = "table") -> None:
    """Show a chain with its jobs."""
    print_record(client.request("GET", f"/api/v1/chains/{chain}"), output)
    if output == "table":
        typer.echo()
        rows, _ = find_page(client, "chains", str(chain), "jobs")
        print_rows(rows, _JOB_COLUMNS, output)


@jobs_app.command("attempts")
@with_client
def list_attempts(client: "Client", job: JobId, *, output: Output = "table") -> None:
    """List the attempts of a job, with their errors."""
    found = client.request("GET", f"/api/v1/jobs/{job}/attempts")["attempts"]
    columns = ("attempt", "outcome", "startedAt", "endedAt", "error")
    print_found(found, columns, output, empty="the job has not run")


@jobs_app.command("blockers")
@with_client
def list_blockers(client: "Client", job: JobId, *, output: Output = "table") -> None:
    """List the chains that a job waits or waited for."""
    found = client.request("GET", f"/api/v1/jobs/{job}/blockers")["blockers"]
    columns = ("chain as id", "type", "state", "onFailure as if it fails")
    print_found(found, columns, output, empty="the job waits for no chain")


@jobs_app.command("types")
@with_client
def list_types(client: "Client", *, output: Output = "table") -> None:
    """Count the open jobs of each type. Very large counts are estimates."""
    found = client.request("GET", "/api/v1/jobs/counts")["types"]
    columns = (
        *("type", "ready", "scheduled", "blocked", "running", "oldestReadyS as oldest"),
        "isExact",
    )
    print_found(found, columns, output, empty="no job is open")


@jobs_app.command("workers")
@listing(
    ("name as worker", "running", "enrolledAt as started", "isLate", "id"),
    empty="no worker runs",
    cursor="after",
)
def list_workers(client: "Client", limit: int, after: str | None) -> Any:
    """List the workers, with the number of jobs that each runs."""
    return find_page(client, "jobs/workers", limit=limit, after=after)


@jobs_app.command("schedules")
@listing(
    (
        *("name as schedule", "type", "cron", "timezone", "isEnabled", "isPaused", "owner"),
        *("lastAt", "nextAt", "removedAt"),
    ),
    empty="there is no schedule",
    cursor="after",
)
def list_schedules(client: "Client", limit: int, after: str | None) -> Any:
    """List schedules, with their last and next runs."""
    return find_page(client, "schedules", limit=limit, after=after)


def _order(oldest: bool) -> dict[str, str]:
    return {"order": "oldest" if oldest else "newest"}
