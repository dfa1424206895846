"""Let attempts of one job share a transaction, one after the other (`together=n`).

A transaction of its own costs a job several round trips and a commit. Jobs declared with `together`
take turns in one: each begins behind a savepoint, so that one that fails is undone alone, and all
that ended well are settled by one call and committed at once. A job that did not use the connection
is settled with the batches of the worker, like any other.

The writes of a job may be kept only if its completion is. If a completion turns out to be
impossible after other turns (the job was taken away, its chain is held, the commit fails), the
whole transaction is undone and all attempts are told so (`SharingUndone`); they then run again,
each in a transaction of its own, where the one at fault fails alone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final, TypeAlias

from skep.db.access.connection import Connection
from skep.db.access.transactions import TransactionPool
from skep.jobs.store import Settled, Settlement
from skep.model.errors import Refused

Write: TypeAlias = Callable[[Connection, Sequence[Settlement]], Awaitable[list[Settled]]]
"""Writes settlements in a transaction."""

ONE_TRANSACTION: Final = "a job in atomic mode has one transaction: use ctx.connection"

_MARK: Final = "savepoint skep_turn"
_MARK_ANEW: Final = "release savepoint skep_turn; savepoint skep_turn"
_UNDO: Final = "rollback to savepoint skep_turn"


class SharingUndone(Exception):
    """The shared transaction was undone, through no fault of this attempt."""


class _Shared:
    """One transaction, and the attempts that had their turn in it."""

    def __init__(self) -> None:
        self.opened: Final[asyncio.Future[Connection]] = asyncio.get_running_loop().create_future()
        self.members: Final[list[tuple[Settlement, asyncio.Future[Settled]]]] = []
        self.is_closed: Final = asyncio.Event()
        """There are no more turns."""
        self.is_broken = False
        """Writes of a failed attempt may be left in it."""
        self.is_touched = True
        """The current attempt may have written since the last savepoint."""
        self._mark = _MARK

    async def connect(self) -> Connection:
        """Return the connection, ready for the next turn."""
        connection = await asyncio.shield(self.opened)
        if self.is_touched:
            await connection.execute(self._mark)
            self._mark, self.is_touched = _MARK_ANEW, False
        return connection

    async def undo_turn(self) -> None:
        """Undo the writes of the current attempt."""
        if self.is_touched:
            await self.opened.result().execute(_UNDO)
            self.is_touched = False


class Sharing:
    """The transactions that the attempts of one job share."""

    def __init__(self, pool: TransactionPool, seats: int, write: Write) -> None:
        self._pool: Final = pool
        self._seats: Final = seats
        self._write: Final = write
        self._turn: Final = asyncio.Lock()
        self._waiting = 0
        self._shared: _Shared | None = None
        self._running: Final = set[asyncio.Task[None]]()

    @property
    def is_crowded(self) -> bool:
        """Whether as many attempts want a turn as a transaction has seats."""
        return self._waiting + self._turn.locked() >= self._seats

    async def begin_turn(self) -> tuple[_Shared, Connection]:
        """Wait for the turn; return the transaction.

        Raises:
            SharingUndone: there is none to be had; run alone.
        """
        await self._wait_for_turn()
        shared = self._shared or self._open()
        try:
            return shared, await shared.connect()
        except BaseException as error:
            shared.is_broken = True
            self._pass_on(shared)
            if isinstance(error, Exception):
                raise SharingUndone from error
            raise

    async def _wait_for_turn(self) -> None:
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1
            # An attempt cancelled at the moment of its turn may have been the last waiting one.
            if self._shared is not None and not self._waiting and not self._turn.locked():
                self._close(self._shared)

    async def undo_turn(self, shared: _Shared) -> None:
        """End a turn without keeping its writes."""
        is_undone = False
        try:
            # If this fails the attempt still fails for its own reason, and all is undone.
            with suppress(Exception):
                await shared.undo_turn()
                is_undone = True
        finally:
            shared.is_broken = shared.is_broken or not is_undone
            self._pass_on(shared)

    def end_turn(self, shared: _Shared, settlement: Settlement) -> asyncio.Future[Settled] | None:
        """End a turn; the result comes with the commit. None: it wrote nothing to be kept."""
        if not shared.is_touched:
            self._pass_on(shared)
            return None
        written: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        shared.members.append((settlement, written))
        self._pass_on(shared)
        return written

    def _open(self) -> _Shared:
        self._shared = shared = _Shared()
        task = asyncio.get_running_loop().create_task(self._run(shared))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return shared

    def _pass_on(self, shared: _Shared) -> None:
        """Give the turn to the next; a transaction that is full, broken or alone ends."""
        if shared.is_broken or not self._waiting or len(shared.members) >= self._seats:
            self._close(shared)
        self._turn.release()

    def _close(self, shared: _Shared) -> None:
        self._shared = None
        shared.is_closed.set()

    async def _run(self, shared: _Shared) -> None:
        """Keep a transaction open for the turns, then settle and commit."""
        answers: list[Settled] = []
        try:
            async with self._pool.begin() as connection:
                shared.opened.set_result(connection)
                await shared.is_closed.wait()
                answers = await self._settle(connection, shared)
        except BaseException as error:
            _tell_undone(shared, error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, written), answer in zip(shared.members, answers, strict=True):
            if not written.done():
                written.set_result(answer)

    async def _settle(self, connection: Connection, shared: _Shared) -> list[Settled]:
        if shared.is_broken:
            raise SharingUndone
        settlements = [settlement for settlement, _ in shared.members]
        answers = await self._write(connection, settlements) if settlements else []
        if any(answer.outcome != "settled" for answer in answers):
            raise SharingUndone
        return answers


def _tell_undone(shared: _Shared, error: BaseException) -> None:
    if not shared.opened.done():
        shared.opened.set_exception(error)
        shared.opened.exception()  # there may be no waiter left
    for _, written in shared.members:
        if not written.done():
            undone = SharingUndone()
            undone.__cause__ = error
            written.set_exception(undone)


class SharedTurn:
    """One attempt's turn, from its beginning until it is settled or undone."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing: Final = sharing
        self._shared: _Shared | None = None
        self._connection: Connection | None = None

    async def __aenter__(self) -> "SharedTurn":
        self._shared, self._connection = await self._sharing.begin_turn()
        return self

    async def __aexit__(self, *_: Any) -> None:
        if (shared := self._shared) is not None:
            self._shared = None
            await self._sharing.undo_turn(shared)

    async def begin(self) -> None:
        """Do nothing: the transaction is open."""

    def prepare(self) -> AbstractAsyncContextManager[Connection]:
        """Refuse."""
        return self.complete()

    def complete(self) -> AbstractAsyncContextManager[Connection]:
        """Refuse."""
        raise Refused(ONE_TRANSACTION)

    @property
    def connection(self) -> Connection:
        """The transaction, for as long as this is its turn."""
        if self._shared is None or self._connection is None:
            raise SharingUndone
        self._shared.is_touched = True
        return self._connection

    async def settle(self, settlement: Settlement) -> Settled | None:
        """End the turn; return when it is committed, or None if there is nothing to commit.

        Raises:
            SharingUndone: it was undone; run again, alone.
        """
        assert self._shared is not None
        shared, self._shared = self._shared, None
        written = self._sharing.end_turn(shared, settlement)
        return None if written is None else await written
