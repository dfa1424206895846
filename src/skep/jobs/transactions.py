"""The transactions of one attempt: its own, or its turn in one that it shares.

    staged     `prepare()` as often as it likes; `complete()` once, which the completion is part of
    atomic     one from the beginning to the completion, `connection`
    together   the same, in turns with other attempts of the job (`sharing`)

Whatever the handler has, `settle` writes the completion into it and `None` says that there is none.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final, Protocol
from uuid import UUID

from skep.db.connection import Connection
from skep.db.errors import translate
from skep.db.transactions import TransactionPool
from skep.jobs.context import Transactions
from skep.jobs.control import require_settled
from skep.jobs.declaration import Job
from skep.jobs.errors import OwnershipLost
from skep.jobs.sharing import SharedTurn, Sharing
from skep.jobs.store import (
    KEEP_CALL,
    SETTLE_CALL,
    Claimed,
    Settled,
    Settlement,
    settle_arguments,
    settled,
)
from skep.model.errors import Refused
from skep.model.schema_name import Schema


class AttemptTransactions(Transactions, Protocol):
    """What an attempt has of the database, and how its end gets in there."""

    async def __aenter__(self) -> "AttemptTransactions":
        """Get ready."""
        ...

    async def __aexit__(self, *error: Any) -> None:
        """Commit what is to be kept, undo what is not."""
        ...

    async def begin(self) -> None:
        """Open what the handler must find open."""
        ...

    async def settle(self, settlement: Settlement) -> Settled | None:
        """Write a completion where the handler wrote; None if it wrote nowhere."""
        ...


class TransactionDesk:
    """Gives attempts their transactions."""

    def __init__(self, pool: TransactionPool, worker_id: Callable[[], UUID]) -> None:
        self._pool: Final = pool
        self._worker_id: Final = worker_id
        self._shared: Final[dict[str, list[Sharing]]] = {}

    def of(self, job: Job[Any, Any], claimed: Claimed, *, is_alone: bool) -> AttemptTransactions:
        """Return those of an attempt; `is_alone`: it must not share."""
        if job.together == 1 or is_alone:
            return OwnTransactions(
                self._pool, claimed, self._worker_id(), is_atomic=job.mode == "atomic"
            )
        return SharedTransaction(self._sharing(job).turn())

    def _sharing(self, job: Job[Any, Any]) -> Sharing:
        """Return where there is room: transactions are filled first, then run side by side."""
        rows = self._shared.setdefault(job.name, [])
        for sharing in rows:
            if not sharing.is_crowded:
                return sharing
        rows.append(Sharing(self._pool, job.together, self._write))
        return rows[-1]

    async def _write(
        self, connection: Connection, settlements: Sequence[Settlement]
    ) -> list[Settled]:
        # Without waiting: one chain that somebody holds must not hold up the others.
        return await _settle_in(
            connection, self._pool.schema, self._worker_id(), settlements, wait=False
        )


class OwnTransactions(AttemptTransactions):
    """Transactions that one attempt has for itself; the completing one ends with the handler."""

    def __init__(
        self, pool: TransactionPool, claimed: Claimed, worker_id: UUID, *, is_atomic: bool
    ) -> None:
        self._pool: Final = pool
        self._claimed: Final = claimed
        self._worker_id: Final = worker_id
        self._is_atomic: Final = is_atomic
        self._stack: Final = AsyncExitStack()
        self._completing: Connection | None = None

    async def __aenter__(self) -> "OwnTransactions":
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)

    async def begin(self) -> None:
        """Open what an atomic job runs in."""
        if self._is_atomic:
            self._completing = await self._stack.enter_async_context(self._pool.begin())

    @property
    def connection(self) -> Connection:
        """The transaction of an atomic job."""
        if not self._is_atomic or self._completing is None:
            raise Refused("only jobs in atomic mode have a connection for their whole attempt")
        return self._completing

    def prepare(self) -> AbstractAsyncContextManager[Connection]:
        """Open a transaction that commits at the end of the block."""
        if self._is_atomic:
            raise Refused("a job in atomic mode has one transaction, `connection`")
        return self._pool.begin()

    @asynccontextmanager
    async def complete(self) -> AsyncGenerator[Connection]:
        """Open the transaction that the completion is part of, if the job is still ours."""
        if self._completing is not None:
            raise Refused("a job completes once")
        claimed = self._claimed
        connection = await self._stack.enter_async_context(self._pool.begin())
        token = (self._worker_id, claimed.attempt)
        keep = self._pool.schema.spelled(KEEP_CALL)
        if not await connection.fetchval(keep, claimed.chain_id, claimed.job_id, *token):
            raise OwnershipLost
        self._completing = connection
        yield connection

    async def settle(self, settlement: Settlement) -> Settled | None:
        """Settle in the transaction that the handler opened, if it did."""
        if self._completing is None:
            return None
        (answer,) = await _settle_in(
            self._completing, self._pool.schema, self._worker_id, [settlement], wait=True
        )
        require_settled(answer.outcome)
        return answer


class SharedTransaction(AttemptTransactions):
    """A turn in a transaction with other attempts of the job."""

    def __init__(self, turn: SharedTurn) -> None:
        self._turn: Final = turn

    async def __aenter__(self) -> "SharedTransaction":
        await self._turn.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._turn.__aexit__(*error)

    async def begin(self) -> None:
        """Nothing is left to be opened: the turn has come."""

    @property
    def connection(self) -> Connection:
        """The transaction."""
        return self._turn.connection

    def prepare(self) -> AbstractAsyncContextManager[Connection]:
        """Refuse."""
        return self.complete()

    def complete(self) -> AbstractAsyncContextManager[Connection]:
        """Refuse."""
        raise Refused("a job in atomic mode has one transaction, `connection`")

    async def settle(self, settlement: Settlement) -> Settled | None:
        """End the turn; return when all of them are committed."""
        return await self._turn.settle(settlement)


async def _settle_in(
    connection: Connection,
    schema: Schema,
    worker_id: UUID,
    settlements: Sequence[Settlement],
    *,
    wait: bool,
) -> list[Settled]:
    try:
        rows = await connection.fetch(
            schema.spelled(SETTLE_CALL), *settle_arguments(worker_id, settlements, wait=wait)
        )
    except Exception as error:
        raise translate(error) from error
    return settled(rows)
