"""`skep serve`: run a broker, from nothing if need be.

Order matters to the person who waits. What is cheap and often wrong (settings, the port) is
checked before what takes seconds (the embedded PostgreSQL, migrations), and the address is only
printed once every worker accepts connections.
"""

import logging
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer

from skep.cli.shared.extras import require_server_extra
from skep.cli.shared.options import (
    ConfigFile,
    DatabaseSchema,
    DatabaseUrl,
    DataDir,
    PostgresBin,
    effective_settings,
)
from skep.settings import Settings, redacted_url
from skep.settings.fields import description
from skep.settings.layers import EffectiveSettings
from skep.settings.security import security_warnings

KILL_MARGIN_S: Final = 2.0
"""A worker cuts its last requests at the end of the grace; it needs a moment for that itself."""


def serve(
    *,
    preset: Annotated[str | None, typer.Option(help=description("preset"))] = None,
    host: Annotated[str | None, typer.Option(help=description("host"))] = None,
    port: Annotated[int | None, typer.Option(help=description("port"))] = None,
    database_url: DatabaseUrl = None,
    database_schema: DatabaseSchema = None,
    data_dir: DataDir = None,
    postgres_bin: PostgresBin = None,
    migrate: Annotated[str | None, typer.Option(help=description("migrate"))] = None,
    workers: Annotated[int | None, typer.Option(help=description("workers"))] = None,
    connections: Annotated[int | None, typer.Option(help=description("connections"))] = None,
    log_level: Annotated[str | None, typer.Option(help=description("log_level"))] = None,
    log_format: Annotated[str | None, typer.Option(help=description("log_format"))] = None,
    config_file: ConfigFile = None,
) -> None:
    """Run the broker until SIGTERM or Ctrl-C."""
    read_settings = partial(
        effective_settings,
        config_file,
        preset=preset,
        host=host,
        port=port,
        database_url=database_url,
        database_schema=database_schema,
        data_dir=data_dir,
        postgres_bin=postgres_bin,
        migrate=migrate,
        workers=workers,
        connections=connections,
        log_level=log_level,
        log_format=log_format,
    )
    effective = read_settings()
    require_server_extra()
    # Whoever watches a terminal expects the end of it to be the end of the broker.
    has_terminal = sys.stdin is not None and sys.stdin.isatty()
    _serve(effective, reload=None if has_terminal else lambda: read_settings().settings)


def _serve(effective: EffectiveSettings, *, reload: Callable[[], Settings] | None) -> None:
    from rich.console import Console

    from skep.app.parts.security import check_files
    from skep.app.processes.database import open_database, prepare_schema
    from skep.app.processes.entry import work
    from skep.app.processes.sockets import assign_workers, bind_listener
    from skep.app.processes.supervisor import Supervisor
    from skep.telemetry.logs import configure_logging

    settings = effective.settings
    configure_logging(level=settings.log_level, style=settings.log_format)
    for warning in security_warnings(settings):
        logging.getLogger("skep.security").warning(warning)
    check_files(settings)
    # Until the supervisor takes over, both signals unwind the start and undo what it did.
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
                typer.echo(greeting(settings, listener))

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


def greeting(settings: Settings, listener: socket.socket) -> str:
    """Say where the broker listens, on what it runs, and what to try first."""
    url = base_url(listener, is_tls=settings.tls_certificate is not None)
    count = settings.worker_count
    if settings.database_url is None:
        database = f"embedded PostgreSQL in {settings.data_dir}"
    else:
        database = redacted_url(settings.database_url)
    push = '{"items": [{"queue": "demo", "payload": {"hello": "world"}}]}'
    return f"""\
Skep listens on {url} ({count} worker{"s" if count > 1 else ""}, {database})

Push a message, pop it, look at the dashboard, read the API:
  curl {url}/api/v1/push -H 'content-type: application/json' -d '{push}'
  curl '{url}/api/v1/pop/queue/demo?autoAck=true'
  {url}/
  {url}/docs
"""


def base_url(listener: socket.socket, *, is_tls: bool = False) -> str:
    """Return the URL under which this machine reaches the listener."""
    host: str = listener.getsockname()[0]
    port: int = listener.getsockname()[1]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (replaced here)
    scheme = "https" if is_tls else "http"
    return (
        f"{scheme}://[{reachable}]:{port}" if ":" in reachable else f"{scheme}://{reachable}:{port}"
    )
