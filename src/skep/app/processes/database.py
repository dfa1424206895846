"""Provide the database of an instance, external or embedded, with a current schema."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never
from urllib.parse import urlsplit

from skep.app.processes.supervisor import Companion
from skep.db.access import sessions
from skep.db.embedded.cluster import ClusterDirectory, DataDirectoryInUse
from skep.db.embedded.launcher import EmbeddedPostgres
from skep.db.schema.migrate import migrate, schema_state
from skep.model.errors import Refused, Unavailable
from skep.settings import Settings
from skep.spill.directory import spill_directory

_log = logging.getLogger(__name__)

CONNECTIONS_SPARE: Final = 92
"""Connections of the embedded server beyond those of the workers: 100 with one worker. Job workers,
programs that stage messages, Spark's tasks and `skep psql` use them too."""

CONNECT_TIMEOUT_S: Final = 10.0

OnStep: TypeAlias = Callable[[str], None]
"""Called with a description of each step."""


class SchemaNotCurrent(Refused):
    """The schema of the database does not match this version of Skep."""

    code = "schema_not_current"


@dataclass(frozen=True, slots=True)
class Database:
    """A reachable database, and the processes to watch for it."""

    dsn: str
    companions: tuple[Companion, ...] = ()


@contextmanager
def open_database(settings: Settings) -> Generator[Database]:
    """Provide the database of these settings; an embedded server runs until the end of the block.

    Raises:
        SkepError: The embedded server cannot run; the message says why and what to do.
    """
    if settings.database_url is not None:
        yield Database(settings.installation(settings.database_url))
        return
    with ExitStack() as until_the_end:
        server = EmbeddedInstance(settings)
        until_the_end.callback(server.stop)
        server.start()
        # Only Linux has descriptors of processes. Elsewhere, if the server ends, requests fail
        # until the instance is restarted.
        companions = (server,) if sys.platform == "linux" else ()
        yield Database(settings.installation(server.dsn), companions)


@contextmanager
def join_database(settings: Settings) -> Generator[Database]:
    """Provide the database for a command that works beside brokers.

    An embedded server that a broker already runs is used, and left running.
    """
    with ExitStack() as until_the_end:
        try:
            database = until_the_end.enter_context(open_database(settings))
        except DataDirectoryInUse:
            running = running_embedded(settings)
            if running is None:  # it starts or stops just now
                raise
            database = Database(running)
        yield database


def running_database(settings: Settings) -> str:
    """Return the URL of the database, password included; an embedded server must be running.

    Raises:
        Unavailable: It is not.
    """
    if settings.database_url is not None:
        return settings.installation(settings.database_url)
    running = running_embedded(settings)
    if running is None:
        raise Unavailable(
            f"the embedded PostgreSQL in {settings.data_dir} is not running, or belongs to another "
            "user: start it with `skep serve`, or name a database with --database-url"
        )
    return running


def running_embedded(settings: Settings) -> str | None:
    """Return the URL of the embedded server if it is running."""
    try:
        running = ClusterDirectory(settings.data_dir).running_dsn()
    except PermissionError:
        return None
    return None if running is None else settings.installation(running)


class EmbeddedInstance:
    """The embedded server of one instance. A revived server keeps its port."""

    name = "the embedded PostgreSQL"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._server = self._build(port=0)
        self._process_fd = -1

    def _build(self, *, port: int) -> EmbeddedPostgres:
        settings = self._settings
        connections = settings.worker_count * settings.connections_per_worker + CONNECTIONS_SPARE
        return EmbeddedPostgres(
            settings.data_dir,
            port=port,
            parameters={"max_connections": str(connections)},
            binaries=settings.postgres_bin,
        )

    @property
    def dsn(self) -> str:
        """The URL of the database, password included."""
        return self._server.dsn

    def start(self) -> None:
        """Start the server."""
        self._server.start()
        if sys.platform == "linux":
            self._process_fd = os.pidfd_open(self._server.pid)

    def stop(self) -> None:
        """Stop the server, if it runs."""
        self._server.stop()
        if self._process_fd >= 0:
            os.close(self._process_fd)
            self._process_fd = -1

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the server ends."""
        return self._process_fd

    def revive(self) -> None:
        """Start the server again on the port the workers know."""
        port = urlsplit(self._server.dsn).port or 0
        self.stop()
        self._server = self._build(port=port)
        self.start()


def prepare_schema(settings: Settings, dsn: str, *, on_step: OnStep) -> None:
    """Migrate the schema or make sure that it is current, as the settings say.

    If an external server is unreachable, the workers wait for it.

    Raises:
        WrongDatabase: The database does not exist or refuses the login.
        PoolerInBetween: The database is behind a pooler.
        SchemaNotCurrent: The schema is not current, and the settings forbid migrating it.
        SkepError: The migration failed, or the database cannot be reached.
    """
    if not must_start_without(settings, dsn):
        asyncio.run(make_current(settings, dsn, on_step=on_step))


async def make_current(settings: Settings, dsn: str, *, on_step: OnStep | None = None) -> None:
    """Do the same to a database that is reachable."""
    await sessions.require_own_sessions(dsn, timeout_s=CONNECT_TIMEOUT_S)
    if should_migrate(settings):
        await migrate(dsn, on_step=on_step)
    else:
        await _require_current_schema(dsn)


def must_start_without(settings: Settings, dsn: str) -> bool:
    """Return whether to start without the database, as the settings allow.

    A broker that served the database before has left its folder on this machine. Without it a
    database that cannot be reached is more likely named wrongly than away.

    Raises:
        WrongDatabase: The URL can never work; the message says why.
    """
    if not may_wait(settings):
        return False
    is_always = settings.start_without_database == "always"
    is_known = is_always or spill_directory(settings).is_dir()
    try:
        if asyncio.run(sessions.is_reachable(dsn)):
            return False
    except sessions.WrongDatabase as error:
        if not (is_always or (is_known and isinstance(error, sessions.UnknownHost))):
            raise
        _log.error("%s; starting without it: pushes are stored on disk", error.message)
        return True
    if is_known:
        _log.warning("PostgreSQL is unreachable; starting without it: pushes are stored on disk")
    return is_known  # the next connection tells why it fails


def may_wait(settings: Settings) -> bool:
    """Return whether the settings allow serving without a database, with pushes on disk."""
    is_foreign = settings.database_url is not None
    return (
        is_foreign and bool(settings.spill_bytes_max) and settings.start_without_database != "never"
    )


def should_migrate(settings: Settings) -> bool:
    """Return whether the settings allow migrating the schema."""
    is_embedded = settings.database_url is None
    return settings.migrate == "always" or (settings.migrate == "auto" and is_embedded)


async def _require_current_schema(dsn: str) -> None:
    state = await schema_state(dsn)
    match state.verdict:
        case "current":
            return
        case "behind":
            raise SchemaNotCurrent(
                "the database schema is older than this version of Skep: run `skep migrate`, or "
                "start with `--migrate always`"
            )
        case "ahead":
            raise SchemaNotCurrent(
                "the database schema is newer than this version of Skep: upgrade Skep, or use "
                f"another database (unknown migrations: {', '.join(state.differences)})"
            )
        case _:
            assert_never(state.verdict)
