"""The database that has the jobs: options of `skep jobs` and `skep worker`, and a client of it.

It is the one of the settings, or the embedded one of a broker that runs on this machine. None is
started. No broker needs to run.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, ParamSpec, TypeVar

from typer import Option

from skep.cli.shared import options
from skep.model.errors import BadRequest
from skep.settings import Settings

if TYPE_CHECKING:
    from skep.jobs import JobClient

P = ParamSpec("P")
T = TypeVar("T")

JobsUrl = Annotated[
    str | None,
    Option(
        "--database-url",
        help="PostgreSQL that has the jobs, as `postgresql://user:password@host:port/database`. "
        "Default: the one of the settings, or the embedded one of a running broker.",
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


def with_jobs(
    command: Callable[Concatenate["JobClient", P], Awaitable[object]],
) -> Callable[..., None]:
    """Run a coroutine as a command, with a client of the database of the jobs."""

    def run(flags: options.DatabaseFlags, **arguments: Any) -> None:
        untyped: Any = command
        work_on_jobs(flags, lambda client: untyped(client, **arguments))

    options.declare_options(run, command, {}, hidden=())
    return with_jobs_flags(run)


def work_on_jobs(
    flags: options.DatabaseFlags, work: "Callable[[JobClient], Awaitable[object]]"
) -> None:
    """Run a coroutine with a client of the database of the jobs."""
    from skep.jobs import JobClient

    dsn = jobs_dsn(flags.settings())

    async def run() -> None:
        async with JobClient(dsn) as client:
            await work(client)

    asyncio.run(run())


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
