"""Which database has the jobs: the flags of `skep jobs` and `skep worker`, and a client of it.

It is the one of the settings, or the embedded one of a broker that runs on this machine. None is
started: jobs lie in the database of an application, or of a broker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

import typer

from skep.cli.shared.options import (
    ConfigFile,
    DatabaseFlags,
    DatabaseSchema,
    DataDir,
    with_settings_flags,
)
from skep.model.errors import BadRequest
from skep.settings import Settings

if TYPE_CHECKING:
    from skep.jobs import JobClient

P = ParamSpec("P")
T = TypeVar("T")

JobsUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        help="The PostgreSQL that has the jobs, as `postgresql://user:password@host:port/database`."
        " Without it that of the settings, or the embedded one of a broker that runs.",
    ),
]

_FLAGS: Final[Mapping[str, Any]] = {
    "database_url": JobsUrl,
    "database_schema": DatabaseSchema,
    "data_dir": DataDir,
    "config_file": ConfigFile,
}


def with_jobs_flags(command: Callable[Concatenate[DatabaseFlags, P], T]) -> Callable[..., T]:
    """Give a command the flags that say which database has the jobs, and what they say."""
    return with_settings_flags(command, _FLAGS)


def work_on_jobs(flags: DatabaseFlags, work: "Callable[[JobClient], Awaitable[object]]") -> None:
    """Do some work with a client of the database that has the jobs.

    Raises:
        BadRequest: Nothing names it.
    """
    from skep.jobs import JobClient

    dsn = jobs_dsn(flags.settings())

    async def run() -> None:
        async with JobClient(dsn) as client:
            await work(client)

    asyncio.run(run())


def jobs_dsn(settings: Settings) -> str:
    """Return the database that has the jobs.

    Raises:
        BadRequest: Nothing names it, and no embedded one runs.
    """
    if settings.database_url is not None:
        return settings.installation(settings.database_url)
    from skep.app.processes.database import running_embedded

    running = running_embedded(settings)
    if running is None:
        raise BadRequest(
            "name the database that has the jobs: --database-url or SKEP_DATABASE_URL (no embedded "
            f"one runs in {settings.data_dir})"
        )
    return running
