"""Start chains, wait for them and change them, from any process.

`JobClient.start(job, input, tx=connection)` writes inside the user's own transaction: the chain is
there if and only if that commits. Without `tx` it is a transaction of its own. A call whose outcome
is unknown raises `OutcomeUnknown`; to repeat it safely give it a `key` or a `chain_id`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, Generic, TypeVar, Unpack
from uuid import UUID

from skep.db.access.foreign import join
from skep.db.access.listening import Listener
from skep.db.access.slots import ONE_OFF, Slots
from skep.db.access.transactions import TransactionPool
from skep.jobs import errors, store
from skep.jobs.client import control
from skep.jobs.client.awaiting import Awaiting
from skep.jobs.client.bulk import Bulk
from skep.jobs.client.inspection import Inspection
from skep.jobs.declare.codec import Ref
from skep.jobs.declare.declaration import Continue, Job, JobTypes, Start, StartOptions
from skep.jobs.signals import CHAIN_CLOSED, Announcements, each_line
from skep.jobs.store import Settlement, Started, start_arguments, started
from skep.jobs.worker.tracing import Propagation, Tracing
from skep.model.schema_name import DEFAULT_SCHEMA, split_schema, with_schema

_log = logging.getLogger(__name__)

I = TypeVar("I")  # noqa: E741 -- input and output, as in Job[I, O]
O = TypeVar("O")  # noqa: E741

CONNECTIONS: Final = 4
STATEMENT_TIMEOUT_S: Final = 30.0
RESULT_POLL_S: Final = 2.0


class Chain(Generic[O]):
    """A chain that yields an `O`."""

    def __init__(
        self, client: "JobClient", job: Job[Any, O], chain_id: UUID, *, is_duplicate: bool = False
    ) -> None:
        self._client: Final = client
        self._job: Final = job
        self.id: Final = chain_id
        self.is_duplicate: Final = is_duplicate
        """Whether it was there already: the start found its key held."""

    @property
    def ref(self) -> Ref[O]:
        """What stands for its output in the input of a job that waits for it."""
        return Ref(self.id)

    async def result(self, *, timeout: float | None = None) -> O:  # noqa: ASYNC109 -- part of the API
        """Return what the chain yields, once it has.

        Raises:
            ResultTimeout: it goes on; wait again if you like.
            ChainFailed, ChainCancelled: it will not yield anything.
            ChainNotFound: it was deleted.
        """
        try:
            async with asyncio.timeout(timeout):
                outcome = await self._client.awaiting.outcome(self.id)
        except TimeoutError:
            raise errors.ResultTimeout from None
        if outcome.type != self._job.name:
            raise errors.JobTypeMismatch(
                f"chain {self.id} is a {outcome.type}, not a {self._job.name}"
            )
        if outcome.state == "failed":
            raise errors.ChainFailed(outcome.error)
        if outcome.state == "cancelled":
            raise errors.ChainCancelled(outcome.error)
        return self._job.output.decode(outcome.output or "null")


class Pending(Generic[I, O]):
    """The open job of a chain that is being completed from outside; locked."""

    def __init__(self, job: Job[I, O], held: control.HeldJob) -> None:
        self.input: Final = job.input.decode(held.input)
        self.settlement: Settlement | None = None
        self._job: Final = job
        self._held: Final = held

    def finish(self, output: O) -> None:
        """Complete the chain."""
        encoded = self._job.output.encode(output)
        self.settlement = Settlement(*self._held.token, "completed", output=encoded)

    def go_on(self, continuation: Continue[O]) -> None:
        """Let the chain go on with another job."""
        step = continuation.step
        control.require_other_chains(step, self._held.chain_id)
        self.settlement = Settlement(*self._held.token, "continued", next=step)

    def fail(self, error: str) -> None:
        """Let the chain fail."""
        self.settlement = Settlement(*self._held.token, "failed", error=error)


class JobClient(control.ChainControl):
    """Starts, awaits and administers chains in one database."""

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = DEFAULT_SCHEMA,
        types: Sequence[JobTypes] = (),
        uses_notify: bool = True,
        result_poll_s: float = RESULT_POLL_S,
        tracing: Tracing | None = None,
    ) -> None:
        dsn = with_schema(dsn, schema)
        self.slots: Final = Slots(
            dsn,
            size=CONNECTIONS,
            server_settings=ONE_OFF,
            statement_timeout_s=STATEMENT_TIMEOUT_S,
            application_name="skep-jobs",
        )
        super().__init__(
            self.slots,
            Announcements(self.slots, is_silent=not uses_notify),
            uses_notify=uses_notify,
            schema=split_schema(dsn)[1],
        )
        self.dsn: Final = dsn
        """Of the installation: it names the schema, unless that is the default."""
        self.types: Final = tuple(types)
        self.tracing: Final = tracing or Propagation()
        self.pool: Final = TransactionPool(dsn, size=CONNECTIONS, application_name="skep-jobs")
        self.awaiting: Final = Awaiting(self.slots, poll_s=result_poll_s)
        self.inspection: Final = Inspection(self.slots)
        self.bulk: Final = Bulk(self.slots, self.announcements)
        self._listener: Final = Listener(
            dsn,
            {CHAIN_CLOSED: each_line(self.awaiting.hear_closed)},
            on_connect=self.awaiting.check_all,
        )

    async def __aenter__(self) -> "JobClient":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect; Unavailable if the database cannot be reached."""
        await self.slots.open()
        await self.pool.open()
        names = [job.name for types in self.types for job in types]
        if names:
            await self.slots.call(store.ENSURE_TYPES_CALL, names)
        if self.uses_notify:
            self._listener.start()

    async def close(self) -> None:
        """Send the signals gathered so far, and disconnect."""
        await self.announcements.flush()
        await self._listener.stop()
        await self.awaiting.stop()
        await self.pool.close()
        await self.slots.close()

    async def start(
        self, job: Job[I, O], value: I, *, tx: object = None, **options: Unpack[StartOptions]
    ) -> Chain[O]:
        """Start a chain; `Start` has the same arguments.

        Raises:
            InvalidInput, DuplicateBlocker, BlockerMissing, ChainExists, NoTransaction:
                nothing was written.
        """
        (chain,) = await self.start_many([Start(job, value, **options)], tx=tx)
        return chain

    async def start_many(self, starts: Sequence[Start[O]], *, tx: object = None) -> list[Chain[O]]:
        """Start chains, all of them or none, in one call; return them in the same order."""
        if not starts:
            return []
        answers = await self.start_chains(starts, traces=self._traces(starts), tx=tx)
        return self._chains(starts, answers)

    def start_sync(self, start: Start[O], *, tx: object) -> Chain[O]:
        """Start a chain in the transaction of a driver that blocks."""
        arguments = start_arguments([start], notify=True, traces=self._traces([start]))
        answers = started(join(tx, self.schema).fetch_sync(store.START_CALL, *arguments))
        control.require_started(answers)
        return self._chains([start], answers)[0]

    def chain(self, job: Job[Any, O], chain_id: UUID) -> Chain[O]:
        """Return a chain that another process started with this job."""
        return Chain(self, job, chain_id)

    @asynccontextmanager
    async def resolve(
        self, chain_id: UUID, job: Job[I, O], *, tx: object = None
    ) -> AsyncGenerator[Pending[I, O]]:
        """Complete the open job of a chain from outside, without a worker.

        The job is locked for the block, which calls `finish`, `go_on` or `fail`; without any of
        them nothing changes. A worker that runs the job is told to stop.

        Raises:
            ChainNotFound, ChainClosed: there is nothing to complete.
            JobTypeMismatch: the open job is another one than `job`.
            CyclicBlockers, BlockerMissing: a continuation cannot wait for its blockers.
        """
        async with AsyncExitStack() as stack:
            if tx is None:
                tx = await stack.enter_async_context(self.pool.begin())
            fetch = join(tx, self.schema).fetch
            held = control.held_job(chain_id, await fetch(store.HOLD_CALL, chain_id))
            held.require_type(job.name)
            pending = Pending(job, held)
            yield pending
            if pending.settlement is not None:
                signals = await self._settle(fetch, held, pending.settlement)
                if signals is None:
                    raise errors.OwnershipLost
                await self._announce_in(fetch, signals)

    def _traces(self, starts: Sequence[Start[Any]]) -> list[str | None]:
        return [self.tracing.starting(start.step.job.name, start.step.id) for start in starts]

    def _chains(self, starts: Sequence[Start[O]], answers: Sequence[Started]) -> list[Chain[O]]:
        return [
            Chain(self, start.step.job, each.chain_id, is_duplicate=each.is_duplicate)
            for start, each in zip(starts, answers, strict=True)
        ]
