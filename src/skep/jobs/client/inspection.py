"""Read chains, jobs, attempts, types and workers: pages by key, never by offset.

The id is the whole cursor of a page. Ids are in the order of creation, so pages neither repeat nor
skip a row, even if rows are inserted meanwhile.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeVar
from uuid import UUID

import msgspec

from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.model.errors import BadRequest

PAGE_LIMIT: Final = 50
PAGE_LIMIT_MAX: Final = 1000
COUNT_BUDGET: Final = 50_000
"""How many open jobs are read to count them, about; some ten milliseconds."""
CHAINS_COUNTED: Final = 10_000
"""Chains of a state are counted up to here."""
GRAPH_CHAINS_MAX: Final = 40
GRAPH_JOBS_MAX: Final = 200
"""How much of a graph is shown: more can neither be drawn nor read."""

ChainState = Literal["open", "completed", "failed", "cancelled"]
JobState = Literal[
    "blocked", "scheduled", "ready", "running", "completed", "continued", "failed", "cancelled"
]

Row = TypeVar("Row")
Key = TypeVar("Key")


class ChainRow(msgspec.Struct, frozen=True, rename="camel"):
    """A chain, and where it is.

    `failed_blockers`: if its open job waits for other chains, how many of them failed or were
    cancelled. `error`: why it failed; `last_error`: that, or of the last attempt that did.
    """

    id: UUID
    type: str
    state: str
    created_at: datetime
    closed_at: datetime | None
    deadline_at: datetime | None
    key: str | None
    parent_job_id: UUID | None
    error: str | None
    job_count: int
    last_job_id: UUID
    last_job_type: str
    last_job_state: str
    input: msgspec.Raw
    output: msgspec.Raw
    trace: str | None
    failed_blockers: int | None
    last_error: str | None


class JobRow(msgspec.Struct, frozen=True, rename="camel"):
    """A job, and where it is. `failures` and `due_at` are known while it is open.

    `progress` (from 0 to 1) and `progress_note` are the last report of its handler, if any. If an
    open job has blockers, `failed_blockers` is how many of them failed or were cancelled, and
    `on_blocker_failure` what that means to it: it waits on, fails too, or ignores it. `error`: why
    it failed; `last_error`: that, or of the last attempt that did.
    """

    id: UUID
    chain_id: UUID
    position: int
    type: str
    state: str
    priority: int
    created_at: datetime
    due_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    attempts: int
    failures: int | None
    max_attempts: int
    worker_id: UUID | None
    limit_key: str | None
    input: msgspec.Raw
    output: msgspec.Raw
    error: str | None
    trace: str | None
    progress: float | None
    progress_note: str | None
    on_blocker_failure: str | None
    failed_blockers: int | None
    last_error: str | None


class BlockerRow(msgspec.Struct, frozen=True, rename="camel"):
    """A chain that a job waits or waited for, and what it yielded if it is completed.

    `on_failure`: what the job does if it is not: wait, fail or ignore.
    """

    chain: UUID
    type: str
    state: str
    output: msgspec.Raw
    on_failure: str


class AttemptRow(msgspec.Struct, frozen=True, rename="camel"):
    """One attempt of a job."""

    attempt: int
    outcome: str
    worker_id: UUID | None
    started_at: datetime | None
    ended_at: datetime | None
    error: str | None


class GraphJob(msgspec.Struct, frozen=True, rename="camel"):
    """A job in the graph of a chain.

    `waits_for`: the chains it waits or waited for. `parent_job_id`: the job that started its chain.
    `error`: why it failed, or the last attempt that did.
    """

    id: UUID
    chain_id: UUID
    chain_state: str
    parent_job_id: UUID | None
    position: int
    type: str
    state: str
    created_at: datetime
    due_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    attempts: int
    max_attempts: int
    waits_for: list[UUID]
    error: str | None
    tries: list[AttemptRow]
    """The last 20."""


class ChainCounts(msgspec.Struct, frozen=True, rename="camel"):
    """How many chains are in a state; at least so many if it is not exact."""

    state: ChainState
    count: int
    is_exact: bool


class TypeCounts(msgspec.Struct, frozen=True, rename="camel"):
    """How many jobs of a type are open.

    Up to `exact_up_to` they are counted. If there are more, the numbers of the type that are larger
    are estimates, and `is_exact` is false.
    """

    type: str
    ready: int
    scheduled: int
    blocked: int
    running: int
    oldest_ready_s: float | None
    is_exact: bool
    exact_up_to: int


class TypeRow(msgspec.Struct, frozen=True, rename="camel"):
    """A type of jobs and its limits; None = no limit."""

    name: str
    is_paused: bool
    concurrency: int | None
    key_concurrency: int | None
    rate_limit: int | None
    rate_period_s: float | None


class WorkerRow(msgspec.Struct, frozen=True, rename="camel"):
    """A worker; one that is late lost its lease, and other workers will take its jobs."""

    id: UUID
    name: str
    enrolled_at: datetime
    expires_at: datetime
    is_late: bool
    running: int


_attempts_decoder: Final = msgspec.json.Decoder(list[AttemptRow])


@dataclass(frozen=True, slots=True)
class Page(Generic[Row, Key]):
    """Part of a list; `after` asks for the next part, None at the end."""

    items: list[Row]
    after: Key | None


@dataclass(frozen=True, slots=True)
class ChainFilter:
    """Which chains; None = any."""

    type: str | None = None
    state: ChainState | None = None
    parent_job_id: UUID | None = None
    key: str | None = None
    ids: Sequence[UUID] | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None

    def arguments(self) -> tuple[object, ...]:
        """Return them in the order of the SQL functions."""
        ids = None if self.ids is None else list(self.ids)
        what = (self.type, self.state, self.parent_job_id, self.key, ids)
        return (*what, self.created_from, self.created_to)


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs; None = any."""

    type: str | None = None
    state: JobState | None = None
    chain_id: UUID | None = None
    ids: Sequence[UUID] | None = None
    blocked_by: UUID | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None

    def arguments(self) -> tuple[object, ...]:
        """Return them in the order of the SQL functions."""
        ids = None if self.ids is None else list(self.ids)
        what = (self.type, self.state, self.chain_id, ids, self.blocked_by)
        return (*what, self.created_from, self.created_to)


class Inspection:
    """Reads what there is."""

    def __init__(self, caller: Caller) -> None:
        self._sql: Final = Functions(caller)

    async def chains(
        self,
        which: ChainFilter,
        *,
        limit: int = PAGE_LIMIT,
        after: UUID | None = None,
        descending: bool = True,
    ) -> Page[ChainRow, UUID]:
        """Return a page of chains."""
        arguments = (*which.arguments(), descending, after)
        return await self._page(ChainRow, lambda row: row.id, limit, "chain_list", *arguments)

    async def jobs(
        self,
        which: JobFilter,
        *,
        limit: int = PAGE_LIMIT,
        after: UUID | None = None,
        descending: bool = True,
    ) -> Page[JobRow, UUID]:
        """Return a page of jobs."""
        arguments = (*which.arguments(), descending, after)
        return await self._page(JobRow, lambda row: row.id, limit, "job_list", *arguments)

    async def attempts(
        self, job_id: UUID, *, after: int = 0, limit: int = PAGE_LIMIT_MAX
    ) -> list[AttemptRow]:
        """Return the attempts of a job, the first ones first."""
        rows = await self._sql.rows("job_attempts", job_id, after, _checked(limit))
        return [AttemptRow(**row) for row in rows]

    async def blockers(self, job_id: UUID) -> list[BlockerRow]:
        """Return the chains that a job waits or waited for, in the order in which it sees them."""
        text = await self._sql.value("job_blockers", job_id)
        return [] if text is None else msgspec.json.decode(text, type=list[BlockerRow])

    async def graph(self, chain_id: UUID) -> list[GraphJob]:
        """Return the jobs of a chain and of those around it: all, or `GRAPH_JOBS_MAX` of them."""
        rows = await self._sql.rows("chain_graph", chain_id, GRAPH_CHAINS_MAX, GRAPH_JOBS_MAX)
        return [GraphJob(**_with_attempts(row)) for row in rows]

    async def chain_counts(self) -> list[ChainCounts]:
        """Return how many chains there are in each state, counted up to `CHAINS_COUNTED`."""
        rows = await self._sql.rows("chain_counts", CHAINS_COUNTED)
        return [ChainCounts(*row) for row in rows]

    async def types(
        self, *, after: str | None = None, limit: int = PAGE_LIMIT
    ) -> Page[TypeRow, str]:
        """Return a page of the types of jobs, in the order of their names."""
        return await self._page(TypeRow, lambda row: row.name, limit, "job_type_list", after)

    async def workers(
        self, *, after: UUID | None = None, limit: int = PAGE_LIMIT
    ) -> Page[WorkerRow, UUID]:
        """Return a page of the workers, in the order of their enrollment."""
        return await self._page(WorkerRow, lambda row: row.id, limit, "job_worker_list", after)

    async def counts(self) -> list[TypeCounts]:
        """Return how many jobs of each type are open; large numbers are estimates."""
        rows = await self._sql.rows("job_counts", COUNT_BUDGET)
        return [TypeCounts(*row) for row in rows]

    async def _page(
        self,
        shape: Callable[..., Row],
        key: Callable[[Row], Key],
        limit: int,
        function: str,
        *arguments: object,
    ) -> Page[Row, Key]:
        """Read the rows of a page, and one more to know whether there is a next page."""
        rows = await self._sql.rows(function, *arguments, _checked(limit) + 1)
        return page_of([shape(**members_of(row)) for row in rows], limit, key)


def _checked(limit: int) -> int:
    if not 1 <= limit <= PAGE_LIMIT_MAX:
        raise BadRequest(f"invalid limit {limit}: use 1 to {PAGE_LIMIT_MAX}")
    return limit


def page_of(rows: list[Row], limit: int, key: Callable[[Row], Key]) -> Page[Row, Key]:
    """Return a page of rows, of which one more than the limit was read."""
    return Page(rows[:limit], key(rows[limit - 1]) if len(rows) > limit else None)


def _with_attempts(row: Any) -> dict[str, Any]:
    return {**row, "tries": _attempts_decoder.decode(row["tries"] or "[]")}


def members_of(row: Any) -> dict[str, Any]:
    """Return the members of a row, of which input and output are JSON as it is stored."""
    members = dict(row)
    for name in members.keys() & {"input", "output"}:
        members[name] = msgspec.Raw((members[name] or "null").encode())
    return members
