"""The routes of chains: start, list, wait for, cancel, retry, settle from outside, delete."""

from datetime import datetime
from typing import Annotated, Final, Literal, TypeAlias
from uuid import UUID

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.params import PathParameter, QueryParameter
from msgspec import Meta

from skep.jobs.client.inspection import ChainFilter, ChainRow, JobFilter
from skep.jobs.service.service import (
    STARTS_MAX,
    JobService,
    StartedChain,
    StartRequest,
    StepRequest,
)
from skep.server.auth.access import Level, needs
from skep.server.routes.jobs.jobs import JobPage
from skep.server.routes.parameters import AfterId, Listed, OnlyType, Order, PageSize
from skep.server.routes.section import AnyRequest, Body, Section, refusal, trace_context

_PATH: Final = "/api/v1/chains"
_ONE: Final = f"{_PATH}/{{chain_id:uuid}}"
_NO_CHAIN: Final = {404: refusal("There is no such chain.")}
_CLOSED: Final = {
    **_NO_CHAIN,
    409: refusal("The chain has ended, or its open job is not of type `jobType`."),
}
RESULT_TIMEOUT_S_MAX: Final = 60
IDS_MAX: Final = 1_000

ChainId: TypeAlias = Annotated[UUID, PathParameter(description="Chain id.")]
OnlyState: TypeAlias = Annotated[
    Literal["open", "completed", "failed", "cancelled"] | None,
    QueryParameter(name="state", description="Only chains in this state."),
]
OnlyKey: TypeAlias = Annotated[
    str | None, QueryParameter(name="key", description="Only chains started with this key.")
]
OnlyParent: TypeAlias = Annotated[
    UUID | None, QueryParameter(name="parentJobId", description="Only chains started by this job.")
]
StartedSince: TypeAlias = Annotated[
    datetime | None,
    QueryParameter(name="from", description="Only chains started at this time or later."),
]
StartedUntil: TypeAlias = Annotated[
    datetime | None, QueryParameter(name="to", description="Only chains started before this time.")
]
Cascade: TypeAlias = Annotated[
    bool,
    QueryParameter(name="cascade", description="Also the chains that its jobs wait or waited for."),
]
TimeoutSeconds: TypeAlias = Annotated[
    float,
    QueryParameter(
        name="timeoutSeconds",
        ge=0,
        le=RESULT_TIMEOUT_S_MAX,
        description="How long to wait for the chain to end.",
    ),
]


class ChainPage(Listed[ChainRow], frozen=True):
    """A page of chains. Pass `after` to get the next page; null on the last one."""

    items: list[ChainRow]


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


_STARTS: Final = Body(StartRequests)
_CANCEL: Final = Body(CancelRequest, is_required=False)
_CANCELS: Final = Body(CancelRequests)
_COMPLETE: Final = Body(CompleteRequest)
_FAIL: Final = Body(FailRequest)
_CONTINUE: Final = Body(ContinueRequest)


def chain_routes(service: JobService) -> list[HTTPRouteHandler]:
    """Declare the routes of chains."""
    section = Section("Chains")
    read, write = needs(Level.READ_ONLY), needs(Level.READ_WRITE)

    @section.post(
        _PATH,
        write,
        body=_STARTS,
        status_code=201,
        responses={
            404: refusal("A chain to wait for does not exist; nothing was started."),
            409: refusal("A chain with one of the ids exists; nothing was started."),
        },
    )
    async def start_chains(request: AnyRequest) -> StartedChains:
        """Start chains, all of them or none.

        If an open chain holds the same key, no new one is started: the answer names the open chain
        as a duplicate. The header `traceparent` becomes the trace context of the chains.
        """
        asked = await _STARTS.read(request)
        return StartedChains(await service.start(asked.chains, trace=trace_context(request)))

    @section.get(_PATH, read)
    async def list_chains(
        only_type: OnlyType = None,
        only_state: OnlyState = None,
        key: OnlyKey = None,
        parent_job_id: OnlyParent = None,
        since: StartedSince = None,
        until: StartedUntil = None,
        page_size: PageSize = 50,
        after_id: AfterId = None,
        order: Order = "newest",
    ) -> ChainPage:
        """List chains, page by page.

        Pages follow the ids, which is the order of creation: chains started meanwhile cause no
        repetitions or gaps.
        """
        which = ChainFilter(
            type=only_type or None,
            state=only_state,
            parent_job_id=parent_job_id,
            key=key or None,
            created_from=since,
            created_to=until,
        )
        page = await service.inspection.chains(
            which, limit=page_size, after=after_id, descending=order == "newest"
        )
        return ChainPage.of(page)

    @section.get(_ONE, read, responses=_NO_CHAIN)
    async def show_chain(chain_id: ChainId) -> ChainRow:
        """Show a chain and its state."""
        return await service.chain(chain_id)

    @section.get(f"{_ONE}/jobs", read, responses=_NO_CHAIN)
    async def list_chain_jobs(
        chain_id: ChainId, page_size: PageSize = 50, after_id: AfterId = None
    ) -> JobPage:
        """List the jobs of a chain, oldest first."""
        await service.chain(chain_id)
        page = await service.inspection.jobs(
            JobFilter(chain_id=chain_id), limit=page_size, after=after_id, descending=False
        )
        return JobPage.of(page)

    @section.get(f"{_ONE}/result", read, responses=_NO_CHAIN)
    async def await_chain(chain_id: ChainId, timeout_s: TimeoutSeconds = 0) -> ChainResult:
        """Wait for a chain to end and return its output.

        If it does not end in time, `state` is `open`: ask again.
        """
        outcome = await service.result(chain_id, timeout_s=timeout_s)
        if outcome is None:
            return ChainResult("open", msgspec.Raw(b"null"), None)
        output = msgspec.Raw((outcome.output or "null").encode())
        return ChainResult(outcome.state, output, outcome.error)

    @section.post(f"{_PATH}/cancel", write, body=_CANCELS, responses=_NO_CHAIN)
    async def cancel_chains(request: AnyRequest) -> ChainStates:
        """Cancel chains; those that have ended stay as they are."""
        asked = await _CANCELS.read(request)
        return await _cancelled(service, asked.ids, asked)

    @section.post(f"{_ONE}/cancel", write, body=_CANCEL, responses=_NO_CHAIN)
    async def cancel_chain(chain_id: ChainId, request: AnyRequest) -> ChainStates:
        """Cancel a chain: waiting jobs never run, running ones are told to stop."""
        return await _cancelled(service, [chain_id], await _CANCEL.read(request))

    @section.post(
        f"{_ONE}/retry",
        write,
        responses={**_NO_CHAIN, 409: refusal("The chain neither failed nor was cancelled.")},
    )
    async def retry_chain(chain_id: ChainId) -> ChainRow:
        """Resume a failed or cancelled chain from the job at which it ended."""
        await service.control.retry(chain_id)
        return await service.chain(chain_id)

    @section.delete(
        _ONE,
        needs(Level.ADMIN),
        responses={
            **_NO_CHAIN,
            409: refusal("A job of another chain needs it; nothing was deleted."),
        },
    )
    async def delete_chain(chain_id: ChainId, cascade: Cascade = False) -> Deleted:
        """Delete a chain with its jobs."""
        await service.chain(chain_id)
        return Deleted(await service.control.delete(chain_id, cascade=cascade))

    @section.post(f"{_ONE}/complete", write, body=_COMPLETE, responses=_CLOSED)
    async def complete_chain(chain_id: ChainId, request: AnyRequest) -> ChainRow:
        """Complete the open job of a chain from outside, and with it the chain.

        A worker that runs the job is told to stop and cannot write any more.
        """
        asked = await _COMPLETE.read(request)
        await service.complete(chain_id, asked.output, job=asked.job_type)
        return await service.chain(chain_id)

    @section.post(f"{_ONE}/fail", write, body=_FAIL, responses=_CLOSED)
    async def fail_chain(chain_id: ChainId, request: AnyRequest) -> ChainRow:
        """Fail the open job of a chain from outside, and with it the chain."""
        asked = await _FAIL.read(request)
        await service.fail(chain_id, asked.error, job=asked.job_type)
        return await service.chain(chain_id)

    @section.post(f"{_ONE}/continue", write, body=_CONTINUE, responses=_CLOSED)
    async def continue_chain(chain_id: ChainId, request: AnyRequest) -> ChainRow:
        """Complete the open job of a chain from outside and continue with another job."""
        asked = await _CONTINUE.read(request)
        await service.go_on(chain_id, asked.next, job=asked.job_type)
        return await service.chain(chain_id)

    return section.routes


async def _cancelled(service: JobService, ids: list[UUID], asked: CancelRequest) -> ChainStates:
    states = await service.control.cancel(*ids, cascade=asked.cascade, reason=asked.reason)
    return ChainStates({str(chain_id): state for chain_id, state in states.items()})
