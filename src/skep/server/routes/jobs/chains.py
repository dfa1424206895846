"""The routes of chains: start, list, wait for, cancel, retry, settle from outside, delete."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias
from uuid import UUID

import msgspec
from litestar import Request, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter
from msgspec import Meta

from skep.jobs.client.inspection import ChainFilter, ChainRow, JobFilter
from skep.jobs.service.service import (
    STARTS_MAX,
    JobService,
    StartedChain,
    StartRequest,
    StepRequest,
)
from skep.jobs.worker.tracing import spell_context
from skep.server.api_document.bodies import body_of
from skep.server.auth.access import Level, needs
from skep.server.hot.decoding import decode_body, decode_optional_body
from skep.server.routes.jobs.parameters import (
    NO_CHAIN,
    AfterId,
    ChainId,
    JobPage,
    OnlyType,
    Order,
    PageSize,
    listed,
)
from skep.server.routes.refusals import refusal
from skep.telemetry.tracing import TRACEPARENT, TRACESTATE, valid_context

_TAGS: Final = ["Chains"]
_PATH: Final = "/api/v1/chains"
_ONE: Final = f"{_PATH}/{{chain_id:uuid}}"
_CLOSED: Final = {**NO_CHAIN, 409: refusal("The chain has ended, or its job is another one.")}
RESULT_TIMEOUT_S_MAX: Final = 60
IDS_MAX: Final = 1_000

OnlyState: TypeAlias = Annotated[
    Literal["open", "completed", "failed", "cancelled"] | None,
    QueryParameter(name="state", description="Only chains in this state."),
]
OnlyKey: TypeAlias = Annotated[
    str | None, QueryParameter(name="key", description="Only chains started with this key.")
]
OnlyParent: TypeAlias = Annotated[
    UUID | None, QueryParameter(name="parentJobId", description="Only chains this job started.")
]
Since: TypeAlias = Annotated[
    datetime | None, QueryParameter(name="from", description="Only started at this time or later.")
]
Until: TypeAlias = Annotated[
    datetime | None, QueryParameter(name="to", description="Only started before this time.")
]
Cascade: TypeAlias = Annotated[
    bool,
    QueryParameter(name="cascade", description="Also the chains that its jobs wait or waited for."),
]
Patience: TypeAlias = Annotated[
    float,
    QueryParameter(
        name="timeoutSeconds",
        ge=0,
        le=RESULT_TIMEOUT_S_MAX,
        description="How long to wait for the end of the chain.",
    ),
]


class ChainPage(msgspec.Struct, frozen=True):
    """Some of the chains; `after` asks for more, null at the end."""

    items: list[ChainRow]
    after: str | None


class StartRequests(msgspec.Struct, frozen=True):
    """Chains to be started, all of them or none."""

    chains: Annotated[list[StartRequest], Meta(min_length=1, max_length=STARTS_MAX)]


class StartedChains(msgspec.Struct, frozen=True):
    """The chains, in the order of the request."""

    chains: list[StartedChain]


class CancelRequest(msgspec.Struct, frozen=True):
    """Why, and whether those that wait for the chain are cancelled with it."""

    cascade: bool = False
    reason: Annotated[str, Meta(max_length=1_000)] | None = None


class CancelRequests(CancelRequest, frozen=True, kw_only=True):
    """Chains to be cancelled."""

    ids: Annotated[list[UUID], Meta(min_length=1, max_length=IDS_MAX)]


class ChainStates(msgspec.Struct, frozen=True):
    """The state that each chain is in now; those that had ended before keep theirs."""

    states: dict[str, str]


class CompleteRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the chain yields."""

    output: msgspec.Raw
    job_type: str | None = None
    """Refuse (409) if the open job is another one."""


class FailRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why the chain fails."""

    error: Annotated[str, Meta(max_length=10_000)]
    job_type: str | None = None
    """Refuse (409) if the open job is another one."""


class ContinueRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The job that the chain goes on with."""

    next: StepRequest
    job_type: str | None = None
    """Refuse (409) if the open job is another one."""


class ChainResult(msgspec.Struct, frozen=True):
    """How the chain ended, or that it is still open."""

    state: str
    output: msgspec.Raw
    error: str | None


class Deleted(msgspec.Struct, frozen=True):
    """The chains that are gone."""

    deleted: list[UUID]


_starts = msgspec.json.Decoder(StartRequests)
_cancel = msgspec.json.Decoder(CancelRequest)
_cancels = msgspec.json.Decoder(CancelRequests)
_complete = msgspec.json.Decoder(CompleteRequest)
_fail = msgspec.json.Decoder(FailRequest)
_continue = msgspec.json.Decoder(ContinueRequest)


def chain_routes(desk: JobService) -> list[HTTPRouteHandler]:
    """Make the routes around what can be done with chains."""
    return [
        _start_route(desk),
        *_reading_routes(desk),
        *_changing_routes(desk),
        *_settling_routes(desk),
    ]


def _start_route(desk: JobService) -> HTTPRouteHandler:
    @post(
        _PATH,
        operation_id="startChains",
        operation_class=body_of(StartRequests),
        opt=needs(Level.READ_WRITE),
        responses={
            404: refusal("A chain to wait for does not exist; nothing was started."),
            409: refusal("A chain with one of the ids exists; nothing was started."),
        },
        summary="Start chains, all of them or none",
        description="A chain whose key is held is not started: the one that holds it is returned "
        "as a duplicate. The header `traceparent` becomes the context of the chains.",
        tags=_TAGS,
    )
    async def start_chains(request: Request[Any, Any, Any]) -> StartedChains:
        asked = decode_body(_starts, await request.body(), {})
        context = valid_context(request.headers)
        trace = spell_context(context.get(TRACEPARENT), context.get(TRACESTATE))
        return StartedChains(await desk.start(asked.chains, trace=trace))

    return start_chains


def _reading_routes(desk: JobService) -> list[HTTPRouteHandler]:
    @get(
        _PATH,
        operation_id="listChains",
        opt=needs(Level.READ_ONLY),
        summary="List chains, page by page",
        description="Pages go by id, which is the order of creation: nothing is repeated or "
        "skipped, whatever is started meanwhile.",
        tags=_TAGS,
    )
    async def list_chains(
        only_type: OnlyType = None,
        only_state: OnlyState = None,
        key: OnlyKey = None,
        parent_job_id: OnlyParent = None,
        since: Since = None,
        until: Until = None,
        page_size: PageSize = 50,
        after_id: AfterId = None,
        order: Order = "newest",
    ) -> ChainPage:
        which = ChainFilter(
            type=only_type or None,
            state=only_state,
            parent_job_id=parent_job_id,
            key=key or None,
            created_from=since,
            created_to=until,
        )
        page = await desk.inspection.chains(
            which, limit=page_size, after=after_id, descending=order == "newest"
        )
        return listed(ChainPage, page)

    @get(
        _ONE,
        operation_id="showChain",
        opt=needs(Level.READ_ONLY),
        responses=NO_CHAIN,
        summary="Show a chain, and where it is",
        tags=_TAGS,
    )
    async def show_chain(chain_id: ChainId) -> ChainRow:
        return await desk.chain(chain_id)

    @get(
        f"{_ONE}/jobs",
        operation_id="listChainJobs",
        opt=needs(Level.READ_ONLY),
        responses=NO_CHAIN,
        summary="List the jobs of a chain, the first ones first",
        tags=_TAGS,
    )
    async def list_chain_jobs(
        chain_id: ChainId, page_size: PageSize = 50, after_id: AfterId = None
    ) -> JobPage:
        await desk.chain(chain_id)
        page = await desk.inspection.jobs(
            JobFilter(chain_id=chain_id), limit=page_size, after=after_id, descending=False
        )
        return listed(JobPage, page)

    @get(
        f"{_ONE}/result",
        operation_id="awaitChain",
        opt=needs(Level.READ_ONLY),
        responses=NO_CHAIN,
        summary="Wait for a chain to end, and return what it yielded",
        description="`state` is `open` when it has not ended in time: ask again.",
        tags=_TAGS,
    )
    async def await_chain(chain_id: ChainId, patience_s: Patience = 0) -> ChainResult:
        outcome = await desk.result(chain_id, timeout_s=patience_s)
        if outcome is None:
            return ChainResult("open", msgspec.Raw(b"null"), None)
        output = msgspec.Raw((outcome.output or "null").encode())
        return ChainResult(outcome.state, output, outcome.error)

    return [list_chains, show_chain, list_chain_jobs, await_chain]


def _changing_routes(desk: JobService) -> list[HTTPRouteHandler]:
    @post(
        f"{_PATH}/cancel",
        status_code=200,
        operation_id="cancelChains",
        operation_class=body_of(CancelRequests),
        opt=needs(Level.READ_WRITE),
        responses=NO_CHAIN,
        summary="Cancel chains; those that have ended stay as they are",
        tags=_TAGS,
    )
    async def cancel_chains(request: Request[Any, Any, Any]) -> ChainStates:
        asked = decode_body(_cancels, await request.body(), {})
        return await _cancelled(desk, asked.ids, asked)

    @post(
        f"{_ONE}/cancel",
        status_code=200,
        operation_id="cancelChain",
        operation_class=body_of(CancelRequest, is_required=False),
        opt=needs(Level.READ_WRITE),
        responses=NO_CHAIN,
        summary="Cancel a chain: what waits never runs, what runs is told to stop",
        tags=_TAGS,
    )
    async def cancel_chain(chain_id: ChainId, request: Request[Any, Any, Any]) -> ChainStates:
        asked = decode_optional_body(_cancel, await request.body(), {}) or CancelRequest()
        return await _cancelled(desk, [chain_id], asked)

    @post(
        f"{_ONE}/retry",
        status_code=200,
        operation_id="retryChain",
        opt=needs(Level.READ_WRITE),
        responses={**NO_CHAIN, 409: refusal("It has not failed, nor was it cancelled.")},
        summary="Let a failed or cancelled chain go on from the job at which it ended",
        tags=_TAGS,
    )
    async def retry_chain(chain_id: ChainId) -> ChainRow:
        await desk.control.retry(chain_id)
        return await desk.chain(chain_id)

    @delete(
        _ONE,
        status_code=200,
        operation_id="deleteChain",
        opt=needs(Level.ADMIN),
        responses={
            **NO_CHAIN,
            409: refusal("A job of another chain needs it; nothing was deleted."),
        },
        summary="Delete a chain with its jobs",
        tags=_TAGS,
    )
    async def delete_chain(chain_id: ChainId, cascade: Cascade = False) -> Deleted:
        await desk.chain(chain_id)
        return Deleted(await desk.control.delete(chain_id, cascade=cascade))

    return [cancel_chains, cancel_chain, retry_chain, delete_chain]


def _settling_routes(desk: JobService) -> list[HTTPRouteHandler]:
    @post(
        f"{_ONE}/complete",
        status_code=200,
        operation_id="completeChain",
        operation_class=body_of(CompleteRequest),
        opt=needs(Level.READ_WRITE),
        responses=_CLOSED,
        summary="Complete the open job of a chain from outside, and with it the chain",
        description="A worker that runs the job is told to stop, and cannot write any more.",
        tags=_TAGS,
    )
    async def complete_chain(chain_id: ChainId, request: Request[Any, Any, Any]) -> ChainRow:
        asked = decode_body(_complete, await request.body(), {})
        await desk.complete(chain_id, asked.output, job=asked.job_type)
        return await desk.chain(chain_id)

    @post(
        f"{_ONE}/fail",
        status_code=200,
        operation_id="failChain",
        operation_class=body_of(FailRequest),
        opt=needs(Level.READ_WRITE),
        responses=_CLOSED,
        summary="Let the open job of a chain fail from outside, and with it the chain",
        tags=_TAGS,
    )
    async def fail_chain(chain_id: ChainId, request: Request[Any, Any, Any]) -> ChainRow:
        asked = decode_body(_fail, await request.body(), {})
        await desk.fail(chain_id, asked.error, job=asked.job_type)
        return await desk.chain(chain_id)

    @post(
        f"{_ONE}/continue",
        status_code=200,
        operation_id="continueChain",
        operation_class=body_of(ContinueRequest),
        opt=needs(Level.READ_WRITE),
        responses=_CLOSED,
        summary="Complete the open job of a chain from outside; the chain goes on with another",
        tags=_TAGS,
    )
    async def continue_chain(chain_id: ChainId, request: Request[Any, Any, Any]) -> ChainRow:
        asked = decode_body(_continue, await request.body(), {})
        await desk.go_on(chain_id, asked.next, job=asked.job_type)
        return await desk.chain(chain_id)

    return [complete_chain, fail_chain, continue_chain]


async def _cancelled(desk: JobService, ids: list[UUID], asked: CancelRequest) -> ChainStates:
    states = await desk.control.cancel(*ids, cascade=asked.cascade, reason=asked.reason)
    return ChainStates({str(chain_id): state for chain_id, state in states.items()})
