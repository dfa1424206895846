"""Whether a database is there, is away, or will never be there under the URL that was given.

Who is away comes back, and whoever can wait does. A name that does not exist, a login that is
refused and a database that nobody created stay so until a person changes something, and waiting
for that would look like patience with an outage.
"""

import socket
from typing import Final
from urllib.parse import urlsplit

import asyncpg

from skep.db.access.connection import connect
from skep.model.errors import Refused

REACH_TIMEOUT_S: Final = 3.0

_NO_SUCH_NAME: Final = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", 0)})
"""What a resolver says of a name that does not exist. That it cannot say is another thing."""

_REFUSALS: Final = (
    asyncpg.InvalidAuthorizationSpecificationError,  # and a wrong password, which is one
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)


class WrongDatabase(Refused):
    """The database that the settings name cannot be used as they name it."""

    code = "wrong_database"


async def is_reachable(dsn: str) -> bool:
    """Say whether a server takes our connections at the moment.

    Raises:
        WrongDatabase: It never will by this URL; the message says why.
    """
    try:
        connection = await connect(dsn, timeout_s=REACH_TIMEOUT_S)
    except (socket.gaierror, UnicodeError) as error:
        if isinstance(error, socket.gaierror) and error.errno not in _NO_SUCH_NAME:
            return False
        host = urlsplit(dsn).hostname
        raise WrongDatabase(f"the host of the database has no address: {host}") from error
    except _REFUSALS as error:
        raise WrongDatabase(f"PostgreSQL refuses to be used like this: {error}") from error
    except (OSError, asyncpg.CannotConnectNowError, asyncpg.PostgresConnectionError):
        return False
    except (asyncpg.PostgresError, asyncpg.InterfaceError):
        return True  # it answers: whoever connects next will say what it answered
    await connection.close(timeout=REACH_TIMEOUT_S)
    return True
