"""`skep dsn` and `skep psql`: reach the database of the broker on this machine, embedded or not."""

import os
import shutil
import sys
from typing import Annotated, Final

import typer

from skep.cli.shared.options import DatabaseFlags, with_database_flags
from skep.model.errors import NotFound
from skep.model.schema_name import split_schema
from skep.settings import Settings

PSQL_CONTEXT: Final = {"allow_extra_args": True, "ignore_unknown_options": True}
"""What `psql` understands is not parsed here."""


class PsqlNotFound(NotFound):
    """There is no `psql` on this machine."""

    code = "psql_not_found"


@with_database_flags
def dsn(flags: DatabaseFlags) -> None:
    """Print the URL of the database, for other programs.

    It has the password in it.
    """
    from skep.app.processes.database import running_database

    url, _ = split_schema(running_database(flags.settings()))
    typer.echo(url)


@with_database_flags
def psql(
    flags: DatabaseFlags,
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Passed on to psql, such as -c 'select 1'.")
    ] = None,
) -> None:
    """Open psql on the database, in the schema of the broker."""
    from skep.app.processes.database import running_database

    settings = flags.settings()
    url, schema = split_schema(running_database(settings))
    program = _find_psql(settings)
    options = f"{os.environ.get('PGOPTIONS', '')} -c search_path={schema.name},public"  # noqa: TID251
    environment = {**os.environ, "PGOPTIONS": options.strip(), "PGAPPNAME": "skep psql"}  # noqa: TID251
    sys.stdout.flush()
    # In its place, so that the terminal and its signals are those of psql.
    os.execve(program, [program, url, *(arguments or [])], environment)  # noqa: S606


def _find_psql(settings: Settings) -> str:
    """Return the psql beside the programs of the embedded server, else that on the path."""
    from skep.db.embedded.programs import PostgresNotFound, find_binaries

    try:
        beside = find_binaries(settings.postgres_bin) / "psql"
    except PostgresNotFound:
        beside = None
    if beside is not None and beside.is_file():
        return str(beside)
    found = shutil.which("psql")
    if found is None:
        raise PsqlNotFound(
            "psql is not installed: install `skep[server]` or PostgreSQL's client programs, or "
            "give another program the address that `skep dsn` prints"
        )
    return found
