"""Find out whether PostgreSQL can be reached, and open sessions that no pooler shares.

A broker ends the sessions of its broken connections by process id, and its procedures rely on
session settings. Behind a pooler both go wrong: another client runs the next statement in the same
session. So a session carries a mark that only PostgreSQL keeps, and one without it is refused.
"""

import secrets
import socket
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import asyncpg

from skep.db.access.connection import Connection, connect
from skep.model.errors import Refused

MARK_SETTING: Final = "skep.session"
"""PostgreSQL accepts any setting with a dot at session start; poolers refuse or drop it."""

OWN_SESSION: Final = (
    "select pid, backend_start, current_setting($1, true) from pg_stat_activity "
    "where pid = pg_backend_pid()"
)

_ADVICE: Final = (
    "a pooler such as pgbouncer stands between this broker and PostgreSQL. Skep keeps few "
    "connections of its own and must not share its sessions: give it the address of PostgreSQL"
)


REACH_TIMEOUT_S: Final = 3.0

_NO_SUCH_NAME: Final = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", 0)})
"""The name does not exist, as opposed to: the resolver cannot tell."""

_REFUSALS: Final = (
    asyncpg.InvalidAuthorizationSpecificationError,  # includes a wrong password
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)


class PoolerInBetween(Refused):
    """A pooler stands between this broker and PostgreSQL."""

    code = "pooler_in_between"


class OwnSession(NamedTuple):
    """A connection, and the server's side of it."""

    connection: Connection
    process_id: int
    started_at: datetime


async def open_session(
    dsn: str, *, timeout_s: float, server_settings: Mapping[str, str]
) -> OwnSession:
    """Open a connection to PostgreSQL and check that no pooler shares its session.

    Raises:
        PoolerInBetween: A pooler shares the session.
        OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError: It cannot be opened.
    """
    mark = secrets.token_hex(8)
    try:
        connection = await connect(
            dsn, timeout_s=timeout_s, server_settings={**server_settings, MARK_SETTING: mark}
        )
    except asyncpg.ProtocolViolationError as error:
        # PostgreSQL accepts any setting, so this is not PostgreSQL.
        raise PoolerInBetween(f"{_ADVICE} (it says: {error})") from error
    try:
        ((process_id, started_at, found),) = await connection.fetch(OWN_SESSION, MARK_SETTING)
    except BaseException:
        connection.terminate()
        raise
    if found != mark:
        connection.terminate()
        raise PoolerInBetween(_ADVICE)
    return OwnSession(connection, process_id, started_at)


async def require_own_sessions(dsn: str, *, timeout_s: float) -> None:
    """Check for a pooler before anything is started; an unreachable database is ignored here.

    Raises:
        PoolerInBetween: There is one.
    """
    try:
        session = await open_session(dsn, timeout_s=timeout_s, server_settings={})
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return
    await session.connection.close(timeout=timeout_s)


class WrongDatabase(Refused):
    """The database cannot be used as the settings name it."""

    code = "wrong_database"


class UnknownHost(WrongDatabase):
    """The name of the database host does not exist."""

    code = "unknown_host"


async def is_reachable(dsn: str) -> bool:
    """Return whether a server accepts our connections now.

    A server that is down comes back, so callers wait. An unknown host, a refused login or a missing
    database does not fix itself, and waiting would hide the error.

    Raises:
        UnknownHost: The resolver says that the host does not exist.
        WrongDatabase: The URL can never work; the message says why.
    """
    try:
        connection = await connect(dsn, timeout_s=REACH_TIMEOUT_S)
    except (socket.gaierror, UnicodeError) as error:
        if isinstance(error, socket.gaierror) and error.errno not in _NO_SUCH_NAME:
            return False
        host = urlsplit(dsn).hostname
        raise UnknownHost(f"cannot resolve the database host: {host}") from error
    except _REFUSALS as error:
        raise WrongDatabase(f"PostgreSQL refused the connection: {error}") from error
    except (OSError, asyncpg.CannotConnectNowError, asyncpg.PostgresConnectionError):
        return False
    except (asyncpg.PostgresError, asyncpg.InterfaceError):
        return True  # it answers; the next connection will report the error
    await connection.close(timeout=REACH_TIMEOUT_S)
    return True
