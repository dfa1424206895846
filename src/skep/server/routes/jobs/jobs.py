"""The routes of jobs: list, show, let run now; types and workers."""

from typing import Annotated, Final, Literal, TypeAlias
from uuid import UUID

import msgspec
from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from skep.jobs.client.inspection import (
    PAGE_LIMIT_MAX,
    AttemptRow,
    BlockerRow,
    JobFilter,
    JobRow,
    TypeCounts,
    TypeRow,
    WorkerRow,
)
from skep.jobs.service.service import JobService
from skep.server.auth.access import Level, needs
from skep.server.routes.jobs.parameters import (
    NO_JOB,
    AfterId,
    AfterName,
    JobId,
    JobPage,
    OnlyType,
    Order,
    PageSize,
    TypeName,
    listed,
)
from skep.server.routes.refusals import refusal

_TAGS: Final = ["Jobs"]
_PATH: Final = "/api/v1/jobs"
_ONE: Final = f"{_PATH}/{{job_id:uuid}}"
_TYPES: Final = f"{_PATH}/types"
_NO_TYPE: Final = {404: refusal("No job of that name was ever started or run.")}
ATTEMPT_MAX: Final = 2**31 - 1

OnlyState: TypeAlias = Annotated[
    Literal[
        "blocked", "scheduled", "ready", "running", "completed", "continued", "failed", "cancelled"
    ]
    | None,
    QueryParameter(name="state", description="Only jobs in this state."),
]
OnlyChain: TypeAlias = Annotated[
    UUID | None, QueryParameter(name="chainId", description="Only jobs of this chain.")
]
BlockedBy: TypeAlias = Annotated[
    UUID | None,
    QueryParameter(name="blockedBy", description="Only jobs that wait or waited for this chain."),
]
AfterAttempt: TypeAlias = Annotated[
    int,
    QueryParameter(
        name="after", ge=0, le=ATTEMPT_MAX, description="The last attempt of the page before."
    ),
]


class TypePage(msgspec.Struct, frozen=True):
    """Some of the types; `after` asks for more, null at the end."""

    items: list[TypeRow]
    after: str | None


class WorkerPage(msgspec.Struct, frozen=True):
    """Some of the workers; `after` asks for more, null at the end."""

    items: list[WorkerRow]
    after: str | None


class Attempts(msgspec.Struct, frozen=True):
    """Attempts of a job, the first ones first."""

    attempts: list[AttemptRow]


class Blockers(msgspec.Struct, frozen=True):
    """The chains that a job waits or waited for, in the order in which it sees them."""

    blockers: list[BlockerRow]


class Counts(msgspec.Struct, frozen=True):
    """How many jobs of each type are open; types without any are left out."""

    types: list[TypeCounts]


class Paused(msgspec.Struct, frozen=True, rename="camel"):
    """Whether jobs of a type are held up."""

    name: str
    is_paused: bool


def job_routes(desk: JobService) -> list[HTTPRouteHandler]:
    """Make the routes around what can be done with jobs."""
    return [*_single_routes(desk), *_type_routes(desk), _worker_route(desk)]


def _single_routes(desk: JobService) -> list[HTTPRouteHandler]:
    @get(
        _PATH,
        operation_id="listJobs",
        opt=needs(Level.READ_ONLY),
        summary="List jobs, page by page",
        tags=_TAGS,
    )
    async def list_jobs(
        only_type: OnlyType = None,
        only_state: OnlyState = None,
        chain_id: OnlyChain = None,
        blocked_by: BlockedBy = None,
        page_size: PageSize = 50,
        after_id: AfterId = None,
        order: Order = "newest",
    ) -> JobPage:
        which = JobFilter(
            type=only_type or None, state=only_state, chain_id=chain_id, blocked_by=blocked_by
        )
        page = await desk.inspection.jobs(
            which, limit=page_size, after=after_id, descending=order == "newest"
        )
        return listed(JobPage, page)

    @get(
        _ONE,
        operation_id="showJob",
        opt=needs(Level.READ_ONLY),
        responses=NO_JOB,
        summary="Show a job, and where it is",
        tags=_TAGS,
    )
    async def show_job(job_id: JobId) -> JobRow:
        return await desk.job(job_id)

    @get(
        f"{_ONE}/attempts",
        operation_id="listAttempts",
        opt=needs(Level.READ_ONLY),
        responses=NO_JOB,
        summary="List the attempts of a job, with the errors of those that failed",
        tags=_TAGS,
    )
    async def list_attempts(
        job_id: JobId, after_attempt: AfterAttempt = 0, page_size: PageSize = PAGE_LIMIT_MAX
    ) -> Attempts:
        await desk.job(job_id)
        return Attempts(
            await desk.inspection.attempts(job_id, after=after_attempt, limit=page_size)
        )

    @get(
        f"{_ONE}/blockers",
        operation_id="listBlockers",
        opt=needs(Level.READ_ONLY),
        responses=NO_JOB,
        summary="List the chains that a job waits or waited for",
        tags=_TAGS,
    )
    async def list_blockers(job_id: JobId) -> Blockers:
        await desk.job(job_id)
        return Blockers(await desk.inspection.blockers(job_id))

    @post(
        f"{_ONE}/trigger",
        status_code=200,
        operation_id="triggerJob",
        opt=needs(Level.READ_WRITE),
        responses={**NO_JOB, 409: refusal("It is not waiting for its time.")},
        summary="Let a scheduled job run now",
        tags=_TAGS,
    )
    async def trigger_job(job_id: JobId) -> JobRow:
        await desk.control.trigger(job_id)
        return await desk.job(job_id)

    return [list_jobs, show_job, list_attempts, list_blockers, trigger_job]


def _type_routes(desk: JobService) -> list[HTTPRouteHandler]:
    @get(
        _TYPES,
        operation_id="listJobTypes",
        opt=needs(Level.READ_ONLY),
        summary="List the types of jobs and their limits",
        tags=_TAGS,
    )
    async def list_types(page_size: PageSize = 50, after_name: AfterName = None) -> TypePage:
        return listed(TypePage, await desk.inspection.types(after=after_name, limit=page_size))

    @get(
        f"{_PATH}/counts",
        operation_id="countJobs",
        opt=needs(Level.READ_ONLY),
        summary="Count the open jobs of each type",
        description="As they were at most two seconds ago. Up to `exactUpTo` they are counted; "
        "the numbers of a type that has more (`isExact` is false) are estimates.",
        tags=_TAGS,
    )
    async def count_jobs() -> Counts:
        return Counts(await desk.counts())

    @post(
        f"{_TYPES}/{{name:str}}/pause",
        status_code=200,
        operation_id="pauseJobType",
        opt=needs(Level.ADMIN),
        responses=_NO_TYPE,
        summary="Let no more jobs of a type start; those that run go on",
        tags=_TAGS,
    )
    async def pause_type(name: TypeName) -> Paused:
        await desk.control.pause(name)
        return Paused(name, is_paused=True)

    @post(
        f"{_TYPES}/{{name:str}}/resume",
        status_code=200,
        operation_id="resumeJobType",
        opt=needs(Level.ADMIN),
        responses=_NO_TYPE,
        summary="Let jobs of a type start again",
        tags=_TAGS,
    )
    async def resume_type(name: TypeName) -> Paused:
        await desk.control.resume(name)
        return Paused(name, is_paused=False)

    return [list_types, count_jobs, pause_type, resume_type]


def _worker_route(desk: JobService) -> HTTPRouteHandler:
    @get(
        f"{_PATH}/workers",
        operation_id="listJobWorkers",
        opt=needs(Level.READ_ONLY),
        summary="List the workers, and how many jobs each runs",
        tags=_TAGS,
    )
    async def list_workers(page_size: PageSize = 50, after_id: AfterId = None) -> WorkerPage:
        return listed(WorkerPage, await desk.inspection.workers(after=after_id, limit=page_size))

    return list_workers
