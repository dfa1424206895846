"""`skep migrate`: bring a database to the schema of this skep."""

import asyncio
from typing import Annotated, Final

import typer

from skep.cli.shared.options import DatabaseFlags, with_database_flags
from skep.model.schema_name import split_schema

EXIT_CODES: Final = {"current": 0, "behind": 3, "ahead": 4}
"""Of `--check`; apart from 1 and 2, so that a script can tell a state from a failure."""


@with_database_flags
def migrate(
    flags: DatabaseFlags,
    *,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL for an empty database; change nothing.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Change nothing; exit with 0 if the schema is current, 3 if it is behind, "
            "4 if a newer skep has migrated it.",
        ),
    ] = False,
) -> None:
    """Bring the database to the schema of this skep. Repeating it is harmless."""
    from skep.db.schema.migrate import migration_script

    settings = flags.settings()
    if sql:
        _, schema = split_schema(settings.installation(settings.database_url or ""))
        typer.echo(migration_script(schema=schema), nl=False)
        return
    from skep.app.processes.database import join_database

    with join_database(settings) as database:
        if check:
            raise typer.Exit(_check(database.dsn))
        _migrate(database.dsn)


def _check(dsn: str) -> int:
    from skep.db.schema.migrate import schema_state

    state = asyncio.run(schema_state(dsn))
    typer.echo("\n".join([f"the schema is {state.verdict}", *state.differences]))
    return EXIT_CODES[state.verdict]


def _migrate(dsn: str) -> None:
    from skep.db.schema import migrate as migration

    report = asyncio.run(migration.migrate(dsn, on_step=typer.echo))
    typer.echo("the schema is current" if report.has_changes else "nothing to do")
