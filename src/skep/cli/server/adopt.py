"""`skep adopt`: go on with a log that came from another PostgreSQL server."""

import asyncio
from typing import Final

import typer

from skep.cli.shared import options

_QUESTIONS: Final = {
    "moved": "The log came with the files of another server, as pg_upgrade does it. Checkpoints "
    "of Spark and the archive stay valid, so that server must not be used any more. Adopt it?",
    "restored": "The log was restored from a dump. Its transactions are renumbered, and "
    "checkpoints of Spark are not valid here. Adopt it?",
}
_DONE: Final = {
    "here": "Nothing to do: the log was made on this server",
    "moved": "Adopted the log: checkpoints and the archive go on",
    "restored": "Adopted the log: begin with new checkpoints. If it has an archive, that belongs "
    "to the server it came from: `select skep.forget_archive()` begins a new one here",
}


@options.with_database_flags
def adopt(flags: options.DatabaseFlags, *, yes: options.Yes = False) -> None:
    """Go on with a log after pg_upgrade or the restore of a dump."""
    from skep.app.processes.database import join_database
    from skep.db.schema.server import adopt_log, log_origin

    with join_database(flags.settings()) as database:
        origin = asyncio.run(log_origin(database.dsn))
        if origin in _QUESTIONS:
            options.confirm(_QUESTIONS[origin], is_answered=yes)
            origin = asyncio.run(adopt_log(database.dsn))
    typer.echo(_DONE[origin])
