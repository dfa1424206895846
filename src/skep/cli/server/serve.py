"""`skep serve` and `skep migrate`: run a broker, and bring a database to its schema.

Cheap checks that often fail (settings, the port) come before slow steps (the embedded PostgreSQL,
migrations), and the address is printed only once every worker accepts connections.
"""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import typer
from typer import Option

from skep.cli.shared import options
from skep.cli.shared.exits import require_server_extra
from skep.model.schema_name import split_schema
from skep.settings import Settings, redacted_url
from skep.settings.layers import EffectiveSettings
from skep.settings.security import security_warnings

KILL_MARGIN_S: Final = 2.0
"""Workers need this long to cut their last requests when the grace ends."""
CHECK_EXIT_CODES: Final = {"current": 0, "behind": 3, "ahead": 4}
"""Of `skep migrate --check`; not 1 or 2, so that scripts can tell a state from a failure."""


_FLAGS: Final[Mapping[str, Any]] = {
    "preset": Annotated[str | None, options.setting_option("preset")],
    "host": Annotated[str | None, options.setting_option("host")],
    "port": Annotated[int | None, options.setting_option("port")],
    "database_url": options.DatabaseUrl,
    "database_schema": options.DatabaseSchema,
    "data_dir": options.DataDir,
    "postgres_bin": options.PostgresBin,
    "migrate": Annotated[str | None, options.setting_option("migrate")],
    "workers": Annotated[int | None, options.setting_option("workers")],
    "connections": Annotated[int | None, options.setting_option("connections")],
    "log_level": Annotated[str | None, options.setting_option("log_level")],
    "log_format": Annotated[str | None, options.setting_option("log_format")],
    "config_file": options.ConfigFile,
}


def _run(flags: options.DatabaseFlags) -> None:
    """Run the broker until SIGTERM or Ctrl-C."""
    effective = flags.effective()
    require_server_extra()
    # In a terminal, SIGHUP means that the terminal closed: the broker ends with it.
    has_terminal = sys.stdin is not None and sys.stdin.isatty()
    _serve(effective, reload=None if has_terminal else flags.settings)


serve: Final = options.with_settings_flags(_run, _FLAGS)


def _serve(effective: EffectiveSettings, *, reload: Callable[[], Settings] | None) -> None:
    from rich.console import Console

    from skep.app.parts.security import check_files
    from skep.app.processes.assignment import assign_workers, bind_listener, work
    from skep.app.processes.database import open_database, prepare_schema
    from skep.app.processes.supervisor import Supervisor
    from skep.telemetry.logs import configure_logging

    settings = effective.settings
    configure_logging(level=settings.log_level, style=settings.log_format)
    for warning in security_warnings(settings):
        logging.getLogger("skep.security").warning(warning)
    check_files(settings)
    # Until the supervisor takes over, both signals unwind the start.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        bind_listener(settings.host, settings.port) as listener,
        TemporaryDirectory(prefix="skep-") as runtime_dir,
    ):
        first_step = "Starting PostgreSQL" if settings.database_url is None else "Connecting"
        status = Console(stderr=True).status(first_step)
        with status, open_database(settings) as database:
            prepare_schema(settings, database.dsn, on_step=status.update)
            status.update("Starting the broker")

            def announce() -> None:
                status.stop()
                typer.echo(greeting(settings, listener, database.dsn))

            Supervisor(
                assign_workers(
                    settings,
                    dsn=database.dsn,
                    listener=listener,
                    runtime_dir=Path(runtime_dir),
                    origins=effective.origins,
                ),
                work,
                grace_s=settings.shutdown_grace_s + KILL_MARGIN_S,
                on_ready=announce,
                companions=database.companions,
                reload=reload,
            ).run()


def greeting(settings: Settings, listener: socket.socket, dsn: str) -> str:
    """Return the lines that say where the broker and its database are and what to try first."""
    url = base_url(listener, is_tls=settings.tls_certificate is not None)
    count = settings.worker_count
    embedded = f", embedded in {settings.data_dir}" if settings.database_url is None else ""
    push = '{"items": [{"queue": "demo", "payload": {"hello": "world"}}]}'
    return f"""\
Skep listens on {url} ({count} worker{"s" if count > 1 else ""})
PostgreSQL: {redacted_url(dsn)}{embedded}

Push a message, pop it, open the dashboard, read the API:
  curl {url}/api/v1/push -H 'content-type: application/json' -d '{push}'
  curl '{url}/api/v1/pop/queue/demo?autoAck=true'
  {url}/
  {url}/docs
`skep psql` opens the database; `skep dsn` prints its address for other programs.
"""


def base_url(listener: socket.socket, *, is_tls: bool = False) -> str:
    """Return the URL of the listener for this machine."""
    host: str = listener.getsockname()[0]
    port: int = listener.getsockname()[1]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (replaced here)
    scheme = "https" if is_tls else "http"
    return (
        f"{scheme}://[{reachable}]:{port}" if ":" in reachable else f"{scheme}://{reachable}:{port}"
    )


@options.with_database_flags
def migrate(
    flags: options.DatabaseFlags,
    *,
    sql: Annotated[
        bool, Option("--sql", help="Print the SQL for an empty database; change nothing.")
    ] = False,
    check: Annotated[
        bool,
        Option(
            "--check",
            help="Change nothing; exit with 0 if the schema is current, 3 if it is behind, "
            "4 if a newer skep migrated it.",
        ),
    ] = False,
) -> None:
    """Bring the database to the schema of this version. Safe to repeat."""
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
    return CHECK_EXIT_CODES[state.verdict]


def _migrate(dsn: str) -> None:
    from skep.db.schema import migrate as migration

    report = asyncio.run(migration.migrate(dsn, on_step=typer.echo))
    typer.echo("the schema is current" if report.has_changes else "nothing to do")
