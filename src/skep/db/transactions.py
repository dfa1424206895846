"""Connections for transactions of more than one statement.

`Slots` runs single calls; this lends a connection for a whole transaction. What a connection raises
inside it is the driver's own error, because user code runs there too and expects it; what opening
and committing raise is translated. For the same reason it spells nothing for a schema of another
name: whoever runs texts of ours there asks `schema` to.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import asyncpg

from skep.db.connection import Connection
from skep.db.errors import translate
from skep.model.schema_name import split_schema

IDLE_S: Final = 60.0
ACQUIRE_TIMEOUT_S: Final = 10.0

_FAILURES: Final = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)


class TransactionPool:
    """Lends connections, up to a number of them, opened when they are needed."""

    def __init__(self, dsn: str, *, size: int, application_name: str) -> None:
        self._dsn, self.schema = split_schema(dsn)
        self._size: Final = size
        self._application_name: Final = application_name
        self._pool: Any = None

    async def open(self) -> None:
        """Make the pool; connections come later."""
        self._pool = await cast("Any", asyncpg).create_pool(
            self._dsn,
            min_size=0,
            max_size=self._size,
            max_inactive_connection_lifetime=IDLE_S,
            server_settings={"application_name": self._application_name, "timezone": "UTC"},
        )

    async def close(self) -> None:
        """Close every connection; transactions under way are undone."""
        if self._pool is not None:
            self._pool.terminate()

    @asynccontextmanager
    async def begin(self) -> AsyncGenerator[Connection]:
        """Lend a connection in a transaction: kept if the block ends well, else undone.

        Raises:
            SkepError: the transaction cannot be opened or committed.
        """
        try:
            connection = await self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S)
        except _FAILURES as error:
            raise translate(error) from error
        is_begun = False
        try:
            transaction = connection.transaction()
            await transaction.start()
            is_begun = True
            try:
                yield connection
            except BaseException:
                if not connection.is_closed():
                    await transaction.rollback()
                raise
            try:
                await transaction.commit()
            except _FAILURES as error:
                raise translate(error) from error
        finally:
            is_between = not is_begun or connection.is_in_transaction()
            if is_between and not connection.is_closed():
                connection.terminate()  # interrupted while it began or ended: the server undoes it
            await self._pool.release(connection)
