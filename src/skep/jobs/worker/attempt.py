"""Run one attempt of a job: where its handler runs, what it gets, and what its end means.

    returns a value, or Continue   settled: in the transaction that the handler opened (atomic mode,
                                   `complete()`), else with the batches of the worker
    raises                         tried again or failed, as `worker.retry` decides
    job is lost                    nothing is written: the worker that has it now decides

A transaction is undone before the failure is written, on another connection: no error of the
user's SQL can keep a job from being tried again.
"""

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final, cast

import msgspec

from skep.jobs.client.control import require_other_chains, require_settled
from skep.jobs.client.inspection import BlockerRow
from skep.jobs.declare.context import BlockerResult, Ctx, JobFacts
from skep.jobs.declare.declaration import Continue, Job, JobTypes, Middleware
from skep.jobs.errors import OwnershipLost
from skep.jobs.signals import Announcements, Signals
from skep.jobs.store import Claimed, Settled, Settlement
from skep.jobs.worker.executors import Call, Executors
from skep.jobs.worker.meters import JobMeters
from skep.jobs.worker.retry import settle_failure
from skep.jobs.worker.settling import Progress, Settler
from skep.jobs.worker.sharing import SharingUndone
from skep.jobs.worker.tracing import Tracing
from skep.jobs.worker.transactions import TransactionProvider
from skep.model.errors import SkepError
from skep.telemetry.failures import FailureLog

_log = logging.getLogger(__name__)


class _Blocker(BlockerRow, frozen=True):
    """The same with the context of its trace."""

    trace: str | None


class Attempt:
    """One attempt, under way."""

    def __init__(self, claimed: Claimed, name: str, progress: Progress) -> None:
        self.claimed: Final = claimed
        self.name: Final = name
        self.since: Final = asyncio.get_running_loop().time()
        """When it was claimed; no transaction of it begins before."""
        self.task: asyncio.Task[None] | None = None
        self.lost_reason: str | None = None
        self.is_timed_out = False
        self._progress: Final = progress

    def __str__(self) -> str:
        return f"{self.claimed.job_id} ({self.name}) of chain {self.claimed.chain_id}"

    @property
    def stop_reason(self) -> str | None:
        """Why the handler should stop, or None."""
        return self.lost_reason or ("timeout" if self.is_timed_out else None)

    def report(self, share: float | None, note: str | None) -> None:
        """Take a progress report of the handler."""
        self._progress.note(self.claimed, share, note)

    def lose(self, reason: str) -> None:
        """Tell the handler that it should stop, and why."""
        if self.lost_reason is None:
            self.lost_reason = reason
            if self.task is not None:
                self.task.cancel(reason)


@dataclass(frozen=True, slots=True)
class AttemptRunner:
    """Runs attempts for a worker."""

    jobs: Mapping[str, tuple[Job[Any, Any], JobTypes]]
    transactions: TransactionProvider
    settler: Settler
    announcements: Announcements
    executors: Executors
    tracing: Tracing
    meters: JobMeters
    middleware: Sequence[Middleware]
    chance: random.Random = field(default_factory=random.Random)
    failures: FailureLog = field(default_factory=lambda: FailureLog(_log))

    async def run(self, attempt: Attempt) -> None:
        """Run it to its end; raises nothing but cancellation from outside."""
        began, outcome = perf_counter(), "lost"
        try:
            outcome = await self._run(attempt)
        except asyncio.CancelledError:
            if attempt.lost_reason is None:
                raise
            await self._give_back(attempt)
        except OwnershipLost as lost:
            _log.info("Lost job %s: %s", attempt, lost.message)
        except SkepError as error:
            _log.warning("Could not write the result of job %s: %s", attempt, error)
        finally:
            self.meters.ended(attempt.name, outcome, perf_counter() - began)

    async def _run(self, attempt: Attempt) -> str:
        """Run it, write its outcome, and return that."""
        job, types = self.jobs[attempt.name]
        try:
            try:
                settlement, written = await self._work(job, types, attempt)
            except SharingUndone:
                settlement, written = await self._work(job, types, attempt, is_alone=True)
            # Only now it is committed, and other processes can see it.
            if written is not None:
                self.announcements.add(Signals.of_settled([settlement], [written]))
            else:
                require_settled((await self.settler.settle(settlement)).outcome)
        except OwnershipLost:
            raise
        except Exception as error:  # any exception of a handler is an outcome
            if attempt.lost_reason is not None:
                raise OwnershipLost(attempt.lost_reason) from error
            settlement = settle_failure(attempt.claimed, error, job.retry, self.chance)
            require_settled((await self.settler.settle(settlement)).outcome)
            self._tell_failure(attempt, settlement, error)
        return settlement.outcome

    async def _work(
        self, job: Job[Any, Any], types: JobTypes, attempt: Attempt, *, is_alone: bool = False
    ) -> tuple[Settlement, Settled | None]:
        """Run the handler; return its settlement, and the answer if its transaction wrote it."""
        claimed = attempt.claimed
        transactions = self.transactions.of(job, claimed, since=attempt.since, is_alone=is_alone)
        facts = JobFacts(
            name=job.name,
            job_id=claimed.job_id,
            chain_id=claimed.chain_id,
            position=claimed.position,
            attempt=claimed.attempt,
            failures=claimed.failures,
            trace=claimed.trace,
            chain_trace=claimed.chain_trace,
        )
        blockers = msgspec.json.decode(claimed.blockers or "[]", type=list[_Blocker])
        awaited = [blocker.trace for blocker in blockers if blocker.trace is not None]
        with self.tracing.attempting(facts, awaited) as trace:
            results = [
                BlockerResult(each.chain, each.type, each.state, self._read_output(each))
                for each in blockers
            ]
            value = job.input.decode(claimed.input)
            context = Ctx[Any, Any](facts, value, results, transactions, attempt)
            async with transactions:
                await transactions.begin()
                async with self.executors.place(job) as call:
                    result = await self._handle(job, types, attempt, context, call)
                settlement = self._settlement(job, claimed, result, trace)
                return settlement, await transactions.settle(settlement)

    async def _handle(
        self,
        job: Job[Any, Any],
        types: JobTypes,
        attempt: Attempt,
        context: Ctx[Any, Any],
        call: Call,
    ) -> object:
        """Run the handler; its time begins here, where nothing is left to wait for."""
        limit = asyncio.timeout(_time_left_s(job, attempt))
        try:
            async with limit, AsyncExitStack() as around:
                for wrap in (*self.middleware, *types.middleware):
                    await around.enter_async_context(wrap(context))
                return await call(context)
        finally:
            attempt.is_timed_out = limit.expired()  # a handler in a thread goes on until it asks

    def _tell_failure(self, attempt: Attempt, settlement: Settlement, error: Exception) -> None:
        """Say that an attempt failed, once that is written."""
        what = f"Job {attempt} failed in attempt {attempt.claimed.attempt}, "
        if settlement.outcome == "failed":
            self.failures.tell(logging.ERROR, attempt.name, what + "the last", error)
        elif settlement.outcome == "retry":
            what += f"retrying in {settlement.delay_s:.1f} s"
            self.failures.tell(logging.WARNING, attempt.name, what, error)

    def _read_output(self, blocker: _Blocker) -> object:
        if blocker.state != "completed":
            return None
        if blocker.type not in self.jobs:  # declared elsewhere: plain JSON is all we can give
            return cast("object", msgspec.json.decode(blocker.output))
        job, _ = self.jobs[blocker.type]
        return cast("object", job.output.decode(bytes(blocker.output).decode()))

    def _settlement(
        self, job: Job[Any, Any], claimed: Claimed, result: object, trace: str | None
    ) -> Settlement:
        if isinstance(result, Continue):
            step = cast("Continue[Any]", result).step
            require_other_chains(step, claimed.chain_id)
            return Settlement(*claimed.token, "continued", next=step, next_trace=trace)
        return Settlement(*claimed.token, "completed", output=job.output.encode(result))

    async def _give_back(self, attempt: Attempt) -> None:
        """Return a job that was stopped with its worker; a lost one is not ours to return."""
        if attempt.lost_reason != "shutdown":
            _log.info("Stopped job %s: %s", attempt, attempt.lost_reason)
            return
        await self.settler.settle(Settlement(*attempt.claimed.token, "released"))


def _time_left_s(job: Job[Any, Any], attempt: Attempt) -> float | None:
    limits = [job.timeout.total_seconds()] if job.timeout is not None else []
    claimed = attempt.claimed
    if claimed.deadline_at is not None:
        passed_s = asyncio.get_running_loop().time() - attempt.since
        limits.append((claimed.deadline_at - claimed.claimed_at).total_seconds() - passed_s)
    return min(limits, default=None)
