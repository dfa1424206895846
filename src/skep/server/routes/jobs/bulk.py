"""The routes that change all chains or jobs that match a filter, some thousand per request.

A request handles part of the matches in small transactions and returns `after`; the client repeats
it with that value. So no request takes minutes, and a lost one can be repeated.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Final, TypeAlias, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta

from skep.jobs.client.bulk import Matches, Sweep, cancellable, retryable, triggerable
from skep.jobs.client.inspection import ChainFilter, ChainState, JobFilter
from skep.jobs.service.service import JobService
from skep.model.errors import BadRequest
from skep.server.auth import access
from skep.server.routes.section import Body, Section, routes_of

_CHAINS: Final = "/api/v1/chains/matching"
_NOTE: Final = (
    "Repeat the request with the `after` of the answer until that is null. `dryRun` only counts. "
    "An empty filter is refused unless `all` is true."
)
SEEN_MAX: Final = 10_000
_SEEN_DEFAULT: Final = 1_000

ZonedTime: TypeAlias = Annotated[datetime, Meta(tz=True)]
Which = TypeVar("Which", ChainFilter, JobFilter)


class Portion(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How much of what matches this request handles, and what every filter has."""

    all: bool = False
    """Confirms that everything is meant; required with an empty filter."""
    dry_run: bool = False
    """Only count what matches."""
    after: UUID | None = None
    """`after` of the previous answer."""
    limit: Annotated[int, Meta(ge=1, le=SEEN_MAX)] = _SEEN_DEFAULT
    """Maximum number of chains or jobs to look at."""
    type: str | None = None
    since: ZonedTime | None = msgspec.field(default=None, name="from")
    """Only what was created at this time or later."""
    until: ZonedTime | None = msgspec.field(default=None, name="to")
    """Only what was created before this time."""

    def _checked(self, which: Which) -> Which:
        if which == type(which)() and not self.all:
            raise BadRequest('the filter is empty: send "all": true to match everything')
        return which


class ChainMatch(Portion, frozen=True, kw_only=True, rename="camel"):
    """Which chains, as in the listing."""

    state: ChainState | None = None
    key: str | None = None
    parent_job_id: UUID | None = None
    ids: Annotated[list[UUID], Meta(max_length=SEEN_MAX)] | None = None
    """Only these."""

    def chains(self) -> ChainFilter:
        """Return the filter; BadRequest if it is empty without `all`."""
        return self._checked(
            ChainFilter(
                type=self.type,
                state=self.state,
                key=self.key,
                parent_job_id=self.parent_job_id,
                ids=self.ids,
                created_from=self.since,
                created_to=self.until,
            )
        )


class CancelMatch(ChainMatch, frozen=True, kw_only=True, rename="camel"):
    """Which open chains to cancel, and why."""

    cascade: bool = False
    """Also cancel the chains that wait for them."""
    reason: Annotated[str, Meta(max_length=1_000)] | None = None


class JobMatch(Portion, frozen=True, kw_only=True, rename="camel"):
    """Which jobs, as in the listing."""

    chain_id: UUID | None = None
    blocked_by: UUID | None = None

    def jobs(self) -> JobFilter:
        """Return the filter; BadRequest if it is empty without `all`."""
        return self._checked(
            JobFilter(
                type=self.type,
                chain_id=self.chain_id,
                blocked_by=self.blocked_by,
                created_from=self.since,
                created_to=self.until,
            )
        )


class BulkAnswer(Sweep, rename="camel", kw_only=True):
    """The outcome for the chains or jobs looked at. Repeat with `after`; null at the end."""

    matches: Matches | None = None
    """How many match; only in the answer to a `dryRun`."""


@routes_of("Chains")
def job_bulk_routes(section: Section, service: JobService) -> None:
    """Declare the routes for everything that matches a filter."""
    bulk = service.bulk

    async def change(
        asked: Portion, which: Which, act: Callable[..., Awaitable[Sweep]], **options: object
    ) -> BulkAnswer:
        if asked.dry_run:
            return BulkAnswer(matches=await bulk.count(which))
        sweep = await act(which, after=asked.after, limit=asked.limit, **options)
        return BulkAnswer(**msgspec.structs.asdict(sweep))

    @section.post(f"{_CHAINS}/cancel", access.WRITE, body=Body(CancelMatch), description=_NOTE)
    async def cancel_matching_chains(asked: CancelMatch) -> BulkAnswer:
        """Cancel the open chains that match."""
        how = {"cascade": asked.cascade, "reason": asked.reason}
        return await change(asked, cancellable(asked.chains()), bulk.cancel, **how)

    @section.post(f"{_CHAINS}/retry", access.WRITE, body=Body(ChainMatch), description=_NOTE)
    async def retry_matching_chains(asked: ChainMatch) -> BulkAnswer:
        """Retry the failed or cancelled chains that match."""
        return await change(asked, retryable(asked.chains()), bulk.retry)

    @section.post(
        f"{_CHAINS}/delete",
        access.ADMIN,
        body=Body(ChainMatch),
        description=f"{_NOTE} A chain that a job of another chain needs is kept and counted as "
        "`needed`.",
    )
    async def delete_matching_chains(asked: ChainMatch) -> BulkAnswer:
        """Delete the chains that match, with their jobs."""
        return await change(asked, asked.chains(), bulk.delete)

    @section.post(
        "/api/v1/jobs/matching/trigger",
        access.WRITE,
        body=Body(JobMatch),
        description=_NOTE,
        tag="Jobs",
    )
    async def trigger_matching_jobs(asked: JobMatch) -> BulkAnswer:
        """Run the scheduled jobs that match now."""
        return await change(asked, triggerable(asked.jobs()), bulk.trigger)
