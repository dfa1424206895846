"""The transactions of one attempt: its own, or its turn in one that it shares.

    staged     `prepare()` any number of times; `complete()` once, which the completion is part of
    atomic     one from the beginning to the completion, `connection`; a handler that never uses it
               leaves it to the next attempt, and is settled like any other
    together   the same, in turns with other attempts of the job (`sharing`)

`settle` writes the completion into the transaction of the handler; None says that there is none.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from skep.db.access.connection import Connection
from skep.db.access.errors import translate
from skep.db.access.transactions import Reuse, TransactionPool
from skep.jobs import store
from skep.jobs.client.control import require_settled
from skep.jobs.declare.declaration import Job
from skep.jobs.errors import OwnershipLost
from skep.jobs.store import Claimed, Settled, Settlement, settle_arguments, settled
from skep.jobs.worker.sharing import ONE_TRANSACTION, SharedTurn, Sharing
from skep.model.errors import Refused


@dataclass(frozen=True, slots=True)
class TransactionProvider:
    """Gives attempts their transactions."""

    pool: TransactionPool
    worker_id: Callable[[], UUID]
    shared: dict[str, list[Sharing]] = field(default_factory=dict[str, list[Sharing]])
    idle: set[str] = field(default_factory=set[str])
    """Atomic jobs whose last attempt did not use its transaction: the next may not, either."""

    def of(
        self, job: Job[Any, Any], claimed: Claimed, *, since: float, is_alone: bool
    ) -> "OwnTransactions | SharedTurn":
        """Return those of an attempt; `since`: of its claim; `is_alone`: it must not share."""
        if job.together == 1 or is_alone:
            return OwnTransactions(self.pool, job, claimed, self.worker_id(), self.idle, since)
        return SharedTurn(self._sharing(job))

    def _sharing(self, job: Job[Any, Any]) -> Sharing:
        """Return one with room: transactions are filled first, then run side by side."""
        sharings = self.shared.setdefault(job.name, [])
        for sharing in sharings:
            if not sharing.is_crowded:
                return sharing
        sharings.append(Sharing(self.pool, job.together, self._write))
        return sharings[-1]

    async def _write(
        self, connection: Connection, settlements: Sequence[Settlement]
    ) -> list[Settled]:
        # Without waiting: a chain that another transaction holds must not hold up the others.
        arguments = settle_arguments(self.worker_id(), settlements, wait=False)
        return settled(await _fetch(self.pool, connection, store.SETTLE_CALL, *arguments))


@dataclass(slots=True, eq=False)
class OwnTransactions:
    """Transactions that one attempt has for itself; the completing one ends with the handler."""

    pool: TransactionPool
    job: Job[Any, Any]
    claimed: Claimed
    worker_id: UUID
    idle: set[str]
    """Jobs that leave it unused."""
    since: float
    """When it was claimed, by the loop's clock."""
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    completing: Connection | None = None
    is_used: bool = False

    async def __aenter__(self) -> "OwnTransactions":
        return self

    async def __aexit__(self, *error: Any) -> None:
        if self.is_used:
            self.idle.discard(self.job.name)
        elif self.job.mode == "atomic":
            self.idle.add(self.job.name)
        await self.stack.__aexit__(*error)

    async def begin(self) -> None:
        """Open what an atomic job runs in."""
        if self.job.mode == "atomic":
            is_idle = self.job.name in self.idle
            reuse = Reuse(lambda: self.is_used, self.since, is_likely=is_idle)
            self.completing = await self.stack.enter_async_context(self.pool.begin(reuse))

    @property
    def connection(self) -> Connection:
        """The transaction of an atomic job."""
        if self.job.mode != "atomic" or self.completing is None:
            raise Refused(
                'ctx.connection needs mode="atomic": use ctx.prepare() or ctx.complete() instead'
            )
        self.is_used = True
        return self.completing

    def prepare(self) -> AbstractAsyncContextManager[Connection]:
        """Open a transaction that commits at the end of the block."""
        if self.job.mode == "atomic":
            raise Refused(ONE_TRANSACTION)
        return self.pool.begin()

    @asynccontextmanager
    async def complete(self) -> AsyncGenerator[Connection]:
        """Open the transaction that the completion is part of, if the job is still ours."""
        if self.completing is not None:
            raise Refused(
                "the completing transaction is open already: use ctx.complete() once, and "
                "ctx.connection in atomic mode"
            )
        claimed = self.claimed
        connection = await self.stack.enter_async_context(self.pool.begin())
        token = (self.worker_id, claimed.attempt)
        keep = self.pool.schema.spelled(store.KEEP_CALL)
        if not await connection.fetchval(keep, claimed.chain_id, claimed.job_id, *token):
            raise OwnershipLost
        self.completing, self.is_used = connection, True
        yield connection

    async def settle(self, settlement: Settlement) -> Settled | None:
        """Settle in the transaction that the handler opened, if it did."""
        if self.completing is None or not self.is_used:
            return None
        if settlement.outcome == "completed":
            job = (self.claimed.chain_id, *self.claimed.token)
            call, arguments = store.COMPLETE_CALL, [self.worker_id, *job, settlement.output]
        else:
            call = store.SETTLE_CALL
            arguments = settle_arguments(self.worker_id, [settlement], wait=True)
        (answer,) = settled(await _fetch(self.pool, self.completing, call, *arguments))
        require_settled(answer.outcome)
        return answer


async def _fetch(
    pool: TransactionPool, connection: Connection, call: str, *arguments: object
) -> Sequence[Any]:
    try:
        return await connection.fetch(pool.schema.spelled(call), *arguments)
    except Exception as error:
        raise translate(error) from error
