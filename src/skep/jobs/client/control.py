"""Change chains, jobs and types by their ids and names: cancel, retry, delete, settle.

Each method is one call, in the user's transaction if one is given. Signals are sent when it is
committed, and not before.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from skep.db.access.foreign import join
from skep.db.access.slots import Caller
from skep.jobs import errors, store
from skep.jobs.declare.declaration import Start, Step
from skep.jobs.signals import Announcements, Signals
from skep.jobs.store import (
    Fetch,
    Settlement,
    Started,
    settle_arguments,
    settled,
    start_arguments,
    started,
)
from skep.model.errors import BadRequest, Defect, SkepError
from skep.model.schema_name import Schema

_DEFAULT: Final = Schema()
CLOSED_STATES: Final = ("completed", "failed", "cancelled")
PRUNE_BATCH: Final = 500
SETTLE_TRIES: Final = 10
"""How often a chain may move on between reading and settling it."""
_READY: Final = frozenset({"retried", "triggered"})


@dataclass(frozen=True, slots=True)
class HeldJob:
    """The open job of a chain, and the token by which it is settled."""

    chain_id: UUID
    job_id: UUID
    attempt: int
    type: str
    input: str
    is_running: bool

    @property
    def token(self) -> tuple[UUID, int]:
        """Proves which attempt of which job is settled."""
        return self.job_id, self.attempt

    def require_type(self, expected: str) -> None:
        """Refuse a job of another type."""
        if self.type != expected:
            raise errors.JobTypeMismatch(
                f"the open job of chain {self.chain_id} is {self.type!r}, not {expected!r}"
            )


class ChainControl:
    """Changes chains by their ids."""

    def __init__(
        self,
        caller: Caller,
        announcements: Announcements,
        *,
        uses_notify: bool = True,
        schema: Schema = _DEFAULT,
    ) -> None:
        self.announcements: Final = announcements
        self.schema: Final = schema
        """In which the transactions of users find chains; a caller knows its own."""
        self.uses_notify: Final = uses_notify
        self._caller: Final = caller

    async def start_chains(
        self, starts: Sequence[Start[Any]], *, traces: Sequence[str | None], tx: object = None
    ) -> list[Started]:
        """Start chains, all of them or none.

        Raises:
            ChainExists, BlockerMissing: nothing was written.
        """
        arguments = start_arguments(starts, notify=tx is not None, traces=traces)
        answers = started(await self._fetch(tx)(store.START_CALL, *arguments))
        require_started(answers)
        if tx is None:
            pairs = zip(starts, answers, strict=True)
            names = [start.step.job.name for start, answer in pairs if not answer.is_duplicate]
            self.announcements.add(Signals(types_ready=names))
        return answers

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
        rows = await self._fetch(tx)(store.CANCEL_CALL, list(chain_ids), cascade, reason)
        await self._announce(tx, closed_signals(rows))
        _require_found(chain_ids, rows)
        return {chain_id: outcome for chain_id, outcome, _ in rows}

    async def retry(self, *chain_ids: UUID, tx: object = None) -> None:
        """Let failed and cancelled chains go on from the job at which they ended.

        Raises:
            ChainNotFound, NotRetryable: one of them cannot; the others go on.
        """
        rows = await self._fetch(tx)(store.RETRY_CALL, list(chain_ids))
        await self._announce(tx, ready_signals(rows))
        _require_found(chain_ids, rows)
        for chain_id, outcome, _ in rows:
            if outcome == "key_taken":
                raise errors.NotRetryable(f"another chain holds the key of chain {chain_id} now")
            if outcome != "retried":
                raise errors.NotRetryable(
                    f"chain {chain_id} is {outcome}: only failed and cancelled ones can be retried"
                )

    async def delete(
        self, *chain_ids: UUID, cascade: bool = False, tx: object = None
    ) -> list[UUID]:
        """Delete chains, with `cascade` also those that are connected with them.

        These are the chains that wait or waited for them, and all that those wait or waited for.

        Return the ids of the deleted chains; ids of chains that do not exist are ignored.

        Raises:
            ChainReferenced: a job of another chain needs one of them; nothing was deleted.
        """
        rows = await self._fetch(tx)(store.DELETE_CALL, list(chain_ids), cascade)
        references: dict[UUID, list[UUID]] = {}
        for chain_id, referenced_by in rows:
            if referenced_by is not None:
                references.setdefault(chain_id, []).append(referenced_by)
        if references:
            raise errors.ChainReferenced(
                f"nothing was deleted: jobs of other chains need {len(references)} of the chains",
                references=references,
            )
        gone = [chain_id for chain_id, _ in rows]
        await self._announce(tx, Signals(chains_closed=gone))
        return gone

    async def prune(self, before: datetime, *, states: Sequence[str] = CLOSED_STATES) -> int:
        """Delete chains that were closed before then, in batches; return how many."""
        deleted, at, chain_id = 0, None, None
        while True:
            ((count, at, chain_id),) = await self._caller.call(
                store.PRUNE_CALL, before, list(states), PRUNE_BATCH, at, chain_id
            )
            deleted += count
            if chain_id is None:
                return deleted

    async def trigger(self, *job_ids: UUID, tx: object = None) -> None:
        """Let scheduled jobs run now, all of them or none.

        Raises:
            JobNotFound, NotTriggerable: nothing was changed.
        """
        rows = await self._fetch(tx)(store.TRIGGER_CALL, list(job_ids))
        for job_id, outcome, _ in rows:
            if outcome == "missing":
                raise errors.JobNotFound(f"there is no job {job_id}")
            if outcome != "triggered":
                raise errors.NotTriggerable(
                    f"job {job_id} is {outcome}: only scheduled and ready ones can be triggered"
                )
        await self._announce(tx, ready_signals(rows))

    async def pause(self, job: str, *, tx: object = None) -> None:
        """Let no more jobs of this name start; those that run go on.

        Raises:
            NoSuchJobType: no job of that name was ever started or run.
        """
        await self._set_paused(job, is_paused=True, tx=tx)

    async def resume(self, job: str, *, tx: object = None) -> None:
        """Let jobs of this name start again. Raises as `pause` does."""
        await self._set_paused(job, is_paused=False, tx=tx)
        await self._announce(tx, Signals(types_ready=[job]))

    async def settle(self, chain_id: UUID, decide: Callable[[HeldJob], Settlement]) -> None:
        """Settle the open job of a chain from outside, without a transaction of the caller.

        `decide` is shown the job, and asked again if the chain has moved on meanwhile. A worker
        that runs the job is told to stop.

        Raises:
            ChainNotFound, ChainClosed: there is nothing to settle.
            CyclicBlockers, BlockerMissing: a continuation cannot wait for its blockers.
            OwnershipLost: the chain moves on faster than it can be settled.
        """
        for _ in range(SETTLE_TRIES):
            held = held_job(chain_id, await self._caller.call(store.HOLD_CALL, chain_id))
            signals = await self._settle(self._caller.call, held, decide(held))
            if signals is not None:
                self.announcements.add(signals)
                return
        raise errors.OwnershipLost(f"chain {chain_id} moves on faster than it can be settled")

    async def _settle(self, fetch: Fetch, held: HeldJob, settlement: Settlement) -> Signals | None:
        """Settle a held job; return the signals to send, None if it was lost."""
        (answer,) = settled(
            await fetch(store.SETTLE_CALL, *settle_arguments(None, [settlement], wait=True))
        )
        if answer.outcome == "lost":
            return None
        require_settled(answer.outcome)
        lost = [held.job_id] if held.is_running else []
        return Signals.of_settled([settlement], [answer], jobs_lost=lost)

    async def _set_paused(self, job: str, *, is_paused: bool, tx: object) -> None:
        ((is_known,),) = await self._fetch(tx)(store.PAUSE_CALL, job, is_paused)
        if not is_known:
            raise errors.NoSuchJobType(f"there never was a job {job!r}")

    async def _announce(self, tx: object, signals: Signals) -> None:
        if tx is None:
            self.announcements.add(signals)
        else:
            await self._announce_in(join(tx, self.schema).fetch, signals)

    async def _announce_in(self, fetch: Fetch, signals: Signals) -> None:
        """Notify with the commit of the transaction."""
        if self.uses_notify and (payloads := signals.payloads()):
            # Lists: to other drivers than ours a tuple is a row.
            await fetch(store.NOTIFY_CALL, *map(list, zip(*payloads, strict=True)))

    def _fetch(self, tx: object) -> Fetch:
        return self._caller.call if tx is None else join(tx, self.schema).fetch


def closed_signals(rows: Sequence[Any]) -> Signals:
    """Return the signals of chains that were cancelled or deleted: (id, outcome, running job)."""
    return Signals(
        chains_closed=[each for each, outcome, _ in rows if outcome in {"cancelled", "deleted"}],
        jobs_lost=[job_id for _, _, job_id in rows if job_id is not None],
    )


def ready_signals(rows: Sequence[Any]) -> Signals:
    """Return the signals of what was retried or triggered: (id, outcome, name of the job)."""
    return Signals(types_ready=[name for _, outcome, name in rows if outcome in _READY])


def held_job(chain_id: UUID, rows: Sequence[Any]) -> HeldJob:
    """Return the open job of a chain from the rows of HOLD_CALL.

    Raises:
        ChainNotFound, ChainClosed: it is not.
    """
    if not rows:
        raise errors.ChainNotFound(f"there is no chain {chain_id}")
    state, _, job_id, attempt, job_type, value, is_running = rows[0]
    if state != "open":
        raise errors.ChainClosed(f"chain {chain_id} is {state}")
    return HeldJob(chain_id, job_id, attempt, job_type, value, is_running)


def require_other_chains(step: Step, chain_id: UUID) -> None:
    """Refuse a continuation that waits for its own chain."""
    if any(ref.id == chain_id for ref in step.blockers):
        raise errors.SelfBlocked


_ERROR_BY_OUTCOME: Final[Mapping[str, type[SkepError]]] = {
    "lost": errors.OwnershipLost,
    "missing_blocker": errors.BlockerMissing,
    "cyclic": errors.CyclicBlockers,
}


def require_settled(outcome: str) -> None:
    """Raise the error of an outcome other than `settled`."""
    if outcome in _ERROR_BY_OUTCOME:
        raise _ERROR_BY_OUTCOME[outcome]
    if outcome != "settled":
        raise Defect(f"an unexpected outcome: {outcome}")


def require_started(answers: Sequence[Started]) -> None:
    """Raise the error of the first chain that could not be started."""
    for answer in answers:
        if answer.outcome == "exists":
            raise errors.ChainExists(f"there is a chain {answer.chain_id} already")
        if answer.outcome == "missing_blocker":
            raise errors.BlockerMissing


def _require_found(chain_ids: Sequence[UUID], rows: Sequence[Any]) -> None:
    if not chain_ids:
        raise BadRequest("no chain given: pass at least one id")
    for chain_id, outcome, _ in rows:
        if outcome == "missing":
            raise errors.ChainNotFound(f"there is no chain {chain_id}")
