"""The routes of dead letters: list, show, delete, redrive one or many."""

from datetime import datetime
from typing import Annotated, Final, TypeAlias
from uuid import UUID

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.params import Parameter, QueryParameter

from skep.broker.dead_letters.letters import (
    DeadLetterPage,
    DeadLetters,
    DescribedLetter,
    LetterFilter,
    Replayed,
)
from skep.broker.dead_letters.moves import Target
from skep.broker.dead_letters.redrive import Redrive, Redrives
from skep.model.errors import BadRequest
from skep.server.auth.access import BODY, Level, listed_by, needs
from skep.server.auth.guard import Requester, requester_of
from skep.server.routes.parameters import (
    LIMIT_MAX,
    DeepOffset,
    Limit,
    OnlyGroup,
    OnlyPartition,
    OnlyQueue,
)
from skep.server.routes.section import UNREADABLE, AnyRequest, Body, Section, refusal

IDS_MAX: Final = 10_000
_PATH: Final = "/api/v1/dlq"
_ONE: Final = f"{_PATH}/{{dlq_id:int}}"
_REDRIVES: Final = f"{_PATH}/redrive"

FailedSince: TypeAlias = Annotated[
    datetime | None,
    QueryParameter(name="from", description="Only what failed at this time or later."),
]
FailedUntil: TypeAlias = Annotated[
    datetime | None,
    QueryParameter(name="to", description="Only what failed at this time or earlier."),
]
ErrorText: TypeAlias = Annotated[
    str | None, Parameter(description="Only where the error message contains this.")
]
LetterLimit: TypeAlias = Annotated[
    int, Parameter(ge=1, description=f"Maximum number of rows; at most {LIMIT_MAX} are returned.")
]
"""Not refused when too large: Queen's clients take a refused list for an empty one."""
LetterId: TypeAlias = Annotated[
    int, Parameter(ge=1, le=2**62, description="`dlqId` of a dead letter.")
]
RedriveId: TypeAlias = Annotated[UUID, Parameter(description="`id` of a redrive.")]


class Deleted(msgspec.Struct, frozen=True):
    """How many dead letters were deleted. The messages themselves were not."""

    deleted: int


class RedriveRequest(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"consumer_group": "consumerGroup", "since": "from", "until": "to"},
):
    """Which dead letters to redrive, and where to; by default all, to where they came from."""

    queue: str | None = None
    consumer_group: str | None = None
    partition: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    error: str | None = None
    ids: list[int] | None = None
    """Of dead letters (`dlqId`)."""
    target: Target | None = None
    """A message goes to the partition of the same name, unless the target names one."""
    limit: int | None = None
    id: UUID | None = None
    """Idempotency key: a repeated id starts nothing new."""


class RedriveList(msgspec.Struct, frozen=True):
    """Redrives, newest first."""

    redrives: list[Redrive]


_TARGET: Final = Body(Target, is_required=False)
_REDRIVE: Final = Body(RedriveRequest, is_required=False)


def dead_letter_routes(letters: DeadLetters, redrives: Redrives) -> list[HTTPRouteHandler]:
    """Declare the routes of dead letters and redrives."""
    section = Section("Dead letters")
    read, write = needs(Level.READ_ONLY), needs(Level.READ_WRITE)

    @section.get(_PATH, needs(Level.READ_ONLY, listed_by(queue="queue")), responses=UNREADABLE)
    async def list_dead_letters(
        queue: OnlyQueue = None,
        partition: OnlyPartition = None,
        consumer_group: OnlyGroup = None,
        since: FailedSince = None,
        until: FailedUntil = None,
        error: ErrorText = None,
        limit: LetterLimit = 100,
        offset: DeepOffset = 0,
    ) -> DeadLetterPage:
        """List dead letters, newest failure first."""
        chosen = _filter(queue, partition, consumer_group, since, until, error)
        return await letters.list_letters(chosen, min(limit, LIMIT_MAX), offset)

    @section.delete(_PATH, needs(Level.READ_WRITE, listed_by(queue="queue")))
    async def delete_dead_letters(
        queue: OnlyQueue = None,
        partition: OnlyPartition = None,
        consumer_group: OnlyGroup = None,
        since: FailedSince = None,
        until: FailedUntil = None,
        error: ErrorText = None,
        every: Annotated[
            bool, QueryParameter(name="all", description="Delete all, if there is no filter.")
        ] = False,
    ) -> Deleted:
        """Delete the dead letters that match.

        Requires at least one filter, or `all=true`. Other groups keep the messages.
        """
        chosen = _filter(queue, partition, consumer_group, since, until, error)
        if chosen == LetterFilter() and not every:
            raise BadRequest("no filter: name one, or pass all=true to delete every dead letter")
        return Deleted(await letters.delete(chosen))

    @section.get(_ONE, read, responses=UNREADABLE)
    async def describe_dead_letter(dlq_id: LetterId) -> DescribedLetter:
        """Show a dead letter, or the outcome of its redrive."""
        return await letters.describe(dlq_id)

    @section.delete(_ONE, write)
    async def delete_dead_letter(dlq_id: LetterId) -> Deleted:
        """Delete a dead letter; other groups keep its message."""
        await letters.delete_one(dlq_id)
        return Deleted(1)

    @section.post(f"{_ONE}/replay", write, body=_TARGET, responses=UNREADABLE)
    async def replay_dead_letter(dlq_id: LetterId, request: AnyRequest) -> Replayed:
        """Push the message of a dead letter again.

        It goes back to where it was, or to the queue and partition of the body. All groups of that
        queue get it, under the transaction id `dlq:<dlqId>`.
        """
        return await letters.replay(dlq_id, await _TARGET.read(request))

    @section.post(_REDRIVES, needs(Level.READ_WRITE, BODY), body=_REDRIVE, status_code=202)
    async def start_redrive(request: AnyRequest) -> Redrive:
        """Push the messages of many dead letters again, in the background.

        Covers everything that matches now. Each message moves once, however often it is requested.
        All groups of the target queue get it.
        """
        asked = await _REDRIVE.read(request)
        await _require_redrive(requester_of(request), asked)
        return await redrives.begin(
            _redrive_filter(asked),
            asked.target or Target(),
            limit=_checked_limit(asked.limit),
            job_id=asked.id,
        )

    @section.get(_REDRIVES, read)
    async def list_redrives(limit: Limit = 100, offset: DeepOffset = 0) -> RedriveList:
        """List redrives, newest first."""
        return RedriveList(await redrives.list_jobs(limit, offset))

    @section.get(f"{_REDRIVES}/{{redrive_id:uuid}}", read)
    async def describe_redrive(redrive_id: RedriveId) -> Redrive:
        """Show the progress of a redrive."""
        return await redrives.describe(redrive_id)

    @section.post(
        f"{_REDRIVES}/{{redrive_id:uuid}}/cancel",
        write,
        responses={409: refusal("The redrive has ended.")},
    )
    async def cancel_redrive(redrive_id: RedriveId) -> Redrive:
        """Cancel a redrive; messages already moved stay moved."""
        return await redrives.cancel(redrive_id)

    return section.routes


def _filter(
    queue: str | None,
    partition: str | None,
    consumer_group: str | None,
    since: datetime | None,
    until: datetime | None,
    error: str | None,
    ids: list[int] | None = None,
) -> LetterFilter:
    """Return the filter; an empty text is the same as none."""
    return LetterFilter(
        queue=queue or None,
        partition=partition or None,
        consumer_group=consumer_group or None,
        since=since,
        until=until,
        error=error or None,
        ids=None if ids is None else tuple(ids),
    )


def _redrive_filter(asked: RedriveRequest) -> LetterFilter:
    if asked.ids is not None and len(asked.ids) > IDS_MAX:
        raise BadRequest(f"too many ids: {len(asked.ids)}. Send at most {IDS_MAX} per request")
    return _filter(
        asked.queue,
        asked.partition,
        asked.consumer_group,
        asked.since,
        asked.until,
        asked.error,
        asked.ids,
    )


async def _require_redrive(requester: Requester, asked: RedriveRequest) -> None:
    """Let a restricted caller redrive from one of its queues to one of its queues."""
    if not asked.queue:
        requester.require_everything()
        return
    target = asked.target.queue if asked.target else None
    await requester.require(queues={asked.queue, target or asked.queue})


def _checked_limit(limit: int | None) -> int | None:
    if limit is not None and not 1 <= limit <= 2**62:
        raise BadRequest("limit must be at least 1")
    return limit
