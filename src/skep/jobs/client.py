"""Start chains, wait for them, and change what becomes of them; from any process.

`JobClient.start(job, input, tx=connection)` writes inside the user's own transaction: the chain is
there if and only if that commits. Without `tx` it is a transaction of its own. A call whose outcome
is unknown raises `OutcomeUnknown`; to repeat it safely give it a `key` or a `chain_id`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final, Generic, NoReturn, TypeVar
from uuid import UUID

from skep.db.listening import Listener
from skep.db.slots import ONE_OFF, Slots
from skep.db.transactions import TransactionPool
from skep.jobs.awaiting import Awaiting
from skep.jobs.codec import Ref
from skep.jobs.declaration import Continue, Dedup, Job, JobTypes, Start
from skep.jobs.errors import (
    BlockerMissing,
    ChainCancelled,
    ChainClosed,
    ChainExists,
    ChainFailed,
    ChainNotFound,
    ChainReferenced,
    CyclicBlockers,
    JobNotFound,
    JobTypeMismatch,
    NotRetryable,
    NotTriggerable,
    OwnershipLost,
    ResultTimeout,
    SelfBlocked,
)
from skep.jobs.foreign import join
from skep.jobs.inspection import Inspection
from skep.jobs.signals import CHAIN_CLOSED, Announcements, Signals, each_line
from skep.jobs.store import (
    CANCEL_CALL,
    DELETE_CALL,
    ENSURE_TYPES_CALL,
    HOLD_CALL,
    NOTIFY_CALL,
    PRUNE_CALL,
    RETRY_CALL,
    SETTLE_CALL,
    START_CALL,
    TRIGGER_CALL,
    Fetch,
    Settlement,
    Started,
    settle_arguments,
    settled,
    start_arguments,
    started,
)
from skep.model.errors import BadRequest, Defect

_log = logging.getLogger(__name__)

I = TypeVar("I")  # noqa: E741 -- input and output, as in Job[I, O]
O = TypeVar("O")  # noqa: E741

CONNECTIONS: Final = 4
STATEMENT_TIMEOUT_S: Final = 30.0
RESULT_POLL_S: Final = 2.0
PRUNE_BATCH: Final = 500


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
            raise ResultTimeout from None
        if outcome.type != self._job.name:
            raise JobTypeMismatch(f"chain {self.id} is a {outcome.type}, not a {self._job.name}")
        if outcome.state == "failed":
            raise ChainFailed(outcome.error)
        if outcome.state == "cancelled":
            raise ChainCancelled(outcome.error)
        return self._job.decode_output(outcome.output or "null")


class Pending(Generic[I, O]):
    """The open job of a chain that is being completed from outside; locked."""

    def __init__(
        self, job: Job[I, O], value: I, *, chain_id: UUID, job_id: UUID, attempt: int
    ) -> None:
        self.input: Final = value
        self.settlement: Settlement | None = None
        self._job: Final = job
        self._chain_id: Final = chain_id
        self._job_id: Final = job_id
        self._attempt: Final = attempt

    def finish(self, output: O) -> None:
        """Complete the chain."""
        encoded = self._job.encode_output(output)
        self.settlement = Settlement(self._job_id, self._attempt, "completed", output=encoded)

    def go_on(self, continuation: Continue[O]) -> None:
        """Let the chain go on with another job."""
        require_other_chains(continuation, self._chain_id)
        step = continuation.step
        self.settlement = Settlement(self._job_id, self._attempt, "continued", next=step)

    def fail(self, error: str) -> None:
        """Let the chain fail."""
        self.settlement = Settlement(self._job_id, self._attempt, "failed", error=error)


class JobClient:
    """Starts, awaits and administers chains in one database."""

    def __init__(
        self,
        dsn: str,
        *,
        types: Sequence[JobTypes] = (),
        uses_notify: bool = True,
        result_poll_s: float = RESULT_POLL_S,
    ) -> None:
        self.dsn: Final = dsn
        self.uses_notify: Final = uses_notify
        self.types: Final = tuple(types)
        self.slots: Final = Slots(
            dsn,
            size=CONNECTIONS,
            server_settings=ONE_OFF,
            statement_timeout_s=STATEMENT_TIMEOUT_S,
            application_name="skep-jobs",
        )
        self.pool: Final = TransactionPool(dsn, size=CONNECTIONS, application_name="skep-jobs")
        self.announcements: Final = Announcements(self.slots, is_silent=not uses_notify)
        self.awaiting: Final = Awaiting(self.slots, poll_s=result_poll_s)
        self.inspection: Final = Inspection(self.slots)
        self._listener: Final = Listener(
            dsn,
            {CHAIN_CLOSED: each_line(self.awaiting.hear_closed)},
            on_connect=self.awaiting.look_at_all,
        )

    async def __aenter__(self) -> "JobClient":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect.

        Raises:
            Unavailable: the database cannot be reached.
        """
        await self.slots.open()
        await self.pool.open()
        names = [job.name for types in self.types for job in types]
        if names:
            await self.slots.call(ENSURE_TYPES_CALL, names)
        if self.uses_notify:
            self._listener.start()

    async def close(self) -> None:
        """Send what is still to be said, and disconnect."""
        await self.announcements.flush()
        await self._listener.stop()
        await self.awaiting.stop()
        await self.pool.close()
        await self.slots.close()

    async def start(
        self,
        job: Job[I, O],
        value: I,
        *,
        tx: object = None,
        chain_id: UUID | None = None,
        after: timedelta | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        key: str | Dedup | None = None,
        limit_key: str | None = None,
        deadline: timedelta | None = None,
        blockers: Sequence[Ref[Any]] = (),
        fails_with_blockers: bool = False,
        parent: UUID | None = None,
    ) -> Chain[O]:
        """Start a chain; see `Start` for what can be asked for.

        Raises:
            InvalidInput, DuplicateBlocker, BlockerMissing, ChainExists, TransactionRequired:
                nothing was written.
        """
        start = Start(
            job,
            value,
            chain_id=chain_id,
            after=after,
            at=at,
            priority=priority,
            key=key,
            limit_key=limit_key,
            deadline=deadline,
            blockers=blockers,
            fails_with_blockers=fails_with_blockers,
            parent=parent,
        )
        (chain,) = await self.start_many([start], tx=tx)
        return chain

    async def start_many(self, starts: Sequence[Start[O]], *, tx: object = None) -> list[Chain[O]]:
        """Start chains, all of them or none, in one call; return them in the same order."""
        if not starts:
            return []
        fetch: Fetch = self.slots.call if tx is None else join(tx).fetch
        rows = await fetch(START_CALL, *start_arguments(starts, notify=tx is not None))
        chains = self._chains(starts, started(rows))
        if tx is None:
            pairs = zip(starts, chains, strict=True)
            names = [start.step.job.name for start, chain in pairs if not chain.is_duplicate]
            self.announcements.add(Signals(types_ready=names))
        return chains

    def start_sync(self, start: Start[O], *, tx: object) -> Chain[O]:
        """Start a chain in the transaction of a driver that blocks."""
        rows = join(tx).fetch_sync(START_CALL, *start_arguments([start], notify=True))
        (chain,) = self._chains([start], started(rows))
        return chain

    def chain(self, job: Job[Any, O], chain_id: UUID) -> Chain[O]:
        """Return a chain that somebody else started with this job."""
        return Chain(self, job, chain_id)

    async def cancel(
        self,
        *chain_ids: UUID,
        cascade: bool = False,
        reason: str | None = None,
        tx: object = None,
    ) -> dict[UUID, str]:
        """Cancel chains, with `cascade` also those that wait for them.

        Return the state each is in now; those that had ended before keep theirs.

        Raises:
            ChainNotFound: one does not exist; the others are cancelled all the same.
        """
        rows = await self._fetch(tx)(CANCEL_CALL, list(chain_ids), cascade, reason)
        signals = Signals(
            chains_closed=[row[0] for row in rows if row[1] == "cancelled"],
            jobs_lost=[row[2] for row in rows if row[2] is not None],
        )
        await self._announce(tx, signals)
        _require_found(chain_ids, rows)
        return {row[0]: row[1] for row in rows}

    async def retry(self, *chain_ids: UUID, tx: object = None) -> None:
        """Let failed and cancelled chains go on from the job at which they ended.

        Raises:
            ChainNotFound, NotRetryable: one of them cannot; the others go on.
        """
        rows = await self._fetch(tx)(RETRY_CALL, list(chain_ids))
        retried = [row[2] for row in rows if row[1] == "retried"]
        await self._announce(tx, Signals(types_ready=retried))
        _require_found(chain_ids, rows)
        for chain_id, outcome, _ in rows:
            if outcome == "key_taken":
                raise NotRetryable(f"another chain holds the key of chain {chain_id} now")
            if outcome != "retried":
                raise NotRetryable(f"chain {chain_id} is {outcome}")

    async def delete(
        self, *chain_ids: UUID, cascade: bool = False, tx: object = None
    ) -> list[UUID]:
        """Delete chains, with `cascade` also those that their jobs wait or waited for.

        Return the ids of those that are gone; chains that did not exist are passed over.

        Raises:
            ChainReferenced: a job of another chain needs one of them; nothing was deleted.
        """
        rows = await self._fetch(tx)(DELETE_CALL, list(chain_ids), cascade)
        references: dict[UUID, list[UUID]] = {}
        for chain_id, referenced_by in rows:
            if referenced_by is not None:
                references.setdefault(chain_id, []).append(referenced_by)
        if references:
            raise ChainReferenced(
                f"nothing was deleted: jobs of others need {len(references)} of the chains",
                references=references,
            )
        gone = [row[0] for row in rows]
        await self._announce(tx, Signals(chains_closed=gone))
        return gone

    async def prune(
        self, before: datetime, *, states: Sequence[str] = ("completed", "failed", "cancelled")
    ) -> int:
        """Delete chains that were closed before then, in batches; return how many."""
        deleted, at, chain_id = 0, None, None
        while True:
            ((count, at, chain_id),) = await self.slots.call(
                PRUNE_CALL, before, list(states), PRUNE_BATCH, at, chain_id
            )
            deleted += count
            if chain_id is None:
                return deleted

    async def trigger(self, *job_ids: UUID, tx: object = None) -> None:
        """Let scheduled jobs run now, all of them or none.

        Raises:
            JobNotFound, NotTriggerable: nothing was changed.
        """
        rows = await self._fetch(tx)(TRIGGER_CALL, list(job_ids))
        for job_id, outcome, _ in rows:
            if outcome == "missing":
                raise JobNotFound(f"there is no job {job_id}")
            if outcome != "triggered":
                raise NotTriggerable(f"job {job_id} is {outcome}")
        await self._announce(tx, Signals(types_ready=[row[2] for row in rows]))

    @asynccontextmanager
    async def resolve(
        self, chain_id: UUID, job: Job[I, O], *, tx: object = None
    ) -> AsyncGenerator[Pending[I, O]]:
        """Complete the open job of a chain from outside, without a worker.

        The job is locked for the block, which says what becomes of it; if it says nothing, nothing
        does. A worker that runs the job is told to stop.

        Raises:
            ChainNotFound, ChainClosed: there is nothing to complete.
            JobTypeMismatch: the open job is another one than `job`.
            CyclicBlockers, BlockerMissing: a continuation cannot wait for what it wants to.
        """
        if tx is not None:
            async with self._resolving(join(tx).fetch, chain_id, job) as pending:
                yield pending
            return
        async with (
            self.pool.begin() as connection,
            self._resolving(connection.fetch, chain_id, job) as pending,
        ):
            yield pending

    @asynccontextmanager
    async def _resolving(
        self, fetch: Fetch, chain_id: UUID, job: Job[I, O]
    ) -> AsyncGenerator[Pending[I, O]]:
        rows = await fetch(HOLD_CALL, chain_id)
        if not rows:
            raise ChainNotFound(f"there is no chain {chain_id}")
        state, _, job_id, attempt, job_type, value, is_running = rows[0]
        if state != "open":
            raise ChainClosed(f"chain {chain_id} is {state}")
        if job_type != job.name:
            raise JobTypeMismatch(f"the open job of chain {chain_id} is a {job_type}")
        pending = Pending(
            job, job.decode_input(value), chain_id=chain_id, job_id=job_id, attempt=attempt
        )
        yield pending
        if (settlement := pending.settlement) is None:
            return
        (answer,) = settled(
            await fetch(SETTLE_CALL, *settle_arguments(None, [settlement], wait=True))
        )
        require_settled(answer.outcome)
        next_types = [settlement.next.job.name] if settlement.next else []
        signals = Signals(
            types_ready=[*answer.woken, *next_types],
            chains_closed=answer.closed,
            jobs_lost=[job_id] if is_running else [],
        )
        await self._announce_in(fetch, signals)

    async def _announce(self, tx: object, signals: Signals) -> None:
        if tx is None:
            self.announcements.add(signals)
        else:
            await self._announce_in(join(tx).fetch, signals)

    async def _announce_in(self, fetch: Fetch, signals: Signals) -> None:
        """Say it when the transaction commits, and not before: nobody could see it yet."""
        if self.uses_notify and (payloads := signals.payloads()):
            await fetch(NOTIFY_CALL, *zip(*payloads, strict=True))

    def _fetch(self, tx: object) -> Fetch:
        return self.slots.call if tx is None else join(tx).fetch

    def _chains(self, starts: Sequence[Start[O]], answers: Sequence[Started]) -> list[Chain[O]]:
        for answer in answers:
            if answer.outcome == "exists":
                raise ChainExists
            if answer.outcome == "missing_blocker":
                raise BlockerMissing
        return [
            Chain(self, start.step.job, a.chain_id, is_duplicate=a.outcome == "duplicate")
            for start, a in zip(starts, answers, strict=True)
        ]


def require_other_chains(continuation: Continue[Any], chain_id: UUID) -> None:
    """Refuse a continuation that waits for its own chain."""
    if any(ref.id == chain_id for ref in continuation.step.blockers):
        raise SelfBlocked


def require_settled(outcome: str) -> None:
    """Raise what an outcome other than `settled` means."""
    if outcome == "lost":
        raise OwnershipLost
    if outcome == "missing_blocker":
        raise BlockerMissing
    if outcome == "cyclic":
        raise CyclicBlockers
    if outcome != "settled":
        _refuse(outcome)


def _refuse(outcome: str) -> NoReturn:
    raise Defect(f"an unexpected outcome: {outcome}")


def _require_found(chain_ids: Sequence[UUID], rows: Sequence[Any]) -> None:
    if not chain_ids:
        raise BadRequest("no chain is named")
    for row in rows:
        if row[1] == "missing":
            raise ChainNotFound(f"there is no chain {row[0]}")
