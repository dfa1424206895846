"""Replays: chains of one built-in job, which a worker with Spark runs.

A broker has no Spark. It checks an order as far as the database can tell, starts a chain of the
type `skep.replay`, and shows what became of it. `skep.replay_worker` has the handler. An order is
kept as the job's input, so that a replay outlives the broker and the worker.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from skep.db.access.slots import Caller
from skep.jobs.client.inspection import JobFilter, JobRow, Page
from skep.jobs.errors import JobNotFound
from skep.jobs.service.service import JobService, StartRequest
from skep.model.errors import BadRequest, NotFound, Refused
from skep.model.names import check_name, check_optional_name

REPLAY_JOB: Final = "skep.replay"
WORKER_COMMAND: Final = "skep worker skep.replay_worker:app"
MAX_ATTEMPTS: Final = 5
WAITING_S: Final = 10.0
"""A free worker takes a job within a moment; after this time the row has a hint."""
REPLAY_NAME_CHARS_MAX: Final = 100

QUEUES_CALL: Final = (
    "select f.name, r.encryption_enabled, skep.now() as now, "
    "exists (select from skep.resolve_partitions(f.id, array[$2])) as has_partition "
    "from skep.find_queues($1::text[], null) f "
    "cross join lateral skep.read_rules(array[f.id]) r"
)
NOW_CALL: Final = "select skep.now()"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RAISED: Final = re.compile(r"^(?:(?:[a-z_]\w*\.)+\w+|[A-Z]\w*(?:Error|Exception)): ")


class KeyTaken(Refused):
    """The key belongs to a replay that does something else."""

    code = "replay_key_taken"


class ReplayOrder(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={
        "since": "from",
        "until": "to",
        "keeps_ids": "keepIds",
        "may_decrypt": "decrypt",
        "on_error": "onError",
    },
):
    """What is to be replayed, and where to."""

    queue: Annotated[str, Meta(min_length=1)]
    """The queue whose messages are replayed."""
    since: datetime
    """From this time on; UTC if it has no zone."""
    until: datetime
    """Before this time, which must be past."""
    into: Annotated[str, Meta(min_length=1)]
    """The queue they go into: made if it is new, and it may be the same."""
    where: Annotated[str, Meta(min_length=1, max_length=10_000)] | None = None
    """Only messages for which this holds: a condition of Spark SQL without subqueries."""
    partition: Annotated[str, Meta(min_length=1)] | None = None
    """Only of this partition."""
    name: Annotated[str, Meta(min_length=1, max_length=REPLAY_NAME_CHARS_MAX)] | None = None
    """Tells it from others that do the same: the same replay is never done twice."""
    keeps_ids: bool = False
    """Keep the transaction ids; what the target knows by them is left out."""
    may_decrypt: bool = False
    """Encrypted messages may become readable where they go."""
    on_error: Literal["fail", "dead-letter"] = "fail"
    """What becomes of messages that the target refuses."""


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a replay brought."""

    messages: int
    duplicates: int
    rejected: int
    is_repeated: bool
    """It had been done before, and nothing was added now."""
    committed_at: datetime | None


class ReplayRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A replay, and where it is."""

    id: UUID
    """Also of its chain."""
    state: str
    """That of its job: scheduled, ready, running, completed, failed or cancelled."""
    order: ReplayOrder | None
    """Null if the chain was started with another input."""
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    attempts: int
    progress: float | None
    """From 0 to 1, while it runs."""
    progress_note: str | None
    result: ReplayResult | None
    error: str | None
    """The last line of why it failed; the chain has all of it."""
    hint: str | None
    """What to do about a replay that no worker has taken."""


class StartedReplay(msgspec.Struct, frozen=True, rename="camel"):
    """A replay that was ordered; a duplicate was there already."""

    id: UUID
    is_duplicate: bool
    chain: str
    """Where to look, and to cancel it."""
    worker: str
    """The command that runs replays, on a machine with Spark."""


@dataclass(frozen=True, slots=True)
class Replays:
    """Orders replays and shows them."""

    jobs: JobService
    caller: Caller

    async def start(
        self, order: ReplayOrder, *, key: str | None = None, trace: str | None = None
    ) -> StartedReplay:
        """Order a replay.

        A second order with the same key starts nothing. Without a key, the same order starts
        nothing while the first is open; later it finds that there is nothing to do.

        Raises:
            BadRequest: The times or a name make no sense.
            NotFound: There is no such queue or partition.
            KeyTaken: The key belongs to another order.
            Refused: Sealed messages would be stored in the clear.
        """
        checked = _checked(order)
        _refuse_nul(key=key)
        await self._check_queues(checked)
        (chain,) = await self.jobs.start([_start(checked, key)], trace=trace)
        if chain.is_duplicate:
            found = await self.jobs.job(chain.id)
            if _read(found.input, ReplayOrder) != checked:
                raise KeyTaken(
                    f"the key belongs to the replay {chain.id}, which does something else"
                )
        return StartedReplay(
            chain.id, chain.is_duplicate, f"/api/v1/chains/{chain.id}", WORKER_COMMAND
        )

    async def page(self, *, limit: int, after: UUID | None) -> Page[ReplayRow, UUID]:
        """Return a page of replays, the newest first."""
        page = await self.jobs.inspection.jobs(JobFilter(type=REPLAY_JOB), limit=limit, after=after)
        return Page(await self._rows(page.items), page.after)

    async def show(self, replay_id: UUID) -> ReplayRow:
        """Return a replay; NotFound if there is none."""
        try:
            job = await self.jobs.job(replay_id)
        except JobNotFound:
            job = None
        if job is None or job.type != REPLAY_JOB:
            raise NotFound(f"there is no replay {replay_id}")
        (row,) = await self._rows([job])
        return row

    async def _check_queues(self, order: ReplayOrder) -> None:
        arguments = ([order.queue, order.into], order.partition)
        found = {row["name"]: row for row in await self.caller.call(QUEUES_CALL, *arguments)}
        source, target = found.get(order.queue), found.get(order.into)
        if source is None:
            raise NotFound(f"there is no queue {order.queue!r}")
        if order.partition is not None and not source["has_partition"]:
            raise NotFound(f"queue {order.queue} has no partition {order.partition!r}")
        now: datetime = source["now"]
        if order.until > now:
            raise BadRequest(
                f"to lies in the future of the database, whose clock says {now.isoformat()}: what "
                "comes until then would be left out"
            )
        hides = target is not None and target["encryption_enabled"]
        if source["encryption_enabled"] and not hides and not order.may_decrypt:
            raise Refused(
                f"the messages are encrypted, and queue {order.into} would hold them in the clear: "
                "say decrypt if that is meant"
            )

    async def _rows(self, jobs: Sequence[JobRow]) -> list[ReplayRow]:
        now: datetime | None = None
        if any(job.state == "ready" for job in jobs):
            ((now,),) = await self.caller.call(NOW_CALL)
        return [_row(job, now) for job in jobs]


def _checked(order: ReplayOrder) -> ReplayOrder:
    """Return an order whose times are in UTC, so that the same one is always spelled alike."""
    since, until = _with_zone(order.since), _with_zone(order.until)
    if since < _EPOCH:
        raise BadRequest("from lies before 1970")
    if since >= until:
        raise BadRequest("from must be before to")
    check_name("queue", order.queue)
    check_name("into", order.into)
    check_optional_name("partition", order.partition)
    _refuse_nul(where=order.where, name=order.name)
    try:
        return msgspec.structs.replace(
            order, since=since.astimezone(UTC), until=until.astimezone(UTC)
        )
    except OverflowError:
        raise BadRequest("invalid to: the time cannot be stored") from None


def _refuse_nul(**texts: str | None) -> None:
    for name, text in texts.items():
        if text is not None and "\0" in text:
            raise BadRequest(f"{name} contains a NUL character")


def _with_zone(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _start(order: ReplayOrder, key: str | None) -> StartRequest:
    spelled = msgspec.json.encode(order)
    return StartRequest(
        type=REPLAY_JOB,
        input=msgspec.Raw(spelled),
        max_attempts=MAX_ATTEMPTS,
        key=f"order:{sha256(spelled).hexdigest()}" if key is None else f"key:{key}",
        key_scope="open" if key is None else "any",
    )


def _read(text: msgspec.Raw, shape: Any) -> Any:
    """Return the input or output of a job; None for one of another shape."""
    try:
        return msgspec.json.decode(text, type=shape | None)
    except msgspec.ValidationError:
        return None


def _row(job: JobRow, now: datetime | None) -> ReplayRow:
    hint = None
    if job.state == "ready" and job.due_at is not None and now is not None:
        waited_s = (now - job.due_at).total_seconds()
        if waited_s > WAITING_S:
            hint = (
                f"No worker has taken it for {waited_s:.0f} s. On a machine with Spark run: "
                f"{WORKER_COMMAND}"
            )
    return ReplayRow(
        id=job.id,
        state=job.state,
        order=_read(job.input, ReplayOrder),
        created_at=job.created_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        attempts=job.attempts,
        progress=job.progress if job.state == "running" else None,
        progress_note=job.progress_note if job.state == "running" else None,
        result=_read(job.output, ReplayResult),
        error=_last_line(job.error),
        hint=hint,
    )


def _last_line(error: str | None) -> str | None:
    """Return what a stack ends with, without the name of what was raised."""
    lines = [line for line in (error or "").splitlines() if line.strip()]
    return _RAISED.sub("", lines[-1]) if lines else None
