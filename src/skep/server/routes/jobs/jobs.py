"""The routes of jobs: list, show, run now; types, workers and throughput."""

from typing import Annotated, Final, TypeAlias
from uuid import UUID

import msgspec

from skep.jobs.client import inspection
from skep.jobs.service.service import JobService, Throughput
from skep.server.auth import access
from skep.server.routes import parameters as given
from skep.server.routes.section import Section, in_path, in_query, routes_of

_PATH: Final = "/api/v1/jobs"
_ONE: Final = f"{_PATH}/{{job_id:str}}"
_TYPES: Final = f"{_PATH}/types"
_NO_JOB: Final = {404: "There is no such job."}
_NO_TYPE: Final = {404: "No job of that type was ever started or run."}
ATTEMPT_MAX: Final = 2**31 - 1

JobId: TypeAlias = Annotated[UUID, in_path("Job id; the first job of a chain has the chain's id.")]
TypeName: TypeAlias = Annotated[str, in_path("Job type, percent-encoded.")]
OnlyState: TypeAlias = Annotated[
    inspection.JobState | None, in_query("Only jobs in this state.", "state")
]
OnlyChain: TypeAlias = Annotated[UUID | None, in_query("Only jobs of this chain.", "chainId")]
BlockedBy: TypeAlias = Annotated[
    UUID | None, in_query("Only jobs that wait or waited for this chain.", "blockedBy")
]
AfterAttempt: TypeAlias = Annotated[
    int, in_query("Last attempt of the previous page.", "after", ge=0, le=ATTEMPT_MAX)
]


class JobPage(given.Listed[inspection.JobRow], frozen=True):
    """A page of jobs. Pass `after` to get the next page; null on the last one."""

    items: list[inspection.JobRow]


class TypePage(given.Listed[inspection.TypeRow], frozen=True):
    """A page of job types. Pass `after` to get the next page; null on the last one."""

    items: list[inspection.TypeRow]


class WorkerPage(given.Listed[inspection.WorkerRow], frozen=True):
    """A page of workers. Pass `after` to get the next page; null on the last one."""

    items: list[inspection.WorkerRow]


class Attempts(msgspec.Struct, frozen=True):
    """Attempts of a job, oldest first."""

    attempts: list[inspection.AttemptRow]


class Blockers(msgspec.Struct, frozen=True):
    """The chains that a job waits or waited for, in the order in which the job sees them."""

    blockers: list[inspection.BlockerRow]


class Counts(msgspec.Struct, frozen=True):
    """How many jobs of each type are open; types without open jobs are left out."""

    types: list[inspection.TypeCounts]


class Paused(msgspec.Struct, frozen=True, rename="camel"):
    """Whether jobs of a type are paused."""

    name: str
    is_paused: bool


@routes_of("Jobs")
def job_routes(section: Section, service: JobService) -> None:
    """Declare the routes of jobs."""

    @section.get(_PATH, access.READ)
    async def list_jobs(
        only_type: given.OnlyType = None,
        only_state: OnlyState = None,
        chain_id: OnlyChain = None,
        blocked_by: BlockedBy = None,
        created: given.Created = given.ANY_TIME,
        page_size: given.PageSize = 50,
        after_id: given.AfterId = None,
        order: given.Order = "newest",
    ) -> JobPage:
        """List jobs, page by page."""
        since, until = created.bounds()
        which = inspection.JobFilter(
            type=only_type or None,
            state=only_state,
            chain_id=chain_id,
            blocked_by=blocked_by,
            created_from=since,
            created_to=until,
        )
        page = await service.inspection.jobs(
            which, limit=page_size, after=after_id, descending=order == "newest"
        )
        return JobPage.of(page)

    @section.get(_ONE, access.READ, responses=_NO_JOB)
    async def show_job(job_id: JobId) -> inspection.JobRow:
        """Show a job and its state."""
        return await service.job(job_id)

    @section.get(f"{_ONE}/attempts", access.READ, responses=_NO_JOB)
    async def list_attempts(
        job_id: JobId,
        after_attempt: AfterAttempt = 0,
        page_size: given.PageSize = inspection.PAGE_LIMIT_MAX,
    ) -> Attempts:
        """List the attempts of a job, with the errors of those that failed."""
        await service.job(job_id)
        return Attempts(
            await service.inspection.attempts(job_id, after=after_attempt, limit=page_size)
        )

    @section.get(f"{_ONE}/blockers", access.READ, responses=_NO_JOB)
    async def list_blockers(job_id: JobId) -> Blockers:
        """List the chains that a job waits or waited for."""
        await service.job(job_id)
        return Blockers(await service.inspection.blockers(job_id))

    @section.post(
        f"{_ONE}/trigger",
        access.WRITE,
        responses={**_NO_JOB, 409: "The job is not scheduled for later."},
    )
    async def trigger_job(job_id: JobId) -> inspection.JobRow:
        """Run a scheduled job now."""
        await service.control.trigger(job_id)
        return await service.job(job_id)

    @section.get(_TYPES, access.READ)
    async def list_job_types(
        page_size: given.PageSize = 50, after_name: given.AfterName = None
    ) -> TypePage:
        """List the types of jobs and their limits."""
        return TypePage.of(await service.inspection.types(after=after_name, limit=page_size))

    @section.get(f"{_PATH}/counts", access.READ)
    async def count_jobs() -> Counts:
        """Count the open jobs of each type.

        The counts are at most two seconds old. They are exact up to `exactUpTo`; those of a type
        that has more jobs (`isExact` is false) are estimates.
        """
        return Counts(await service.counts())

    @section.get(f"{_PATH}/throughput", access.READ)
    async def show_job_throughput() -> Throughput:
        """Show how fast jobs of each type end, and how long they run.

        Covers the chains that ended in the last hour, or the newest of them when there are very
        many; some seconds old. A job counts once its chain has ended.
        """
        return await service.throughput()

    @section.post(f"{_TYPES}/{{name:str}}/pause", access.ADMIN, responses=_NO_TYPE)
    async def pause_job_type(name: TypeName) -> Paused:
        """Start no more jobs of a type; running ones continue."""
        await service.control.pause(name)
        return Paused(name, is_paused=True)

    @section.post(f"{_TYPES}/{{name:str}}/resume", access.ADMIN, responses=_NO_TYPE)
    async def resume_job_type(name: TypeName) -> Paused:
        """Start jobs of a type again."""
        await service.control.resume(name)
        return Paused(name, is_paused=False)

    @section.get(f"{_PATH}/workers", access.READ)
    async def list_job_workers(
        page_size: given.PageSize = 50, after_id: given.AfterId = None
    ) -> WorkerPage:
        """List the workers and how many jobs each runs."""
        return WorkerPage.of(await service.inspection.workers(after=after_id, limit=page_size))
