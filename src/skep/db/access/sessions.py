"""Sessions that are ours alone, from this process to PostgreSQL's own.

A broker ends the sessions of its broken connections by their process id, and its procedures are
planned by settings of the session. Behind a pooler both go wrong: the session belongs to whoever
runs a statement next. So a session carries a mark that only PostgreSQL itself keeps, and one that
comes back without it is refused, with the reason.
"""

import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

import asyncpg

from skep.db.access.connection import Connection, connect
from skep.model.errors import Refused

MARK_SETTING: Final = "skep.session"
"""Any setting with a dot may be given at the start of a session. Poolers refuse or drop it."""

OWN_SESSION: Final = (
    "select pid, backend_start, current_setting($1, true) from pg_stat_activity "
    "where pid = pg_backend_pid()"
)

_ADVICE: Final = (
    "a pooler such as pgbouncer stands between this broker and PostgreSQL. Skep keeps few "
    "connections of its own and needs its sessions for itself: give it the address of PostgreSQL"
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
    """Open a connection to PostgreSQL and make sure that nobody shares its session.

    Raises:
        PoolerInBetween: The session is not ours alone.
        OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError: It cannot be opened.
    """
    mark = secrets.token_hex(8)
    try:
        connection = await connect(
            dsn, timeout_s=timeout_s, server_settings={**server_settings, MARK_SETTING: mark}
        )
    except asyncpg.ProtocolViolationError as error:
        # PostgreSQL takes any setting; only something that imitates it knows better.
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
    """Find out before anything is started whether a pooler is in the way.

    A database that cannot be reached is left to those who need it: they know how to say so.

    Raises:
        PoolerInBetween: One is.
    """
    try:
        session = await open_session(dsn, timeout_s=timeout_s, server_settings={})
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return
    await session.connection.close(timeout=timeout_s)
