"""The routes of chains: start, list, wait for, cancel, retry, settle from outside, delete."""

from dataclasses import replace
from typing import Annotated, Final, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Meta

from skep.jobs.client.inspection import (
    ChainCounts,
    ChainFilter,
    ChainRow,
    ChainState,
    GraphJob,
    JobFilter,
)
from skep.jobs.service.service import (
    STARTS_MAX,
    JobService,
    StartedChain,
    StartRequest,
    StepRequest,
)
from skep.server.auth import access
from skep.server.routes import parameters as given
from skep.server.routes.jobs.jobs import JobPage
from skep.server.routes.section import (
    AnyRequest,
    Body,
    Parts,
    Section,
    in_path,
    in_query,
    routes_of,
    trace_context,
)

_PATH: Final = "/api/v1/chains"
_ONE: Final = f"{_PATH}/{{chain_id:str}}"
_NO_CHAIN: Final = {404: "There is no such chain."}
_CLOSED: Final = {
    **_NO_CHAIN,
    409: "The chain has ended, or its open job is not of type `jobType`.",
}
RESULT_TIMEOUT_S_MAX: Final = 60
IDS_MAX: Final = 1_000
ANY_CHAIN: Final = ChainFilter()

ChainId: TypeAlias = Annotated[UUID, in_path("Chain id.")]
OnlyState: TypeAlias = Annotated[ChainState | None, in_query("Only chains in this state.", "state")]
SomeChains: TypeAlias = Annotated[
    ChainFilter,
    Parts(
        key=Annotated[str | None, in_query("Only chains started with this key.", "key")],
        parent_job_id=Annotated[
            UUID | None, in_query("Only chains started by this job.", "parentJobId")
        ],
    ),
]
Cascade: TypeAlias = Annotated[
    bool,
    in_query(
        "Also the chains that wait or waited for it, and all that their jobs wait or waited for.",
        "cascade",
    ),
]
TimeoutSeconds: TypeAlias = Annotated[
    float,
    in_query(
        "How long to wait for the chain to end.", "timeoutSeconds", ge=0, le=RESULT_TIMEOUT_S_MAX
    ),
]


class ChainPage(given.Listed[ChainRow], frozen=True):
    """A page of chains. Pass `after` to get the next page; null on the last one."""

    items: list[ChainRow]


class StateCounts(msgspec.Struct, frozen=True):
    """How many chains are in each state."""

    states: list[ChainCounts]


class ChainGraph(msgspec.Struct, frozen=True):
    """The jobs of a chain and of the chains around it."""

    jobs: list[GraphJob]


class StartRequests(msgspec.Struct, frozen=True):
    """Chains to start, all of them or none."""

    chains: Annotated[list[StartRequest], Meta(min_length=1, max_length=STARTS_MAX)]


class StartedChains(msgspec.Struct, frozen=True):
    """The chains, in the order of the request."""

    chains: list[StartedChain]


class CancelRequest(msgspec.Struct, frozen=True):
    """Why to cancel, and whether to cancel the chains that wait for this one."""

    cascade: bool = False
    reason: Annotated[str, Meta(max_length=1_000)] | None = None


class CancelRequests(CancelRequest, frozen=True, kw_only=True):
    """Chains to cancel."""

    ids: Annotated[list[UUID], Meta(min_length=1, max_length=IDS_MAX)]


class ChainStates(msgspec.Struct, frozen=True):
    """The current state of each chain; a chain that had ended keeps its state."""

    states: dict[str, str]


class CompleteRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The output of the chain."""

    output: msgspec.Raw
    job_type: str | None = None
    """Refuse (409) if the open job has another type."""


class FailRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why the chain fails."""

    error: Annotated[str, Meta(max_length=10_000)]
    job_type: str | None = None
    """Refuse (409) if the open job has another type."""


class ContinueRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The job that the chain continues with."""

    next: StepRequest
    job_type: str | None = None
    """Refuse (409) if the open job has another type."""


class ChainResult(msgspec.Struct, frozen=True):
    """How the chain ended, or that it is still open."""

    state: str
    output: msgspec.Raw
    error: str | None


class Deleted(msgspec.Struct, frozen=True):
    """The chains that were deleted."""

    deleted: list[UUID]


@routes_of("Chains")
def chain_routes(section: Section, service: JobService) -> None:
    """Declare the routes of chains."""

    @section.post(
        _PATH,
        access.WRITE,
        body=Body(StartRequests),
        status_code=201,
        responses={
            404: "A chain to wait for does not exist; nothing was started.",
            409: "A chain with one of the ids exists; nothing was started.",
        },
    )
    async def start_chains(request: AnyRequest, asked: StartRequests) -> StartedChains:
        """Start chains, all of them or none.

        If an open chain holds the same key, no new one is started: the answer names the open chain
        as a duplicate. The header `traceparent` becomes the trace context of the chains.
        """
        return StartedChains(await service.start(asked.chains, trace=trace_context(request)))

    @section.get(_PATH, access.READ)
    async def list_chains(
        only_type: given.OnlyType = None,
        only_state: OnlyState = None,
        which: SomeChains = ANY_CHAIN,
        created: given.Created = given.ANY_TIME,
        page_size: given.PageSize = 50,
        after_id: given.AfterId = None,
        order: given.Order = "newest",
    ) -> ChainPage:
        """List chains, page by page.

        Pages follow the ids, which is the order of creation: chains started meanwhile cause no
        repetitions or gaps.
        """
        which = replace(which, type=only_type or None, state=only_state, key=which.key or None)
        since, until = created.bounds()
        which = replace(which, created_from=since, created_to=until)
        page = await service.inspection.chains(
            which, limit=page_size, after=after_id, descending=order == "newest"
        )
        return ChainPage.of(page)

    @section.get(f"{_PATH}/counts", access.READ)
    async def count_chains() -> StateCounts:
        """Count the chains in each state.

        Counted up to 10,000; if `isExact` is false there are at least so many. At most two seconds
        old.
        """
        return StateCounts(await service.chain_counts())

    @section.get(_ONE, access.READ, responses=_NO_CHAIN)
    async def show_chain(chain_id: ChainId) -> ChainRow:
        """Show a chain and its state."""
        return await service.chain(chain_id)

    @section.get(f"{_ONE}/jobs", access.READ, responses=_NO_CHAIN)
    async def list_chain_jobs(
        chain_id: ChainId, page_size: given.PageSize = 50, after_id: given.AfterId = None
    ) -> JobPage:
        """List the jobs of a chain, oldest first."""
        await service.chain(chain_id)
        page = await service.inspection.jobs(
            JobFilter(chain_id=chain_id), limit=page_size, after=after_id, descending=False
        )
        return JobPage.of(page)

    @section.get(f"{_ONE}/graph", access.READ, responses=_NO_CHAIN)
    async def show_chain_graph(chain_id: ChainId) -> ChainGraph:
        """Show the jobs of a chain with what they wait for, and their attempts.

        Includes the chains that its jobs wait or waited for and those that they started, and theirs
        in turn; the chains that wait for it; and the one that started it. At most 40 chains and 200
        jobs, nearest first; of long chains the newest jobs.
        """
        await service.chain(chain_id)
        return ChainGraph(await service.inspection.graph(chain_id))

    @section.get(f"{_ONE}/result", access.READ, responses=_NO_CHAIN)
    async def await_chain(chain_id: ChainId, timeout_s: TimeoutSeconds = 0) -> ChainResult:
        """Wait for a chain to end and return its output.

        If it does not end in time, `state` is `open`: ask again.
        """
        outcome = await service.result(chain_id, timeout_s=timeout_s)
        if outcome is None:
            return ChainResult("open", msgspec.Raw(b"null"), None)
        output = msgspec.Raw((outcome.output or "null").encode())
        return ChainResult(outcome.state, output, outcome.error)

    @section.post(f"{_PATH}/cancel", access.WRITE, body=Body(CancelRequests), responses=_NO_CHAIN)
    async def cancel_chains(asked: CancelRequests) -> ChainStates:
        """Cancel chains; those that have ended stay as they are."""
        return await _cancelled(service, asked.ids, asked)

    @section.post(
        f"{_ONE}/cancel",
        access.WRITE,
        body=Body(CancelRequest, is_required=False),
        responses=_NO_CHAIN,
    )
    async def cancel_chain(chain_id: ChainId, asked: CancelRequest) -> ChainStates:
        """Cancel a chain: waiting jobs never run, running ones are told to stop."""
        return await _cancelled(service, [chain_id], asked)

    @section.post(
        f"{_ONE}/retry",
        access.WRITE,
        responses={**_NO_CHAIN, 409: "The chain neither failed nor was cancelled."},
    )
    async def retry_chain(chain_id: ChainId) -> ChainRow:
        """Resume a failed or cancelled chain from the job at which it ended."""
        await service.control.retry(chain_id)
        return await service.chain(chain_id)

    @section.delete(
        _ONE,
        access.ADMIN,
        responses={**_NO_CHAIN, 409: "A job of another chain needs it; nothing was deleted."},
    )
    async def delete_chain(chain_id: ChainId, cascade: Cascade = False) -> Deleted:
        """Delete a chain with its jobs."""
        await service.chain(chain_id)
        return Deleted(await service.control.delete(chain_id, cascade=cascade))

    @section.post(f"{_ONE}/complete", access.WRITE, body=Body(CompleteRequest), responses=_CLOSED)
    async def complete_chain(chain_id: ChainId, asked: CompleteRequest) -> ChainRow:
        """Complete the open job of a chain from outside, and with it the chain.

        A worker that runs the job is told to stop and cannot write any more.
        """
        await service.settle(chain_id, "completed", job=asked.job_type, output=asked.output)
        return await service.chain(chain_id)

    @section.post(f"{_ONE}/fail", access.WRITE, body=Body(FailRequest), responses=_CLOSED)
    async def fail_chain(chain_id: ChainId, asked: FailRequest) -> ChainRow:
        """Fail the open job of a chain from outside, and with it the chain."""
        await service.settle(chain_id, "failed", job=asked.job_type, error=asked.error)
        return await service.chain(chain_id)

    @section.post(f"{_ONE}/continue", access.WRITE, body=Body(ContinueRequest), responses=_CLOSED)
    async def continue_chain(chain_id: ChainId, asked: ContinueRequest) -> ChainRow:
        """Complete the open job of a chain from outside and continue with another job."""
        await service.settle(chain_id, "continued", job=asked.job_type, request=asked.next)
        return await service.chain(chain_id)


async def _cancelled(service: JobService, ids: list[UUID], asked: CancelRequest) -> ChainStates:
    states = await service.control.cancel(*ids, cascade=asked.cascade, reason=asked.reason)
    return ChainStates({str(chain_id): state for chain_id, state in states.items()})
