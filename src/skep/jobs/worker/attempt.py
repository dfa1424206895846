"""Run one attempt of a job: where its handler runs, what it gets, and what its end means.

    returns a value, or Continue   settled: in the transaction that the handler opened (atomic mode,
                                   `complete()`), else with the batches of the worker
    raises Reschedule, Fail        again later, without counting; given up
    raises anything else           tried again by the job's policy, or given up
    job is lost                    nothing is written: the worker that has it now decides

A transaction is undone before the failure is written, on another connection: no error of the
user's SQL can keep a job from being tried again.
"""

import asyncio
import logging
import multiprocessing
import random
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AsyncExitStack
from contextvars import copy_context
from importlib import import_module
from time import perf_counter
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from skep.jobs.client.control import require_other_chains, require_settled
from skep.jobs.declare.context import BlockerResult, Ctx, Detached, JobFacts, NoTransactions
from skep.jobs.declare.declaration import Continue, Job, JobTypes, Middleware
from skep.jobs.errors import Fail, OwnershipLost, Reschedule, UnknownJobType
from skep.jobs.signals import Announcements, Signals
from skep.jobs.store import Claimed, Settled, Settlement
from skep.jobs.worker.meters import JobMeters
from skep.jobs.worker.settling import Progress, Settler
from skep.jobs.worker.sharing import SharingUndone
from skep.jobs.worker.tracing import Tracing
from skep.jobs.worker.transactions import TransactionProvider
from skep.model.errors import Defect, SkepError

_log = logging.getLogger(__name__)

ERROR_LENGTH_MAX: Final = 10_000


class _Blocker(msgspec.Struct, frozen=True):
    """As `skep.job_blockers` writes it."""

    chain: UUID
    type: str
    state: str
    output: msgspec.Raw
    trace: str | None


class Catalog:
    """The jobs that a worker knows: those it runs, and those whose outputs it can read."""

    def __init__(self, registries: Sequence[JobTypes]) -> None:
        self._registries: Final = tuple(registries)

    def find(self, name: str) -> tuple[Job[Any, Any], Sequence[Middleware]]:
        """Return a job and what wraps its attempts; UnknownJobType if there is none."""
        for types in self._registries:
            if name in types:
                return types[name], types.middleware
        raise UnknownJobType(f"no job {name!r} is declared in this worker")

    def runnable(self) -> list[Job[Any, Any]]:
        """Return the jobs that have a handler here."""
        return [job for types in self._registries for job in types if job.handler is not None]


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


class Executors:
    """Runs handlers on the event loop, in threads or in processes, made when first needed.

    A process cannot be handed a function that a decorator replaced, so it is told where the job is
    declared and finds the handler there. It gets the data of the context, and no live objects.
    """

    def __init__(self, *, threads: int, processes: int) -> None:
        self._threads: Final = threads
        self._processes: Final = processes
        self._thread_pool: ThreadPoolExecutor | None = None
        self._process_pool: ProcessPoolExecutor | None = None

    async def call(self, job: Job[Any, Any], context: Ctx[Any, Any]) -> object:
        """Run the handler of a job and return what it returned."""
        handler = job.handler
        if handler is None:
            raise Defect(f"{job!r} has no handler here")
        loop = asyncio.get_running_loop()
        if job.executor == "thread":
            # In the attempt's own context, which has its trace and the variables of middleware.
            around = copy_context()
            work = loop.run_in_executor(self._thread(), lambda: around.run(handler, context))
            return cast("object", await work)
        if job.executor == "process":
            place = (handler.__module__, handler.__qualname__)
            data = (context.facts, context.input, context.blocker_results())
            return await loop.run_in_executor(self._process(), call_in_process, *place, *data)
        return cast("object", await handler(context))

    def close(self) -> None:
        """End them: handlers in processes are ended, those in threads are left to end."""
        if self._thread_pool is not None:
            self._thread_pool.shutdown(wait=False, cancel_futures=True)
        if self._process_pool is not None:
            self._process_pool.shutdown(wait=False, cancel_futures=True)

    def _thread(self) -> ThreadPoolExecutor:
        if self._thread_pool is None:
            self._thread_pool = ThreadPoolExecutor(self._threads, "skep-job")
        return self._thread_pool

    def _process(self) -> ProcessPoolExecutor:
        if self._process_pool is None:
            # A fork would copy locks that other threads of this process hold.
            context = multiprocessing.get_context("spawn")
            self._process_pool = ProcessPoolExecutor(self._processes, context)
        return self._process_pool


def call_in_process(
    module: str, qualname: str, facts: JobFacts, value: object, blockers: list[BlockerResult]
) -> object:
    """Run a handler in this process."""
    job: Any = getattr(import_module(module), qualname, None)
    if not isinstance(job, Job):
        raise Defect(f"{module}.{qualname} is not a job that a process can import")
    handler = cast("Job[Any, Any]", job).handler
    assert handler is not None
    return handler(Ctx[Any, Any](facts, value, blockers, NoTransactions(), Detached()))


class AttemptRunner:
    """Runs attempts for a worker."""

    def __init__(
        self,
        catalog: Catalog,
        transactions: TransactionProvider,
        settler: Settler,
        announcements: Announcements,
        executors: Executors,
        tracing: Tracing,
        meters: JobMeters,
        middleware: Sequence[Middleware] = (),
        chance: random.Random | None = None,
    ) -> None:
        self._catalog: Final = catalog
        self._transactions: Final = transactions
        self._settler: Final = settler
        self._announcements: Final = announcements
        self._executors: Final = executors
        self._tracing: Final = tracing
        self._meters: Final = meters
        self._middleware: Final = tuple(middleware)
        self._chance: Final = chance or random.Random()  # noqa: S311 (spreads load, keeps no secret)

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
            _log.info("Lost job %s: %s", attempt.claimed.job_id, lost.message)
        except SkepError as error:
            _log.warning("Could not write the result of job %s: %s", attempt.claimed.job_id, error)
        finally:
            self._meters.ended(attempt.name, outcome, perf_counter() - began)

    async def _run(self, attempt: Attempt) -> str:
        """Run it, write its outcome, and return that."""
        job, middleware = self._catalog.find(attempt.name)
        try:
            try:
                settlement, written = await self._work(job, middleware, attempt)
            except SharingUndone:
                settlement, written = await self._work(job, middleware, attempt, is_alone=True)
            # Only now it is committed, and other processes can see it.
            if written is not None:
                self._announcements.add(Signals.of_settled([settlement], [written]))
            else:
                require_settled((await self._settler.settle(settlement)).outcome)
        except OwnershipLost:
            raise
        except Exception as error:  # any exception of a handler is an outcome
            if attempt.lost_reason is not None:
                raise OwnershipLost(attempt.lost_reason) from error
            settlement = self._failure(job, attempt.claimed, error)
            require_settled((await self._settler.settle(settlement)).outcome)
        return settlement.outcome

    async def _work(
        self,
        job: Job[Any, Any],
        middleware: Sequence[Middleware],
        attempt: Attempt,
        *,
        is_alone: bool = False,
    ) -> tuple[Settlement, Settled | None]:
        """Run the handler; return its settlement, and the answer if its transaction wrote it."""
        claimed = attempt.claimed
        transactions = self._transactions.of(job, claimed, since=attempt.since, is_alone=is_alone)
        facts, blockers = _facts(job, claimed), _read_blockers(claimed.blockers)
        awaited = [blocker.trace for blocker in blockers if blocker.trace is not None]
        with self._tracing.attempting(facts, awaited) as trace:
            context = Ctx[Any, Any](
                facts,
                job.decode_input(claimed.input),
                self._results(blockers),
                transactions,
                attempt,
            )
            async with transactions:
                try:
                    async with asyncio.timeout(_time_left_s(job, claimed)):
                        await transactions.begin()
                        result = await self._handle(job, middleware, context)
                except TimeoutError:
                    attempt.is_timed_out = True  # a handler in a thread goes on until it asks
                    raise
                settlement = self._settlement(job, claimed, result, trace)
                return settlement, await transactions.settle(settlement)

    async def _handle(
        self, job: Job[Any, Any], middleware: Sequence[Middleware], context: Ctx[Any, Any]
    ) -> object:
        async with AsyncExitStack() as around:
            for wrap in (*self._middleware, *middleware):
                await around.enter_async_context(wrap(context))
            return await self._executors.call(job, context)

    def _results(self, blockers: Sequence[_Blocker]) -> list[BlockerResult]:
        return [
            BlockerResult(each.chain, each.type, each.state, self._read_output(each))
            for each in blockers
        ]

    def _read_output(self, blocker: "_Blocker") -> object:
        if blocker.state != "completed":
            return None
        try:
            job, _ = self._catalog.find(blocker.type)
        except UnknownJobType:  # declared elsewhere: plain JSON is all we can give
            return cast("object", msgspec.json.decode(blocker.output))
        return cast("object", job.decode_output(bytes(blocker.output).decode()))

    def _settlement(
        self, job: Job[Any, Any], claimed: Claimed, result: object, trace: str | None
    ) -> Settlement:
        if isinstance(result, Continue):
            step = cast("Continue[Any]", result).step
            require_other_chains(step, claimed.chain_id)
            return Settlement(*claimed.token, "continued", next=step, next_trace=trace)
        return Settlement(*claimed.token, "completed", output=job.encode_output(result))

    def _failure(self, job: Job[Any, Any], claimed: Claimed, error: Exception) -> Settlement:
        if isinstance(error, Reschedule):
            delay_s = error.after.total_seconds() if error.after is not None else None
            return Settlement(*claimed.token, "rescheduled", delay_s=delay_s, at=error.at)
        text = describe_error(error)
        failures = claimed.failures + 1
        if isinstance(error, Fail) or failures >= claimed.max_attempts:
            return Settlement(*claimed.token, "failed", error=text)
        delay_s = job.retry.delay_s(failures, self._chance)
        _log.info("Job %s failed and runs again in %.1f s: %s", claimed.job_id, delay_s, error)
        return Settlement(*claimed.token, "retry", error=text, delay_s=delay_s)

    async def _give_back(self, attempt: Attempt) -> None:
        """Return a job that was stopped with its worker; a lost one is not ours to return."""
        if attempt.lost_reason != "shutdown":
            _log.info("Stopped job %s: %s", attempt.claimed.job_id, attempt.lost_reason)
            return
        await self._settler.settle(Settlement(*attempt.claimed.token, "released"))


def _time_left_s(job: Job[Any, Any], claimed: Claimed) -> float | None:
    """How long an attempt may take."""
    limits = [job.timeout.total_seconds()] if job.timeout is not None else []
    if claimed.deadline_at is not None:
        limits.append((claimed.deadline_at - claimed.claimed_at).total_seconds())
    return min(limits, default=None)


def describe_error(error: BaseException) -> str:
    """Return the stack of an error, or its end if it is long, in characters that can be stored."""
    text = "".join(traceback.format_exception(error))[-ERROR_LENGTH_MAX:]
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _facts(job: Job[Any, Any], claimed: Claimed) -> JobFacts:
    return JobFacts(
        job.name,
        claimed.job_id,
        claimed.chain_id,
        claimed.position,
        claimed.attempt,
        claimed.failures,
        claimed.trace,
        claimed.chain_trace,
    )


def _read_blockers(text: str | None) -> list[_Blocker]:
    return [] if text is None else msgspec.json.decode(text, type=list[_Blocker])
