"""The routes that change all chains or jobs that match a filter, some thousand per request.

A request works off part of what matches, in small transactions, and says where to go on: the next
one repeats it with `after`. So no request takes minutes, and one that was lost can be repeated.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias
from uuid import UUID

import msgspec
from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from skep.jobs.client.bulk import Matches, Sweep, cancellable, retryable, triggerable
from skep.jobs.client.inspection import ChainFilter, JobFilter
from skep.jobs.service.service import JobService
from skep.model.errors import BadRequest
from skep.server.api_document.bodies import body_of
from skep.server.auth.access import Level, needs
from skep.server.hot.decoding import decode_body

_CHAINS: Final = "/api/v1/chains/matching"
_JOBS: Final = "/api/v1/jobs/matching"
_NOTE: Final = (
    "Repeat the request with `after` of the answer until that is null. `dryRun` only counts. "
    "A filter that says nothing is refused, unless `all` says that it is meant."
)
SEEN_MAX: Final = 10_000
_SEEN_DEFAULT: Final = 1_000

Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]


class Portion(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How much of what matches this request is about."""

    all: bool = False
    """That everything matches is meant: needed when the filter says nothing."""
    dry_run: bool = False
    """Only count what matches."""
    after: UUID | None = None
    """`after` of the answer before."""
    limit: Annotated[int, Meta(ge=1, le=SEEN_MAX)] = _SEEN_DEFAULT
    """How many to look at."""


class ChainMatch(Portion, frozen=True, kw_only=True, rename="camel"):
    """Which chains, as in the listing."""

    type: str | None = None
    state: Literal["open", "completed", "failed", "cancelled"] | None = None
    key: str | None = None
    parent_job_id: UUID | None = None
    since: Moment | None = msgspec.field(default=None, name="from")
    """Only started at this time or later."""
    until: Moment | None = msgspec.field(default=None, name="to")
    """Only started before this time."""

    def chains(self) -> ChainFilter:
        """Return the filter; BadRequest if it says nothing, and that is not said to be meant."""
        which = ChainFilter(
            type=self.type,
            state=self.state,
            key=self.key,
            parent_job_id=self.parent_job_id,
            created_from=self.since,
            created_to=self.until,
        )
        _require_meant(self, is_empty=which == ChainFilter())
        return which


class CancelMatch(ChainMatch, frozen=True, kw_only=True, rename="camel"):
    """Which open chains are to be cancelled, and why."""

    cascade: bool = False
    """Also the chains that wait for them."""
    reason: Annotated[str, Meta(max_length=1_000)] | None = None


class JobMatch(Portion, frozen=True, kw_only=True, rename="camel"):
    """Which jobs, as in the listing."""

    type: str | None = None
    chain_id: UUID | None = None
    blocked_by: UUID | None = None

    def jobs(self) -> JobFilter:
        """Return the filter; BadRequest if it says nothing, and that is not said to be meant."""
        which = JobFilter(type=self.type, chain_id=self.chain_id, blocked_by=self.blocked_by)
        _require_meant(self, is_empty=which == JobFilter())
        return which


class BulkAnswer(Sweep, rename="camel", kw_only=True):
    """What became of those that were looked at; `after` asks for more, null at the end."""

    matches: Matches | None = None
    """How many match, where only that was asked for."""


_chains = msgspec.json.Decoder(ChainMatch)
_cancels = msgspec.json.Decoder(CancelMatch)
_jobs = msgspec.json.Decoder(JobMatch)


def job_bulk_routes(desk: JobService) -> list[HTTPRouteHandler]:
    """Make the routes around what can be done with all that match."""
    return [_cancel_route(desk), _retry_route(desk), _delete_route(desk), _trigger_route(desk)]


def _cancel_route(desk: JobService) -> HTTPRouteHandler:
    @post(
        f"{_CHAINS}/cancel",
        status_code=200,
        operation_id="cancelMatchingChains",
        operation_class=body_of(CancelMatch),
        opt=needs(Level.READ_WRITE),
        summary="Cancel the open chains that match",
        description=_NOTE,
        tags=["Chains"],
    )
    async def cancel_matching(request: Request[Any, Any, Any]) -> BulkAnswer:
        asked = decode_body(_cancels, await request.body(), {})
        which = cancellable(asked.chains())
        return await _answer(
            asked,
            lambda: desk.bulk.count_chains(which),
            lambda: desk.bulk.cancel(
                which,
                cascade=asked.cascade,
                reason=asked.reason,
                after=asked.after,
                limit=asked.limit,
            ),
        )

    return cancel_matching


def _retry_route(desk: JobService) -> HTTPRouteHandler:
    @post(
        f"{_CHAINS}/retry",
        status_code=200,
        operation_id="retryMatchingChains",
        operation_class=body_of(ChainMatch),
        opt=needs(Level.READ_WRITE),
        summary="Let the failed chains that match go on, or the cancelled ones",
        description=_NOTE,
        tags=["Chains"],
    )
    async def retry_matching(request: Request[Any, Any, Any]) -> BulkAnswer:
        asked = decode_body(_chains, await request.body(), {})
        which = retryable(asked.chains())
        return await _answer(
            asked,
            lambda: desk.bulk.count_chains(which),
            lambda: desk.bulk.retry(which, after=asked.after, limit=asked.limit),
        )

    return retry_matching


def _delete_route(desk: JobService) -> HTTPRouteHandler:
    @post(
        f"{_CHAINS}/delete",
        status_code=200,
        operation_id="deleteMatchingChains",
        operation_class=body_of(ChainMatch),
        opt=needs(Level.ADMIN),
        summary="Delete the chains that match, with their jobs",
        description=f"{_NOTE} A chain that a job of another one needs stays, and is counted as "
        "`needed`.",
        tags=["Chains"],
    )
    async def delete_matching(request: Request[Any, Any, Any]) -> BulkAnswer:
        asked = decode_body(_chains, await request.body(), {})
        which = asked.chains()
        return await _answer(
            asked,
            lambda: desk.bulk.count_chains(which),
            lambda: desk.bulk.delete(which, after=asked.after, limit=asked.limit),
        )

    return delete_matching


def _trigger_route(desk: JobService) -> HTTPRouteHandler:
    @post(
        f"{_JOBS}/trigger",
        status_code=200,
        operation_id="triggerMatchingJobs",
        operation_class=body_of(JobMatch),
        opt=needs(Level.READ_WRITE),
        summary="Let the scheduled jobs that match run now",
        description=_NOTE,
        tags=["Jobs"],
    )
    async def trigger_matching(request: Request[Any, Any, Any]) -> BulkAnswer:
        asked = decode_body(_jobs, await request.body(), {})
        which = triggerable(asked.jobs())
        return await _answer(
            asked,
            lambda: desk.bulk.count_jobs(which),
            lambda: desk.bulk.trigger(which, after=asked.after, limit=asked.limit),
        )

    return trigger_matching


async def _answer(
    asked: Portion,
    count: Callable[[], Awaitable[Matches]],
    change: Callable[[], Awaitable[Sweep]],
) -> BulkAnswer:
    if asked.dry_run:
        return BulkAnswer(matches=await count())
    sweep = await change()
    return BulkAnswer(
        seen=sweep.seen,
        done=sweep.done,
        refused=sweep.refused,
        examples=sweep.examples,
        after=sweep.after,
    )


def _require_meant(portion: Portion, *, is_empty: bool) -> None:
    if is_empty and not portion.all:
        raise BadRequest("the filter says nothing: say `all` if everything is meant")
