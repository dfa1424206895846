"""Connections for transactions of more than one statement.

`Slots` runs single calls; this lends a connection for a whole transaction. User code runs in it,
so statements raise the driver's own errors, and texts are not rewritten for another schema name
(use `schema` for that); errors of opening and committing are translated.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, cast

import asyncpg

from skep.db.access.connection import Connection
from skep.db.access.errors import translate
from skep.model.schema_name import split_schema

IDLE_S: Final = 60.0
ACQUIRE_TIMEOUT_S: Final = 10.0
SPARE_S: Final = 0.05
"""How long an unused transaction is kept."""

_FAILURES: Final = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)


@dataclass(frozen=True, slots=True)
class Reuse:
    """How to lend a transaction that may stay unused, and can then be lent again.

    Attributes:
        is_used: whether anything was done in it; asked at the end.
        since: by the loop's clock; a transaction that began earlier does not serve, because its
            `now()` would be too old.
        is_likely: most stay unused, so wait while another one begins: it may be free at once.
    """

    is_used: Callable[[], bool]
    since: float
    is_likely: bool


@dataclass(frozen=True, slots=True)
class _Begun:
    """A connection in an unused transaction."""

    connection: Any
    transaction: Any
    at: float


class TransactionPool:
    """Lends connections, up to a number of them, opened when they are needed."""

    def __init__(self, dsn: str, *, size: int, application_name: str) -> None:
        self._dsn, self.schema = split_schema(dsn)
        self.size: Final = size
        self._application_name: Final = application_name
        self._pool: Any = None
        self._room: Final = asyncio.Semaphore(size)
        self._beginning: Final = asyncio.Lock()
        self._spares: Final[list[_Begun]] = []
        """Transactions that were lent and not used."""
        self._ending: Final = set[asyncio.Task[None]]()
        self._looking: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Make the pool; connections come later."""
        self._pool = await cast("Any", asyncpg).create_pool(
            self._dsn,
            min_size=0,
            max_size=self.size,
            max_inactive_connection_lifetime=IDLE_S,
            server_settings={"application_name": self._application_name, "timezone": "UTC"},
        )

    async def close(self) -> None:
        """Close every connection; transactions under way are undone."""
        if self._looking is not None:
            self._looking.cancel()
        if self._pool is not None:
            self._pool.terminate()
        await asyncio.gather(*self._ending)

    @asynccontextmanager
    async def begin(self, reuse: Reuse | None = None) -> AsyncGenerator[Connection]:
        """Lend a connection in a transaction: kept if the block ends well, else undone.

        With `reuse` an unused one is lent again for some milliseconds: beginning and ending it
        costs more than many blocks.

        Raises:
            SkepError: the transaction cannot be opened or committed.
        """
        await self._wait_for_room()
        try:
            begun = await self._begin() if reuse is None else await self._borrow(reuse)
            try:
                yield begun.connection
            except BaseException:
                await self._end_or_spare(begun, reuse, is_kept=False)
                raise
            await self._end_or_spare(begun, reuse, is_kept=True)
        finally:
            self._room.release()

    async def _wait_for_room(self) -> None:
        """Wait for a connection that is not lent; spares count as free."""
        if not self._room.locked():
            await self._room.acquire()
            return
        try:
            async with asyncio.timeout(ACQUIRE_TIMEOUT_S):
                await self._room.acquire()
        except TimeoutError as error:
            raise translate(error) from error

    async def _borrow(self, reuse: Reuse) -> _Begun:
        if (spare := self._take_spare(reuse.since)) is not None:
            return spare
        if not reuse.is_likely:
            return await self._begin()
        async with self._beginning:
            return self._take_spare(reuse.since) or await self._begin()

    async def _end_or_spare(self, begun: _Begun, reuse: Reuse | None, *, is_kept: bool) -> None:
        if reuse is None or reuse.is_used():
            await self._end(begun, is_kept=is_kept)
        else:
            self._spare(begun)

    async def _begin(self) -> _Begun:
        try:
            connection = await self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S)
        except _FAILURES as error:
            raise translate(error) from error
        begun = _Begun(connection, connection.transaction(), asyncio.get_running_loop().time())
        is_begun = False
        try:
            await begun.transaction.start()
            is_begun = True
        finally:
            if not is_begun:
                await self._give_back(connection, is_begun=False)
        return begun

    async def _end(self, begun: _Begun, *, is_kept: bool) -> None:
        try:
            if is_kept:
                try:
                    await begun.transaction.commit()
                except _FAILURES as error:
                    raise translate(error) from error
            elif _is_open(begun.connection):
                await begun.transaction.rollback()
        finally:
            await self._give_back(begun.connection)

    async def _give_back(self, connection: Any, *, is_begun: bool = True) -> None:
        if _is_open(connection) and (not is_begun or connection.is_in_transaction()):
            connection.terminate()  # interrupted while it began or ended: the server undoes it
        await self._pool.release(connection)

    def _take_spare(self, since: float) -> _Begun | None:
        """Return a spare that began since then, if any; end older ones."""
        while self._spares:
            begun = self._spares.pop()
            if begun.at >= since and _is_open(begun.connection):
                return begun
            self._end_aside(begun)
        return None

    def _spare(self, begun: _Begun) -> None:
        self._spares.append(begun)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(SPARE_S, self._end_stale)

    def _end_stale(self) -> None:
        self._looking = None
        fresh_from = asyncio.get_running_loop().time() - SPARE_S
        spares = tuple(self._spares)
        self._spares.clear()
        for begun in spares:
            if begun.at > fresh_from:
                self._spare(begun)
            else:
                self._end_aside(begun)

    def _end_aside(self, begun: _Begun) -> None:
        task = asyncio.get_running_loop().create_task(self._end_unused(begun))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end_unused(self, begun: _Begun) -> None:
        with suppress(*_FAILURES):  # there is nothing in it, and the connection is given up
            await self._end(begun, is_kept=False)


def _is_open(connection: Any) -> bool:
    """Whether it can be used; the pool takes back a broken one."""
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:
        return False
