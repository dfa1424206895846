"""Open connections to PostgreSQL, with types.

asyncpg is the driver and has no annotations; this is the part of it that Skep uses.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, cast

import asyncpg


class Prepared(Protocol):
    """A statement the server has parsed and planned."""

    async def fetch(self, *arguments: object) -> Sequence[Any]:
        """Run it and return its rows."""
        ...


class Connection(Protocol):
    """One session with the server."""

    async def prepare(self, query: str) -> Prepared:
        """Parse a statement for repeated use."""
        ...

    async def fetch(self, query: str, *arguments: object) -> Sequence[Any]:
        """Run a statement and return its rows."""
        ...

    async def fetchval(self, query: str, *arguments: object) -> Any:
        """Run a statement and return the first value of its first row, or None."""
        ...

    async def execute(self, query: str, *arguments: object) -> str:
        """Run a statement, or a script of several when there are no arguments."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """Open a transaction, or a savepoint inside one."""
        ...

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None:
        """Listen on a channel; the callback gets connection, process id, channel and payload."""
        ...

    def add_termination_listener(self, callback: Callable[..., None]) -> None:
        """Call back when the session has ended."""
        ...

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 -- asyncpg's name
        """Say goodbye and close."""
        ...

    def terminate(self) -> None:
        """Close at once."""
        ...

    def is_closed(self) -> bool:
        """Tell whether the session has ended."""
        ...


async def connect(
    dsn: str, *, timeout_s: float = 10.0, server_settings: Mapping[str, str] | None = None
) -> Connection:
    """Open a connection.

    Raises:
        OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError: It cannot be opened.
    """
    driver = cast("Any", asyncpg)
    settings = dict(server_settings or {})
    connection: Connection = await driver.connect(dsn, timeout=timeout_s, server_settings=settings)
    return connection
