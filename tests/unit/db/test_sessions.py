import socket

import asyncpg
import pytest

from skep.db.access import sessions
from skep.db.access.sessions import WrongDatabase, is_reachable

URL = "postgresql://me:hidden@db.example:5432/skep"


@pytest.fixture
def connecting(monkeypatch):
    """Let every attempt to connect end with this error."""

    def fail_with(error):
        async def connect(dsn, *, timeout_s):
            raise error

        monkeypatch.setattr(sessions, "connect", connect)

    return fail_with


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(),
        TimeoutError(),
        asyncpg.CannotConnectNowError("the database system is starting up"),
        socket.gaierror(socket.EAI_AGAIN, "temporary failure in name resolution"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_server_that_may_come_back_is_away(connecting, error):
    connecting(error)

    assert not await is_reachable(URL)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            socket.gaierror(socket.EAI_NONAME, "unknown"),
            "cannot resolve the database host: db.example",
        ),
        (UnicodeError("label empty"), "cannot resolve the database host: db.example"),
        (asyncpg.InvalidPasswordError("wrong password"), "wrong password"),
        (asyncpg.InvalidAuthorizationSpecificationError("no pg_hba entry"), "no pg_hba entry"),
        (asyncpg.InvalidCatalogNameError("no such database"), "no such database"),
        (asyncpg.InsufficientPrivilegeError("may not connect"), "may not connect"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_no_waiting_mends_is_told(connecting, error, reason):
    connecting(error)

    with pytest.raises(WrongDatabase, match=reason) as told:
        await is_reachable(URL)

    assert "hidden" not in told.value.message


async def test_a_server_that_answers_otherwise_is_there(connecting):
    connecting(asyncpg.TooManyConnectionsError("sorry, too many clients already"))

    assert await is_reachable(URL)
