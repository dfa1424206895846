"""Jobs by name, with JSON in and JSON out: what the HTTP routes do.

A program that declares its jobs uses `JobClient`, which knows their types; here an input is any
JSON, and the worker that runs the job checks it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Generic, Literal, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta

from skep.db.access.slots import Caller
from skep.jobs.client import inspection
from skep.jobs.client.awaiting import Awaiting, ChainOutcome
from skep.jobs.client.bulk import Bulk
from skep.jobs.client.control import ChainControl, HeldJob, require_other_chains
from skep.jobs.declare import declaration
from skep.jobs.declare.codec import Ref
from skep.jobs.errors import ChainNotFound, JobNotFound, ScheduleNotFound
from skep.jobs.schedules import Missed, Schedule, Scheduler, ScheduleRow
from skep.jobs.signals import Announcements
from skep.jobs.store import Outcome, Settlement

STARTS_MAX: Final = 1_000
RESULT_POLL_S: Final = 0.5
THROUGHPUT_CALL: Final = "select * from skep.job_throughput($1, $2)"
THROUGHPUT_SPAN_S: Final = 3600.0
THROUGHPUT_CHAINS_MAX: Final = 2_000
THROUGHPUT_KEPT_S: Final = 10.0
COUNTS_KEPT_S: Final = 2.0
"""Counting reads many jobs; callers within this time share the result."""

T = TypeVar("T")

Priority = Annotated[int, Meta(ge=-32768, le=32767)]
Attempts = Annotated[int, Meta(ge=1, le=1_000_000)]
Seconds = Annotated[float, Meta(ge=0, le=1e10)]
Name = Annotated[str, Meta(min_length=1, max_length=declaration.NAME_LENGTH_MAX)]


def _null() -> msgspec.Raw:
    return msgspec.Raw(b"null")


class StepRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A job to be written."""

    type: Name
    """The job's name, as workers declare it."""
    input: msgspec.Raw = msgspec.field(default_factory=_null)
    """Any JSON; the worker checks it."""
    delay_seconds: Seconds | None = None
    at: datetime | None = None
    """When it is due, instead of a delay; with a time zone."""
    priority: Priority = 0
    """Smaller runs first."""
    max_attempts: Attempts = declaration.MAX_ATTEMPTS
    limit_key: Annotated[str, Meta(max_length=1_000)] | None = None
    blockers: Annotated[list[UUID], Meta(max_length=1_000)] = []
    """Chains that must complete first."""
    on_blocker_failure: declaration.OnBlockerFailure = "wait"
    """When one of them fails or is cancelled: wait until it is retried, fail too, or ignore it."""


class StartRequest(StepRequest, frozen=True, kw_only=True, rename="camel"):
    """A chain to be started."""

    id: UUID | None = None
    """Chosen by the caller: a request repeated with it starts nothing new (409)."""
    key: Annotated[str, Meta(min_length=1, max_length=1_000)] | None = None
    """A second chain of the type with this key is not started; the one that holds it is told."""
    key_scope: Literal["open", "any"] = "open"
    key_window_seconds: Seconds | None = None
    deadline_seconds: Seconds | None = None
    parent_job_id: UUID | None = None


class StartedChain(msgspec.Struct, frozen=True, rename="camel"):
    """The chain; a duplicate was there already."""

    id: UUID
    is_duplicate: bool


class ScheduleRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A job that is started by the clock."""

    type: Name
    cron: str
    """Minute, hour, day of month, month, day of week; with six fields seconds come first."""
    input: msgspec.Raw = msgspec.field(default_factory=_null)
    timezone: str = "UTC"
    missed: Missed = "once"
    """What to do with ticks that no process was there to run."""
    priority: Priority = 0
    max_attempts: Attempts = declaration.MAX_ATTEMPTS
    is_enabled: bool = True
    """False pauses it."""


class TypeThroughput(msgspec.Struct, frozen=True, rename="camel"):
    """How fast jobs of a type ended."""

    type: str
    ended: int
    failed: int
    per_minute: float
    mean_run_seconds: float | None
    """Of the attempts that ended them."""


class Throughput(msgspec.Struct, frozen=True, rename="camel"):
    """Jobs of chains that ended within the span; types without any are left out."""

    span_seconds: float
    types: list[TypeThroughput]


@dataclass(slots=True, eq=False)
class _Cached(Generic[T]):
    """A value that is read at most once in a while; concurrent callers share the reading."""

    read: Callable[[], Awaitable[T]]
    kept_s: float
    now: Callable[[], float]
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    kept: tuple[float, T] | None = None

    async def __call__(self) -> T:
        async with self.reading:
            if self.kept is None or self.now() - self.kept[0] > self.kept_s:
                value = await self.read()
                self.kept = (self.now(), value)
            return self.kept[1]


class JobService:
    """Starts, shows and administers chains by the names of their jobs."""

    def __init__(self, caller: Caller, *, now: Callable[[], float]) -> None:
        self._caller: Final = caller
        self._announcements: Final = Announcements(caller)
        self._awaiting: Final = Awaiting(caller, poll_s=RESULT_POLL_S)
        self.scheduler: Final = Scheduler(caller)
        self.inspection: Final = inspection.Inspection(caller)
        self.control: Final = ChainControl(caller, self._announcements)
        self.bulk: Final = Bulk(caller, self._announcements)
        self.counts: Final = _Cached(self.inspection.counts, COUNTS_KEPT_S, now)
        """How many jobs of each type are open, as of a moment ago at most."""
        self.chain_counts: Final = _Cached(self.inspection.chain_counts, COUNTS_KEPT_S, now)
        """How many chains there are in each state, as of a moment ago at most."""
        self.throughput: Final = _Cached(self._throughput, THROUGHPUT_KEPT_S, now)
        """How fast jobs ended, as of some seconds ago at most."""

    async def stop(self) -> None:
        """Send the signals gathered so far; waits for results are cancelled."""
        await self._awaiting.stop()
        await self._announcements.flush()

    async def start(
        self, requests: Sequence[StartRequest], *, trace: str | None = None
    ) -> list[StartedChain]:
        """Start chains, all of them or none.

        Raises:
            ChainExists, BlockerMissing, BadRequest: nothing was written.
        """
        starts = [_start(request) for request in requests]
        answers = await self.control.start_chains(starts, traces=[trace] * len(starts))
        return [StartedChain(each.chain_id, each.is_duplicate) for each in answers]

    async def chain(self, chain_id: UUID) -> inspection.ChainRow:
        """Return a chain; ChainNotFound if there is none."""
        page = await self.inspection.chains(inspection.ChainFilter(ids=[chain_id]), limit=1)
        if not page.items:
            raise ChainNotFound(f"there is no chain {chain_id}")
        return page.items[0]

    async def job(self, job_id: UUID) -> inspection.JobRow:
        """Return a job; JobNotFound if there is none."""
        page = await self.inspection.jobs(inspection.JobFilter(ids=[job_id]), limit=1)
        if not page.items:
            raise JobNotFound(f"there is no job {job_id}")
        return page.items[0]

    async def result(self, chain_id: UUID, *, timeout_s: float) -> ChainOutcome | None:
        """Return how a chain ended, None if it is still open after so long; or ChainNotFound."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._awaiting.outcome(chain_id)
        except TimeoutError:
            await self.chain(chain_id)
            return None

    async def _throughput(self) -> Throughput:
        """Read it from the chains that ended lately; it costs the same however many there are."""
        rows = await self._caller.call(THROUGHPUT_CALL, THROUGHPUT_SPAN_S, THROUGHPUT_CHAINS_MAX)
        types = [
            TypeThroughput(
                row["type"],
                row["ended"],
                row["failed"],
                round(row["ended"] * 60 / row["span_s"], 2),
                row["run_s"],
            )
            for row in rows
        ]
        return Throughput(rows[0]["span_s"] if rows else THROUGHPUT_SPAN_S, types)

    async def settle(
        self,
        chain_id: UUID,
        outcome: Outcome,
        *,
        job: str | None,
        output: msgspec.Raw | None = None,
        error: str | None = None,
        request: StepRequest | None = None,
    ) -> None:
        """Settle the open job of a chain: completed, failed, or continued with another job.

        `job` is the type it must have, None for any. Raises as `ChainControl.settle` does.
        """
        step = None
        if request is not None:
            step = declaration.Continue(_job(request), request.input, **_options(request)).step
            require_other_chains(step, chain_id)
        text = None if output is None else bytes(output).decode()

        def decide(held: HeldJob) -> Settlement:
            if job is not None:
                held.require_type(job)
            return Settlement(*held.token, outcome, output=text, error=error, next=step)

        await self.control.settle(chain_id, decide)

    async def put_schedule(self, name: str, request: ScheduleRequest) -> ScheduleRow:
        """Make or change a schedule, and return it."""
        schedule = Schedule(
            name,
            _job(request),
            request.input,
            cron=request.cron,
            timezone=request.timezone,
            missed=request.missed,
            is_enabled=request.is_enabled,
        )
        await self.scheduler.put(schedule)
        return await self.scheduler.find(name)

    async def schedules(
        self, *, after: str | None, limit: int
    ) -> inspection.Page[ScheduleRow, str]:
        """Return a page of schedules in the order of their names."""
        rows = await self.scheduler.page(after=after, limit=limit + 1)
        return inspection.page_of(rows, limit, lambda schedule: schedule.name)

    async def delete_schedule(self, name: str) -> None:
        """Forget a schedule; ScheduleNotFound if there is none."""
        if not await self.scheduler.delete(name):
            raise ScheduleNotFound(f"there is no schedule {name!r}")


def _job(request: StepRequest | ScheduleRequest) -> declaration.Job[Any, Any]:
    """Return a job of which only the request is known."""
    retry = declaration.Retry(max_attempts=request.max_attempts)
    return declaration.Job(
        request.type, msgspec.Raw, msgspec.Raw, priority=request.priority, retry=retry
    )


def _start(request: StartRequest) -> declaration.Start[Any]:
    dedup = None
    if request.key is not None:
        dedup = declaration.Dedup(request.key, request.key_scope, _span(request.key_window_seconds))
    return declaration.Start(
        _job(request),
        request.input,
        chain_id=request.id,
        key=dedup,
        deadline=_span(request.deadline_seconds),
        parent=request.parent_job_id,
        **_options(request),
    )


def _options(request: StepRequest) -> declaration.StepOptions:
    return {
        "after": _span(request.delay_seconds),
        "at": request.at,
        "limit_key": request.limit_key,
        "blockers": [Ref(chain_id) for chain_id in request.blockers],
        "on_blocker_failure": request.on_blocker_failure,
    }


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
