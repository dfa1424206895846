"""Run jobs: claim in batches, run side by side, stop in an orderly way.

    claim as many as can start now -> run each -> settle in batches
    nothing there: sleep until a signal, the next due time or the poll interval, whichever is first

The worker owns its jobs by one lease, kept by `Upkeep` in a thread of its own. When that is lost
all attempts are told to stop, and the worker enrolls again. While the database is unavailable it
tries again after pauses that grow until a call succeeds.

`stop()` ends claiming at once, gives running jobs a grace period, then stops and returns them.
"""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import UUID

from skep.db.access.listening import Listener
from skep.db.access.slots import ONE_OFF, Slots
from skep.db.access.transactions import TransactionPool
from skep.jobs import store
from skep.jobs.client.client import JobClient
from skep.jobs.declare.declaration import JobTypes, Middleware
from skep.jobs.identifiers import new_id
from skep.jobs.schedules import Schedule, Scheduler
from skep.jobs.signals import JOB_LOST, JOB_READY, Announcements, Signals, each_line
from skep.jobs.store import claims
from skep.jobs.worker.attempt import Attempt, AttemptRunner
from skep.jobs.worker.executors import Executors
from skep.jobs.worker.meters import JobMeters
from skep.jobs.worker.settling import Progress, Settler
from skep.jobs.worker.tracing import Tracing
from skep.jobs.worker.transactions import TransactionProvider
from skep.jobs.worker.upkeep import Upkeep
from skep.model.errors import BadRequest, SkepError

_log = logging.getLogger(__name__)

T = TypeVar("T")

CONCURRENCY: Final = 20
LEASE_S: Final = 30.0
POLL_S: Final = 5.0
GRACE_S: Final = 20.0
LEAVE_S: Final = 2.0
"""How long an unavailable database may hold up the end of a worker."""
PROCESSES: Final = 2
CALLS_AT_ONCE: Final = 3
"""Claiming, settling and signalling."""
POOLS: Final = ("thread", "process", "transaction")
"""What has a limited number of places, besides the worker itself."""
RECOVERY_S_MIN: Final = 0.2
RECOVERY_S_MAX: Final = 10.0
STATEMENT_TIMEOUT_S: Final = 30.0
SLOTS_SHARE_MIN: Final = 4
GATHER_S: Final = 0.005
"""A claim costs about the same for one job as for ten. So a worker that was busy claims when a
quarter of its slots are free, or this long after the first became free."""


@dataclass(frozen=True, slots=True)
class WorkerApp:
    """Jobs and what belongs to them: what `skep worker module:app` runs.

    Attributes:
        registries: whose jobs are run.
        schedules: chains started by the clock, all that the application declares; None = it says
            nothing of schedules, and leaves those that are there.
        schedule_owner: under which name it declares them, by default those of its registries;
            applications with the same registries need different ones.
        middleware: wraps every attempt; the first is the outermost.
        tracing: is told of attempts, such as `skep.jobs.OtelTracing()`.
        lifespan: entered before the first job and left after the last; for resources that handlers
            share, such as a pool of connections.
    """

    registries: Sequence[JobTypes]
    schedules: Sequence[Schedule[Any]] | None = None
    schedule_owner: str | None = None
    middleware: Sequence[Middleware] = ()
    tracing: Tracing | None = None
    lifespan: Callable[[JobClient], AbstractAsyncContextManager[None]] | None = None


class Worker:
    """Runs the jobs of some registries with one database."""

    def __init__(
        self,
        client: JobClient,
        registries: Sequence[JobTypes],
        *,
        name: str = "worker",
        concurrency: int = CONCURRENCY,
        lease_s: float = LEASE_S,
        poll_s: float = POLL_S,
        transactions: int | None = None,
        processes: int = PROCESSES,
        middleware: Sequence[Middleware] = (),
        schedules: Sequence[Schedule[Any]] | None = None,
        schedule_owner: str | None = None,
    ) -> None:
        if concurrency < 1:
            raise BadRequest(f"invalid concurrency {concurrency}: use at least 1")
        self.name: Final = name
        self._client: Final = client
        self._concurrency: Final = concurrency
        self._lease_s: Final = lease_s
        self._poll_s: Final = poll_s
        self._schedules: Final = schedules
        self._schedule_owner: Final = schedule_owner or ", ".join(
            sorted({types.name for types in registries})
        )
        self._jobs: Final = {
            job.name: (job, types) for types in reversed(registries) for job in types
        }
        """Those it runs, and those whose outputs it can read; the first of a name counts."""
        self._slots: Final = Slots(
            client.dsn,
            size=CALLS_AT_ONCE,
            server_settings=ONE_OFF,
            statement_timeout_s=STATEMENT_TIMEOUT_S,
            application_name="skep-worker",
        )
        self._pool: Final = TransactionPool(
            client.dsn, size=transactions or concurrency, application_name="skep-worker"
        )
        self._announcements: Final = Announcements(self._slots, is_silent=not client.uses_notify)
        self._settler: Final = Settler(self._slots, self._announcements, lambda: self.worker_id)
        self._executors: Final = Executors(
            threads=concurrency, processes=processes, on_abandoned=self._hear_abandoned
        )
        self._progress: Final = Progress(self._slots, lambda: self.worker_id)
        self.meters: Final = JobMeters(concurrency)
        self._runner: Final = AttemptRunner(
            self._jobs,
            TransactionProvider(self._pool, lambda: self.worker_id),
            self._settler,
            self._announcements,
            self._executors,
            client.tracing,
            self.meters,
            middleware,
        )
        self._listener: Final = Listener(
            client.dsn,
            {JOB_READY: each_line(self._hear_ready), JOB_LOST: each_line(self._hear_lost)},
            on_connect=self._wake,
        )
        self.worker_id = new_id()
        self._names: dict[int, str] = {}
        self._attempts: dict[UUID, Attempt] = {}
        self._places_taken: Final = Counter[str | None]()
        """By attempts under way, in each pool."""
        self._attempts_lock: Final = threading.Lock()
        """The upkeep reads the attempts from its own thread."""
        self._wake_up: Final = asyncio.Event()
        self._gathering: asyncio.TimerHandle | None = None
        self._aside: Final = set[asyncio.Task[None]]()
        self._is_stopping = False
        self._is_enrolled = False
        self._can_claim = False
        self._is_in_doubt = False
        """A claim failed but may have happened: this worker may own jobs that it does not know."""
        self._grace_over: Final = asyncio.Event()
        self._claiming: asyncio.Task[None] | None = None
        self._upkeep: Upkeep | None = None

    async def __aenter__(self) -> "Worker":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def running(self) -> int:
        """How many jobs it runs."""
        return len(self._attempts)

    @property
    def is_ready(self) -> bool:
        """Whether it claims jobs: the database answers, and the worker is not stopping."""
        return self._can_claim and not self._is_stopping

    async def start(self) -> None:
        """Connect, enroll and begin to claim; Unavailable if the database cannot be reached."""
        await self._slots.open()
        await self._pool.open()
        await self._declare()
        await self._enroll()
        loop = asyncio.get_running_loop()
        self._progress.start()
        self._upkeep = Upkeep(
            self._client.dsn,
            lambda: self.worker_id,
            self._lease_s,
            self._claims,
            lambda lost: _post(loop, self._lose, lost),
            lambda reason: _post(loop, self._lose_all, reason),
            uses_notify=self._client.uses_notify,
        )
        self._upkeep.start()
        if self._client.uses_notify:
            self._listener.start()
        self._claiming = loop.create_task(self._claim_until_stopped())

    async def stop(self, *, grace_s: float = GRACE_S) -> None:
        """Stop claiming at once, let jobs end for `grace_s`, then stop them and return them."""
        if self._is_stopping:
            return
        self._is_stopping = True
        self._wake()
        if self._claiming is not None:
            await self._claiming
        await self._drain(grace_s)
        await self._listener.stop()
        await asyncio.gather(*self._aside, return_exceptions=True)
        if self._upkeep is not None:
            await self._upkeep.stop()
        self._executors.close()
        await self._progress.stop()
        with suppress(SkepError, TimeoutError):  # without it the lease runs out by itself
            async with asyncio.timeout(LEAVE_S):
                await self._announcements.flush()
                await self._slots.call(store.LEAVE_CALL, self.worker_id)
        await self._pool.close()
        await self._slots.close()

    def hurry(self) -> None:
        """End the grace that `stop` gives."""
        self._grace_over.set()

    async def _drain(self, grace_s: float) -> None:
        tasks = [attempt.task for attempt in self._attempts.values() if attempt.task is not None]
        if not tasks:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._done_or_hurried(tasks)
        late = [task for task in tasks if not task.done()]
        for attempt in tuple(self._attempts.values()):
            attempt.lose("shutdown")
        if late:
            _, stuck = await asyncio.wait(late, timeout=LEAVE_S)
            for task in stuck:  # the database does not answer: the lease will run out
                task.cancel()
            await asyncio.gather(*stuck, return_exceptions=True)

    async def _done_or_hurried(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        done = asyncio.ensure_future(asyncio.wait(tasks))
        hurried = asyncio.ensure_future(self._grace_over.wait())
        try:
            await asyncio.wait([done, hurried], return_when=asyncio.FIRST_COMPLETED)
        finally:
            done.cancel()
            hurried.cancel()

    async def _declare(self) -> None:
        jobs = [job for job, _ in self._jobs.values() if job.handler is not None]
        names = [job.name for job in jobs]
        limits = [job.limits for job in jobs]
        rows = await self._slots.call(store.ENSURE_TYPES_CALL, names)
        self._names = {row["id"]: row["name"] for row in rows}
        await self._slots.call(
            store.LIMIT_TYPES_CALL,
            names,
            [each.concurrency for each in limits],
            [each.per_key for each in limits],
            [each.rate for each in limits],
            [None if each.rate is None else each.per.total_seconds() for each in limits],
        )
        if self._schedules is not None:
            await Scheduler(self._slots).declare(self._schedule_owner, self._schedules)

    async def _enroll(self) -> None:
        worker_id = self.worker_id
        await self._slots.call(store.ENROLL_CALL, worker_id, self.name, self._lease_s)
        self._is_enrolled = worker_id == self.worker_id

    async def _claim_until_stopped(self) -> None:
        pause_s = RECOVERY_S_MIN
        while not self._is_stopping:
            try:
                next_claim_s = await self._claim()
            except SkepError as error:
                self._can_claim, self._is_in_doubt = False, True
                _log.warning("Could not claim jobs, trying again in %.1f s: %s", pause_s, error)
                await self._rest(pause_s)
                pause_s = min(pause_s * 2, RECOVERY_S_MAX)
                continue
            self._can_claim = True
            pause_s = RECOVERY_S_MIN
            if next_claim_s > 0:
                await self._rest(next_claim_s)

    async def _claim(self) -> float:
        """Fill the free slots; return how long to rest if nothing happens meanwhile."""
        self._wake_up.clear()
        if not self._is_enrolled:
            await self._enroll()
        free = self._concurrency - len(self._attempts)
        if free <= 0:
            return self._poll_s
        if self._is_in_doubt:
            await self._disown()
        pools = [self._pool_of(name) for name in self._names.values()]
        places = (*self._executors.places, self._pool.size)
        room = [size - self._places_taken[pool] for pool, size in zip(POOLS, places, strict=True)]
        jobs, next_claim_s = claims(
            await self._slots.call(
                store.CLAIM_CALL,
                self.worker_id,
                list(self._names),
                free,
                [None if pool is None else POOLS.index(pool) + 1 for pool in pools],
                room,
            )
        )
        for claimed in jobs:
            self._begin(Attempt(claimed, self._names[claimed.type_id], self._progress))
        if len(jobs) == free:
            return self._poll_s  # until a slot is free
        return self._poll_s if next_claim_s is None else min(self._poll_s, next_claim_s)

    async def _disown(self) -> None:
        """Give back jobs claimed by a call whose answer never came."""
        known = self._claims()
        rows = await self._slots.call(
            store.DISOWN_CALL, self.worker_id, list(known), list(known.values())
        )
        self._is_in_doubt = False
        self._announcements.add(Signals(types_ready=[row["type"] for row in rows]))

    def _begin(self, attempt: Attempt) -> None:
        with self._attempts_lock:
            self._attempts[attempt.claimed.job_id] = attempt
        self._places_taken[self._pool_of(attempt.name)] += 1
        claimed = attempt.claimed
        self.meters.claimed(attempt.name, (claimed.claimed_at - claimed.due_at).total_seconds())
        self.meters.running = len(self._attempts)
        attempt.task = asyncio.get_running_loop().create_task(self._runner.run(attempt))
        attempt.task.add_done_callback(lambda _: self._end(attempt))

    def _end(self, attempt: Attempt) -> None:
        with self._attempts_lock:
            if self._attempts.get(attempt.claimed.job_id) is attempt:
                del self._attempts[attempt.claimed.job_id]
        self._places_taken[self._pool_of(attempt.name)] -= 1
        self.meters.running = len(self._attempts)
        free = self._concurrency - len(self._attempts)
        if free >= self._concurrency // SLOTS_SHARE_MIN:
            self._wake()
        elif self._gathering is None:
            self._gathering = asyncio.get_running_loop().call_later(GATHER_S, self._wake)

    def _pool_of(self, name: str) -> str | None:
        """Return what a job must have a place in; jobs that share a transaction need no own."""
        job, _ = self._jobs[name]
        if job.executor == "loop":
            return "transaction" if job.mode == "atomic" and job.together == 1 else None
        return job.executor

    def _hear_abandoned(self, threads: int) -> None:
        self.meters.abandoned = threads
        self._wake()

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake_up.wait()

    def _wake(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        self._wake_up.set()

    def _hear_ready(self, name: str) -> None:
        if name in self._names.values():
            self._wake()

    def _hear_lost(self, text: str) -> None:
        """Check a job that a worker lost: this one, or the one that had it before."""
        with suppress(ValueError):
            if (attempt := self._attempts.get(UUID(text))) is not None:
                self._run_aside(self._check_claim(attempt))

    async def _check_claim(self, attempt: Attempt) -> None:
        claimed = attempt.claimed
        with suppress(SkepError):  # the upkeep asks again
            rows = await self._slots.call(
                store.RENEW_CALL, self.worker_id, self._lease_s, [claimed.job_id], [claimed.attempt]
            )
            self._lose({row["job_id"]: row["reason"] for row in rows})

    def _run_aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

    def _claims(self) -> dict[UUID, int]:
        with self._attempts_lock:
            return {job_id: each.claimed.attempt for job_id, each in self._attempts.items()}

    def _lose(self, lost: dict[UUID, str]) -> None:
        for job_id, reason in lost.items():
            if (attempt := self._attempts.get(job_id)) is not None:
                attempt.lose(reason)

    def _lose_all(self, reason: str) -> None:
        """Begin again under another id: its jobs may belong to other workers by now."""
        _log.warning("This worker lost its lease (%s) and enrolls again", reason)
        for attempt in tuple(self._attempts.values()):
            attempt.lose(reason)
        self.meters.lost_lease()
        self.worker_id = new_id()
        self._is_enrolled = False
        self._wake()


def _post(loop: asyncio.AbstractEventLoop, call: Callable[[T], None], argument: T) -> None:
    """Call a function on the worker's loop, from another thread."""
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(call, argument)
