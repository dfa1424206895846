"""Open connections to PostgreSQL, with types.

asyncpg has no annotations; this is the part that Skep uses. A connection to an installation in
another schema rewrites texts and channels (see `skep.model.schema_name`).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from operator import attrgetter
from typing import Any, Final, Protocol, cast

import asyncpg

from skep.model.schema_name import Schema, split_schema

_PROTOCOL: Final = attrgetter("_protocol")
"""Not public; asyncpg's own pool reads the count there."""


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
        """Close gracefully."""
        ...

    def terminate(self) -> None:
        """Close at once."""
        ...

    def is_closed(self) -> bool:
        """Whether the session has ended."""
        ...


class _Spelling:
    """A connection to an installation in a schema that is not the default."""

    def __init__(self, connection: Connection, schema: Schema) -> None:
        self.inner = connection
        self.schema = schema

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def prepare(self, query: str) -> Prepared:
        return await self.inner.prepare(self.schema.spelled(query))

    async def fetch(self, query: str, *arguments: object) -> Sequence[Any]:
        return await self.inner.fetch(self.schema.spelled(query), *arguments)

    async def fetchval(self, query: str, *arguments: object) -> Any:
        return await self.inner.fetchval(self.schema.spelled(query), *arguments)

    async def execute(self, query: str, *arguments: object) -> str:
        return await self.inner.execute(self.schema.spelled(query), *arguments)

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None:
        await self.inner.add_listener(self.schema.called(channel), callback)


async def connect(
    dsn: str, *, timeout_s: float = 10.0, server_settings: Mapping[str, str] | None = None
) -> Connection:
    """Open a connection to an installation; the URL may name its schema.

    Raises:
        OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError: It cannot be opened.
    """
    driver = cast("Any", asyncpg)
    settings = dict(server_settings or {})
    plain, schema = split_schema(dsn)
    connection: Connection = await driver.connect(
        plain, timeout=timeout_s, server_settings=settings
    )
    return connection if schema.is_default else cast("Connection", _Spelling(connection, schema))


def as_sent(connection: Connection, query: str) -> str:
    """Return a text as the server gets it, to which the positions in its errors refer."""
    return connection.schema.spelled(query) if isinstance(connection, _Spelling) else query


class Wire(Protocol):
    """The driver's side of a session; it outlives the connection."""

    queries_count: int
    """Statements that were sent. The driver refuses one, say, once it has read that the server
    ended the session."""


def wire_of(connection: Connection) -> Wire:
    """Return the driver's side of an open connection."""
    plain = connection.inner if isinstance(connection, _Spelling) else connection
    wire: Wire = _PROTOCOL(plain)
    return wire
