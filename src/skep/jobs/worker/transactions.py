"""The transactions of one attempt: its own, or its turn in one that it shares.

    staged     `prepare()` any number of times; `complete()` once, which the completion is part of
    atomic     one from the beginning to the completion, `connection`; a handler that never uses it
               leaves it to the next attempt, and is settled like any other
    together   the same, in turns with other attempts of the job (`sharing`)

`settle` writes the completion into the transaction of the handler; None says that there is none.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import UUID

from skep.db.access.connection import Connection
from skep.db.access.errors import translate
from skep.db.access.transactions import Reuse, TransactionPool
from skep.jobs.client.control import require_settled
from skep.jobs.declare.context import Transactions
from skep.jobs.declare.declaration import Job
from skep.jobs.errors import OwnershipLost
from skep.jobs.store import (
    COMPLETE_CALL,
    KEEP_CALL,
    SETTLE_CALL,
    Claimed,
    Settled,
    Settlement,
    settle_arguments,
    settled,
)
from skep.jobs.worker.sharing import ONE_TRANSACTION, Sharing
from skep.model.errors import Refused
from skep.model.schema_name import Schema


class AttemptTransactions(Transactions, Protocol):
    """The transactions of an attempt, and how its completion gets into them."""

    async def __aenter__(self) -> object:
        """Get ready."""
        ...

    async def __aexit__(self, *error: Any) -> None:
        """Commit, or undo after an error."""
        ...

    async def begin(self) -> None:
        """Open the transaction that the handler must find open."""
        ...

    async def settle(self, settlement: Settlement) -> Settled | None:
        """Write a completion where the handler wrote; None if it wrote nowhere."""
        ...


@dataclass(slots=True)
class Habit:
    """Whether the last attempt of an atomic job used its transaction: the next one may, too."""

    uses_transaction: bool = True


class TransactionProvider:
    """Gives attempts their transactions."""

    def __init__(self, pool: TransactionPool, worker_id: Callable[[], UUID]) -> None:
        self._pool: Final = pool
        self._worker_id: Final = worker_id
        self._shared: Final[dict[str, list[Sharing]]] = {}
        self._habits: Final[dict[str, Habit]] = {}

    def of(
        self, job: Job[Any, Any], claimed: Claimed, *, since: float, is_alone: bool
    ) -> AttemptTransactions:
        """Return those of an attempt; `since`: of its claim; `is_alone`: it must not share."""
        if job.together == 1 or is_alone:
            habit = None
            if job.mode == "atomic":
                habit = self._habits.setdefault(job.name, Habit())
            return OwnTransactions(self._pool, claimed, self._worker_id(), habit, since)
        return self._sharing(job).turn()

    def _sharing(self, job: Job[Any, Any]) -> Sharing:
        """Return one with room: transactions are filled first, then run side by side."""
        sharings = self._shared.setdefault(job.name, [])
        for sharing in sharings:
            if not sharing.is_crowded:
                return sharing
        sharings.append(Sharing(self._pool, job.together, self._write))
        return sharings[-1]

    async def _write(
        self, connection: Connection, settlements: Sequence[Settlement]
    ) -> list[Settled]:
        # Without waiting: a chain that another transaction holds must not hold up the others.
        return await _settle_in(
            connection, self._pool.schema, self._worker_id(), settlements, wait=False
        )


class OwnTransactions(AttemptTransactions):
    """Transactions that one attempt has for itself; the completing one ends with the handler."""

    def __init__(
        self,
        pool: TransactionPool,
        claimed: Claimed,
        worker_id: UUID,
        habit: Habit | None,
        since: float,
    ) -> None:
        """`habit`: of a job in atomic mode; `since`: when it was claimed, by the loop's clock."""
        self._pool: Final = pool
        self._claimed: Final = claimed
        self._worker_id: Final = worker_id
        self._habit: Final = habit
        self._since: Final = since
        self._stack: Final = AsyncExitStack()
        self._completing: Connection | None = None
        self._is_used = False

    async def __aenter__(self) -> "OwnTransactions":
        return self

    async def __aexit__(self, *error: Any) -> None:
        if self._habit is not None:
            self._habit.uses_transaction = self._is_used
        await self._stack.__aexit__(*error)

    async def begin(self) -> None:
        """Open what an atomic job runs in."""
        if self._habit is not None:
            is_idle = not self._habit.uses_transaction
            reuse = Reuse(lambda: self._is_used, self._since, is_likely=is_idle)
            self._completing = await self._stack.enter_async_context(self._pool.begin(reuse))

    @property
    def connection(self) -> Connection:
        """The transaction of an atomic job."""
        if self._habit is None or self._completing is None:
            raise Refused(
                'ctx.connection needs mode="atomic": use ctx.prepare() or ctx.complete() instead'
            )
        self._is_used = True
        return self._completing

    def prepare(self) -> AbstractAsyncContextManager[Connection]:
        """Open a transaction that commits at the end of the block."""
        if self._habit is not None:
            raise Refused(ONE_TRANSACTION)
        return self._pool.begin()

    @asynccontextmanager
    async def complete(self) -> AsyncGenerator[Connection]:
        """Open the transaction that the completion is part of, if the job is still ours."""
        if self._completing is not None:
            raise Refused(
                "the completing transaction is open already: use ctx.complete() once, and "
                "ctx.connection in atomic mode"
            )
        claimed = self._claimed
        connection = await self._stack.enter_async_context(self._pool.begin())
        token = (self._worker_id, claimed.attempt)
        keep = self._pool.schema.spelled(KEEP_CALL)
        if not await connection.fetchval(keep, claimed.chain_id, claimed.job_id, *token):
            raise OwnershipLost
        self._completing, self._is_used = connection, True
        yield connection

    async def settle(self, settlement: Settlement) -> Settled | None:
        """Settle in the transaction that the handler opened, if it did."""
        if self._completing is None or not self._is_used:
            return None
        schema = self._pool.schema
        if settlement.outcome == "completed":
            answer = await _complete_in(
                self._completing, schema, self._worker_id, self._claimed.chain_id, settlement
            )
        else:
            (answer,) = await _settle_in(
                self._completing, schema, self._worker_id, [settlement], wait=True
            )
        require_settled(answer.outcome)
        return answer


async def _complete_in(
    connection: Connection,
    schema: Schema,
    worker_id: UUID,
    chain_id: UUID,
    settlement: Settlement,
) -> Settled:
    token = (settlement.job_id, settlement.attempt)
    try:
        complete = schema.spelled(COMPLETE_CALL)
        (row,) = await connection.fetch(complete, worker_id, chain_id, *token, settlement.output)
    except Exception as error:
        raise translate(error) from error
    return Settled(*row)


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
