"""The calls of the SQL functions for jobs: values in, rows out, nothing decided.

A `Fetch` runs a statement somewhere: on one of our connections, or in a transaction of the user.
Casts are spelled out, because other drivers than ours do not know the types of parameters.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

from skep.jobs.declare.declaration import Start, Step

Fetch: TypeAlias = Callable[..., Awaitable[Sequence[Any]]]
Outcome: TypeAlias = Literal["completed", "continued", "retry", "rescheduled", "released", "failed"]

TABLES: Final = (
    "open_job",
    "job",
    "chain",
    "blocker",
    "job_attempt",
    "job_progress",
    "chain_key",
    "job_worker",
)
"""The tables of jobs in which rows come and go."""

START_CALL: Final = (
    "select chain_id, outcome from skep.chain_start($1::uuid[], $2::text[], $3::text[],"
    " $4::smallint[], $5::timestamptz[], $6::double precision[], $7::integer[], $8::text[],"
    " $9::double precision[], $10::uuid[], $11::text[], $12::text[], $13::boolean[],"
    " $14::double precision[], $15::uuid[], $16::integer[], $17::uuid[], $18::text[],"
    " $19::boolean)"
)
SETTLE_CALL: Final = (
    "select outcome, closed, woken from skep.job_settle($1::uuid, $2::uuid[], $3::integer[],"
    " $4::text[], $5::text[], $6::text[], $7::double precision[], $8::timestamptz[], $9::uuid[],"
    " $10::text[], $11::text[], $12::smallint[], $13::integer[], $14::text[], $15::text[],"
    " $16::integer[], $17::uuid[], $18::text[], $19::boolean)"
)
COMPLETE_CALL: Final = "select outcome, closed, woken from skep.job_complete($1, $2, $3, $4, $5)"
CLAIM_CALL: Final = (
    "select job_id, chain_id, type_id, position, attempt, failures, max_attempts, input, trace,"
    " chain_trace, due_at, deadline_at, blockers, skep.now() as claimed_at"
    " from skep.job_claim($1, $2, $3, $4, $5)"
)
DISOWN_CALL: Final = "select type from skep.job_disown($1, $2, $3)"
ENSURE_TYPES_CALL: Final = "select name, id from skep.job_type_ensure($1)"
LIMIT_TYPES_CALL: Final = "select skep.job_type_limit($1, $2, $3, $4, $5)"
ENROLL_CALL: Final = "select skep.job_worker_enroll($1, $2, $3)"
LEAVE_CALL: Final = "select skep.job_worker_leave($1)"
RENEW_CALL: Final = "select job_id, reason from skep.job_renew($1, $2, $3, $4)"
REAP_CALL: Final = (
    "select job_id, chain_id, type, attempt, worker_id, is_failed, has_more from skep.job_reap($1)"
)
EXPIRE_CALL: Final = "select chain_id, type, is_late, job_id from skep.chain_expire($1)"
HOLD_CALL: Final = (
    "select state, type, job_id, attempt, job_type, input, is_running"
    " from skep.chain_hold($1::uuid)"
)
KEEP_CALL: Final = "select skep.job_hold($1, $2, $3, $4)"
OUTCOME_CALL: Final = "select chain_id, state, type, output, error from skep.chain_outcome($1)"
CANCEL_CALL: Final = (
    "select chain_id, outcome, job_id from skep.chain_cancel($1::uuid[], $2::boolean, $3::text)"
)
RETRY_CALL: Final = "select chain_id, outcome, type from skep.chain_retry($1::uuid[])"
DELETE_CALL: Final = (
    "select chain_id, referenced_by from skep.chain_delete($1::uuid[], $2::boolean)"
)
PRUNE_CALL: Final = "select deleted, seen_at, seen_id from skep.chain_prune($1, $2, $3, $4, $5)"
TRIGGER_CALL: Final = "select job_id, outcome, type from skep.job_trigger($1::uuid[])"
FIND_CHAINS_CALL: Final = "select * from skep.chain_find($1, $2, $3, $4, $5, $6, $7, $8, $9)"
FIND_JOBS_CALL: Final = "select * from skep.job_find($1, $2, $3, $4, $5, $6, $7, $8, $9)"
CHAIN_MATCHES_CALL: Final = (
    "select count(*) from skep.chain_find($1, $2, $3, $4, $5, $6, $7, null, $8)"
)
JOB_MATCHES_CALL: Final = "select count(*) from skep.job_find($1, $2, $3, $4, $5, $6, $7, null, $8)"
# Without waiting for chains that another transaction holds: the answer leaves them out.
CANCEL_FREE_CALL: Final = (
    "select chain_id, outcome, job_id from skep.chain_cancel(skep.chain_lock($1, false), $2, $3)"
)
RETRY_FREE_CALL: Final = (
    "select chain_id, outcome, type from skep.chain_retry(skep.chain_lock($1, false))"
)
DISCARD_CALL: Final = "select chain_id, outcome, null::uuid from skep.chain_discard($1, $2)"
HASTEN_CALL: Final = "select job_id, 'triggered', type from skep.job_hasten($1)"
REPORT_CALL: Final = "select skep.job_report($1, $2, $3, $4, $5)"
PAUSE_CALL: Final = "select skep.job_type_pause($1, $2)"
NOTIFY_CALL: Final = (
    # Channels are called after the schema, whose name is put into texts and not into parameters.
    "select pg_notify('skep' || substr(u.channel, 5), u.payload)"
    " from unnest($1::text[], $2::text[]) u(channel, payload)"
)


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


@dataclass(frozen=True, slots=True)
class Started:
    """What became of a chain to be started."""

    chain_id: UUID
    outcome: Literal["started", "duplicate", "exists", "missing_blocker"]

    @property
    def is_duplicate(self) -> bool:
        """Whether it was there already: its key is held."""
        return self.outcome == "duplicate"


def start_arguments(
    starts: Sequence[Start[Any]], *, notify: bool, traces: Sequence[str | None] | None = None
) -> list[object]:
    """Return the arguments of START_CALL; `traces` are the contexts that the chains keep."""
    steps = [start.step for start in starts]
    dedups = [start.dedup for start in starts]
    return [
        [step.id for step in steps],
        [step.job.name for step in steps],
        [step.input for step in steps],
        [step.priority for step in steps],
        [step.at for step in steps],
        [_seconds(step.after) for step in steps],
        [step.job.retry.max_attempts for step in steps],
        [step.limit_key for step in steps],
        [_seconds(start.deadline) for start in starts],
        [start.parent for start in starts],
        list(traces or [None] * len(starts)),
        [dedup and dedup.key for dedup in dedups],
        [dedup is not None and dedup.scope == "any" for dedup in dedups],
        [dedup and _seconds(dedup.window) for dedup in dedups],
        [dedup and dedup.instead_of for dedup in dedups],
        *_edges(steps),
        notify,
    ]


def started(rows: Iterable[Any]) -> list[Started]:
    """Read the rows of START_CALL, in the order of the starts."""
    return [Started(*row) for row in rows]


def _edges(steps: Sequence[Step | None]) -> list[list[Any]]:
    edges = [
        (item, ref.id, step.on_blocker_failure)
        for item, step in enumerate(steps, start=1)
        if step is not None
        for ref in step.blockers
    ]
    return [list(column) for column in zip(*edges, strict=True)] or [[], [], []]


@dataclass(frozen=True, slots=True)
class Claimed:
    """A job that a worker may run, and the token that proves it."""

    job_id: UUID
    chain_id: UUID
    type_id: int
    position: int
    attempt: int
    failures: int
    max_attempts: int
    input: str
    trace: str | None
    chain_trace: str | None
    due_at: datetime
    deadline_at: datetime | None
    blockers: str | None
    claimed_at: datetime

    @property
    def token(self) -> tuple[UUID, int]:
        """Proves which attempt of which job is settled."""
        return self.job_id, self.attempt


def claims(rows: Sequence[Any]) -> tuple[list[Claimed], float | None]:
    """Read the rows of CLAIM_CALL: jobs, and in how many seconds the next is ready, if one is.

    The last row may be about that one, and has no job.
    """
    jobs = [Claimed(*row) for row in rows if row["job_id"] is not None]
    if rows and rows[-1]["job_id"] is None and rows[-1]["due_at"] is not None:
        wait = rows[-1]["due_at"] - rows[-1]["claimed_at"]
        return jobs, max(wait.total_seconds(), 0.0)
    return jobs, None


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is to become of a job that was claimed."""

    job_id: UUID
    attempt: int
    outcome: Outcome
    output: str | None = None
    error: str | None = None
    delay_s: float | None = None
    at: datetime | None = None
    next: Step | None = None
    next_trace: str | None = None
    """The context of the trace that the next job goes on with."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of it."""

    outcome: Literal["settled", "lost", "busy", "missing_blocker", "cyclic"]
    closed: Sequence[UUID]
    woken: Sequence[str]


def settle_arguments(
    worker_id: UUID | None, settlements: Sequence[Settlement], *, wait: bool
) -> list[object]:
    """Return the arguments of SETTLE_CALL."""
    steps = [settlement.next for settlement in settlements]
    return [
        worker_id,
        [each.job_id for each in settlements],
        [each.attempt for each in settlements],
        [each.outcome for each in settlements],
        [each.output for each in settlements],
        [each.error for each in settlements],
        [_seconds(each.next.after) if each.next else each.delay_s for each in settlements],
        [each.next.at if each.next else each.at for each in settlements],
        [step and step.id for step in steps],
        [step and step.job.name for step in steps],
        [step and step.input for step in steps],
        [step and step.priority for step in steps],
        [step and step.job.retry.max_attempts for step in steps],
        [step and step.limit_key for step in steps],
        [each.next_trace for each in settlements],
        *_edges(steps),
        wait,
    ]


def settled(rows: Iterable[Any]) -> list[Settled]:
    """Read the rows of SETTLE_CALL and COMPLETE_CALL, in the order of the settlements."""
    return [Settled(*row) for row in rows]
