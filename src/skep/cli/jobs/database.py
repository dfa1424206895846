"""What works on the database of the jobs: the options of `skep worker`, `jobs prune` and `vacuum`.

It is the one of the settings, or the embedded one of a broker that runs on this machine. None is
started. No broker needs to run.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Concatenate, Final, ParamSpec, TypeVar

import typer
from typer import Option

from skep.cli.jobs.lists import jobs_app
from skep.cli.shared import options
from skep.cli.shared.output import print_rows
from skep.model.errors import BadRequest
from skep.model.plurals import counted
from skep.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")

JobsUrl = Annotated[
    str | None,
    Option(
        "--database-url",
        help="PostgreSQL that has the jobs, as `postgresql://user:password@host:port/database`. "
        "Default: the one of the settings, or the embedded one of a running broker.",
        rich_help_panel="Database",
    ),
]

_FLAGS: Final[Mapping[str, Any]] = {
    "database_url": JobsUrl,
    "database_schema": options.DatabaseSchema,
    "data_dir": options.DataDir,
    "config_file": options.ConfigFile,
}


def with_jobs_flags(
    command: Callable[Concatenate[options.DatabaseFlags, P], T],
) -> Callable[..., T]:
    """Add the options that name the database of the jobs; the first argument has their values."""
    return options.with_settings_flags(command, _FLAGS)


def jobs_dsn(settings: Settings) -> str:
    """Return the URL of the database of the jobs."""
    if settings.database_url is not None:
        return settings.installation(settings.database_url)
    from skep.app.processes.database import running_embedded

    running = running_embedded(settings)
    if running is None:
        raise BadRequest(
            "no database is configured: pass --database-url or set SKEP_DATABASE_URL (no embedded "
            f"PostgreSQL runs in {settings.data_dir})"
        )
    return running


@jobs_app.command("prune")
@with_jobs_flags
def prune(
    flags: options.DatabaseFlags,
    days: Annotated[float, Option(min=0, help="Only chains that ended this many days ago.")] = 30.0,
    *,
    yes: options.Yes = False,
) -> None:
    """Delete chains that ended long ago, in the database."""
    from skep.jobs import JobClient

    options.confirm(f"Delete all chains that ended more than {days:g} days ago?", is_answered=yes)
    before = datetime.now(UTC) - timedelta(days=days)

    async def work() -> int:
        async with JobClient(jobs_dsn(flags.settings())) as client:
            return await client.prune(before)

    typer.echo(f"Deleted {counted(asyncio.run(work()), 'chain')}")


@jobs_app.command("vacuum")
@with_jobs_flags
def vacuum(flags: options.DatabaseFlags) -> None:
    """Let PostgreSQL reclaim the space of finished jobs now."""
    from skep.db.schema.server import vacuum_tables
    from skep.jobs.store import TABLES

    sizes = asyncio.run(vacuum_tables(jobs_dsn(flags.settings()), TABLES))
    rows = [{"table": table, "bytes": size} for table, size in sizes.items()]
    print_rows(rows, ("table", "bytes as size"), "table")
