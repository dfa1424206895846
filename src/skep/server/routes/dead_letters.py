"""The routes of dead letters: list, show, delete, redrive one or many."""

from datetime import datetime
from typing import Annotated, Final, TypeAlias
from uuid import UUID

import msgspec

from skep.broker.dead_letters.letters import (
    DeadLetterPage,
    DeadLetters,
    DescribedLetter,
    LetterFilter,
    Replayed,
    Target,
)
from skep.broker.dead_letters.redrive import Redrive, Redrives
from skep.model.errors import BadRequest
from skep.model.limits import PAGE_ROWS_MAX
from skep.server.auth import access
from skep.server.auth.guard import Requester, requester_of
from skep.server.routes import parameters as given
from skep.server.routes.section import (
    UNREADABLE,
    AnyRequest,
    Body,
    Parts,
    Section,
    in_path,
    in_query,
    reshaped,
    routes_of,
)

IDS_MAX: Final = 10_000
_PATH: Final = "/api/v1/dlq"
_ONE: Final = f"{_PATH}/{{dlq_id:str}}"
_REDRIVES: Final = f"{_PATH}/redrive"

FailedSince: TypeAlias = Annotated[
    datetime | None, in_query("Only what failed at this time or later.", "from")
]
FailedUntil: TypeAlias = Annotated[
    datetime | None, in_query("Only what failed at this time or earlier.", "to")
]
ErrorText: TypeAlias = Annotated[
    str | None, in_query("Only where the error message contains this.")
]
Letters: TypeAlias = Annotated[
    LetterFilter,
    Parts(
        queue=given.OnlyQueue,
        partition=given.OnlyPartition,
        consumer_group=given.OnlyGroup,
        since=FailedSince,
        until=FailedUntil,
        error=ErrorText,
    ),
]
LetterLimit: TypeAlias = Annotated[
    int, in_query(f"Maximum number of rows; at most {PAGE_ROWS_MAX} are returned.", ge=1)
]
"""Not refused when too large: Queen's clients take a refused list for an empty one."""
LetterId: TypeAlias = Annotated[int, in_path("`dlqId` of a dead letter.")]
RedriveId: TypeAlias = Annotated[UUID, in_path("`id` of a redrive.")]


class Deleted(msgspec.Struct, frozen=True):
    """How many dead letters were deleted. The messages themselves were not."""

    deleted: int


class RedriveRequest(LetterFilter, frozen=True, kw_only=True):
    """Which dead letters to redrive, and where to; by default all, to where they came from."""

    target: Target | None = None
    """A message goes to the partition of the same name, unless the target names one."""
    limit: int | None = None
    id: UUID | None = None
    """Idempotency key: a repeated id starts nothing new."""
    again: bool = False
    """Push letters of `ids` that were redriven already once more, as long as they are stored."""


class RedriveList(msgspec.Struct, frozen=True):
    """Redrives, newest first."""

    redrives: list[Redrive]


@routes_of("Dead letters")
def dead_letter_routes(section: Section, letters: DeadLetters, redrives: Redrives) -> None:
    """Declare the routes of dead letters and redrives."""

    @section.get(_PATH, access.READ_LIST, responses=UNREADABLE)
    async def list_dead_letters(
        which: Letters, limit: LetterLimit = 100, offset: given.DeepOffset = 0
    ) -> DeadLetterPage:
        """List dead letters, newest failure first."""
        return await letters.list_letters(
            given.without_blanks(which), min(limit, PAGE_ROWS_MAX), offset
        )

    @section.delete(_PATH, access.WRITE_LIST)
    async def delete_dead_letters(
        which: Letters,
        every: Annotated[bool, in_query("Delete all, if there is no filter.", "all")] = False,
    ) -> Deleted:
        """Delete the dead letters that match.

        Requires at least one filter, or `all=true`. Other groups keep the messages.
        """
        chosen = given.without_blanks(which)
        if chosen == LetterFilter() and not every:
            raise BadRequest("no filter: name one, or pass all=true to delete every dead letter")
        return Deleted(await letters.delete(chosen))

    @section.get(_ONE, access.READ, responses=UNREADABLE)
    async def describe_dead_letter(dlq_id: LetterId) -> DescribedLetter:
        """Show a dead letter, or the outcome of its redrive."""
        return await letters.describe(dlq_id)

    @section.delete(_ONE, access.WRITE)
    async def delete_dead_letter(dlq_id: LetterId) -> Deleted:
        """Delete a dead letter; other groups keep its message."""
        await letters.delete_one(dlq_id)
        return Deleted(1)

    @section.post(
        f"{_ONE}/replay", access.WRITE, body=Body(Target, is_required=False), responses=UNREADABLE
    )
    async def replay_dead_letter(dlq_id: LetterId, asked: Target) -> Replayed:
        """Push the message of a dead letter again.

        It goes back to where it was, or to the queue and partition of the body, under the
        transaction id `dlq:<dlqId>`. Only the group that failed gets it if it reads that queue, or
        all groups with `"groups": "all"`.
        """
        return await letters.replay(dlq_id, asked)

    @section.post(
        _REDRIVES,
        access.WRITE_BY_BODY,
        body=Body(RedriveRequest, is_required=False),
        status_code=202,
        responses={409: "Letters of `ids` were redriven already; `again` pushes them once more."},
    )
    async def start_redrive(request: AnyRequest, asked: RedriveRequest) -> Redrive:
        """Push the messages of many dead letters again, in the background.

        Covers everything that matches now. Each message moves once, however often it is requested.
        Only the group that failed gets it if it reads the target queue, or all groups with
        `"groups": "all"`.
        """
        await _require_redrive(requester_of(request), asked)
        if asked.ids is not None and len(asked.ids) > IDS_MAX:
            raise BadRequest(f"too many ids: {len(asked.ids)}. Send at most {IDS_MAX} per request")
        if asked.limit is not None and not 1 <= asked.limit <= 2**62:
            raise BadRequest("limit must be at least 1")
        chosen = given.without_blanks(reshaped(LetterFilter, asked))
        target = asked.target or Target()
        return await redrives.begin(
            chosen, target, limit=asked.limit, job_id=asked.id, again=asked.again
        )

    @section.get(_REDRIVES, access.READ)
    async def list_redrives(limit: given.Limit = 100, offset: given.DeepOffset = 0) -> RedriveList:
        """List redrives, newest first."""
        return RedriveList(await redrives.list_jobs(limit, offset))

    @section.get(f"{_REDRIVES}/{{redrive_id:str}}", access.READ)
    async def describe_redrive(redrive_id: RedriveId) -> Redrive:
        """Show the progress of a redrive."""
        return await redrives.describe(redrive_id)

    @section.post(
        f"{_REDRIVES}/{{redrive_id:str}}/cancel",
        access.WRITE,
        responses={409: "The redrive has ended."},
    )
    async def cancel_redrive(redrive_id: RedriveId) -> Redrive:
        """Cancel a redrive; messages already moved stay moved."""
        return await redrives.cancel(redrive_id)


async def _require_redrive(requester: Requester, asked: RedriveRequest) -> None:
    """Let a restricted caller redrive from one of its queues to one of its queues."""
    if not asked.queue:
        requester.require_everything()
        return
    target = asked.target.queue if asked.target else None
    await requester.require(queues={asked.queue, target or asked.queue})
