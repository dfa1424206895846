"""Run statements of ours inside a transaction of the user.

A user's connection is joined, never managed: it is theirs to commit or roll back. This knows
connections of asyncpg; other drivers join by `skep.db.foreign`.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

from skep.jobs.errors import TransactionRequired


class UserTransaction(Protocol):
    """An open transaction of the user."""

    async def fetch(self, sql: str, *arguments: object) -> Sequence[Any]:
        """Run a statement in it and return its rows."""
        ...

    def fetch_sync(self, sql: str, *arguments: object) -> Sequence[Any]:
        """Run a statement in it and return its rows; for drivers that block."""
        ...


class _AsyncpgTransaction:
    def __init__(self, connection: Any) -> None:
        self._connection: Final = connection

    async def fetch(self, sql: str, *arguments: object) -> Sequence[Any]:
        return cast("Sequence[Any]", await self._connection.fetch(sql, *arguments))

    def fetch_sync(self, sql: str, *arguments: object) -> Sequence[Any]:
        del sql, arguments
        raise TransactionRequired("asyncpg has no blocking calls: await the method instead")


def join(connection: object) -> UserTransaction:
    """Return the open transaction of a connection.

    Raises:
        TransactionRequired: it has none: what is done would not be part of anything.
    """
    is_inside = getattr(connection, "is_in_transaction", None)
    if is_inside is None:
        raise TransactionRequired(
            f"{type(connection).__name__} is no connection that can be joined"
        )
    if not is_inside():
        raise TransactionRequired
    return _AsyncpgTransaction(connection)
