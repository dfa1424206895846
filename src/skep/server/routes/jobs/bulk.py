"""The routes that change all chains or jobs that match a filter, some thousand per request.

A request handles part of the matches in small transactions and returns `after`; the client repeats
it with that value. So no request takes minutes, and a lost one can be repeated.
"""

from datetime import datetime
from typing import Annotated, Final, Literal, TypeAlias
from uuid import UUID

import msgspec
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from skep.jobs.client.bulk import Matches, Sweep, cancellable, retryable, triggerable
from skep.jobs.client.inspection import ChainFilter, JobFilter
from skep.jobs.service.service import JobService
from skep.model.errors import BadRequest
from skep.server.auth.access import Level, needs
from skep.server.routes.section import AnyRequest, Body, Section

_CHAINS: Final = "/api/v1/chains/matching"
_NOTE: Final = (
    "Repeat the request with the `after` of the answer until that is null. `dryRun` only counts. "
    "An empty filter is refused unless `all` is true."
)
SEEN_MAX: Final = 10_000
_SEEN_DEFAULT: Final = 1_000

ZonedTime: TypeAlias = Annotated[datetime, Meta(tz=True)]


class Portion(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How much of what matches this request handles."""

    all: bool = False
    """Confirms that everything is meant; required with an empty filter."""
    dry_run: bool = False
    """Only count what matches."""
    after: UUID | None = None
    """`after` of the previous answer."""
    limit: Annotated[int, Meta(ge=1, le=SEEN_MAX)] = _SEEN_DEFAULT
    """Maximum number of chains or jobs to look at."""

    def _checked(self, which: ChainFilter | JobFilter) -> None:
        if which == type(which)() and not self.all:
            raise BadRequest('the filter is empty: send "all": true to match everything')


class ChainMatch(Portion, frozen=True, kw_only=True, rename="camel"):
    """Which chains, as in the listing."""

    type: str | None = None
    state: Literal["open", "completed", "failed", "cancelled"] | None = None
    key: str | None = None
    parent_job_id: UUID | None = None
    since: ZonedTime | None = msgspec.field(default=None, name="from")
    """Only chains started at this time or later."""
    until: ZonedTime | None = msgspec.field(default=None, name="to")
    """Only chains started before this time."""

    def chains(self) -> ChainFilter:
        """Return the filter; BadRequest if it is empty without `all`."""
        which = ChainFilter(
            type=self.type,
            state=self.state,
            key=self.key,
            parent_job_id=self.parent_job_id,
            created_from=self.since,
            created_to=self.until,
        )
        self._checked(which)
        return which


class CancelMatch(ChainMatch, frozen=True, kw_only=True, rename="camel"):
    """Which open chains to cancel, and why."""

    cascade: bool = False
    """Also cancel the chains that wait for them."""
    reason: Annotated[str, Meta(max_length=1_000)] | None = None


class JobMatch(Portion, frozen=True, kw_only=True, rename="camel"):
    """Which jobs, as in the listing."""

    type: str | None = None
    chain_id: UUID | None = None
    blocked_by: UUID | None = None

    def jobs(self) -> JobFilter:
        """Return the filter; BadRequest if it is empty without `all`."""
        which = JobFilter(type=self.type, chain_id=self.chain_id, blocked_by=self.blocked_by)
        self._checked(which)
        return which


class BulkAnswer(Sweep, rename="camel", kw_only=True):
    """The outcome for the chains or jobs looked at. Repeat with `after`; null at the end."""

    matches: Matches | None = None
    """How many match; only in the answer to a `dryRun`."""


_CHAIN_MATCH: Final = Body(ChainMatch)
_CANCEL_MATCH: Final = Body(CancelMatch)
_JOB_MATCH: Final = Body(JobMatch)


def job_bulk_routes(service: JobService) -> list[HTTPRouteHandler]:
    """Declare the routes for everything that matches a filter."""
    chains, jobs, bulk = Section("Chains"), Section("Jobs"), service.bulk
    write = needs(Level.READ_WRITE)

    @chains.post(f"{_CHAINS}/cancel", write, body=_CANCEL_MATCH, description=_NOTE)
    async def cancel_matching_chains(request: AnyRequest) -> BulkAnswer:
        """Cancel the open chains that match."""
        asked = await _CANCEL_MATCH.read(request)
        which = cancellable(asked.chains())
        if asked.dry_run:
            return BulkAnswer(matches=await bulk.count_chains(which))
        sweep = await bulk.cancel(
            which,
            cascade=asked.cascade,
            reason=asked.reason,
            after=asked.after,
            limit=asked.limit,
        )
        return _answer(sweep)

    @chains.post(f"{_CHAINS}/retry", write, body=_CHAIN_MATCH, description=_NOTE)
    async def retry_matching_chains(request: AnyRequest) -> BulkAnswer:
        """Retry the failed or cancelled chains that match."""
        asked = await _CHAIN_MATCH.read(request)
        which = retryable(asked.chains())
        if asked.dry_run:
            return BulkAnswer(matches=await bulk.count_chains(which))
        return _answer(await bulk.retry(which, after=asked.after, limit=asked.limit))

    @chains.post(
        f"{_CHAINS}/delete",
        needs(Level.ADMIN),
        body=_CHAIN_MATCH,
        description=f"{_NOTE} A chain that a job of another chain needs is kept and counted as "
        "`needed`.",
    )
    async def delete_matching_chains(request: AnyRequest) -> BulkAnswer:
        """Delete the chains that match, with their jobs."""
        asked = await _CHAIN_MATCH.read(request)
        which = asked.chains()
        if asked.dry_run:
            return BulkAnswer(matches=await bulk.count_chains(which))
        return _answer(await bulk.delete(which, after=asked.after, limit=asked.limit))

    @jobs.post("/api/v1/jobs/matching/trigger", write, body=_JOB_MATCH, description=_NOTE)
    async def trigger_matching_jobs(request: AnyRequest) -> BulkAnswer:
        """Run the scheduled jobs that match now."""
        asked = await _JOB_MATCH.read(request)
        which = triggerable(asked.jobs())
        if asked.dry_run:
            return BulkAnswer(matches=await bulk.count_jobs(which))
        return _answer(await bulk.trigger(which, after=asked.after, limit=asked.limit))

    return [*chains.routes, *jobs.routes]


def _answer(sweep: Sweep) -> BulkAnswer:
    return BulkAnswer(**msgspec.structs.asdict(sweep))
