"""The routes of dead letters: look, delete, redrive one or many."""

from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias
from uuid import UUID

import msgspec
from litestar import Request, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import Parameter, QueryParameter

from skep.broker.dead_letters.dead_letters import (
    DeadLetterPage,
    DeadLetters,
    DescribedLetter,
    LetterFilter,
    Replayed,
)
from skep.broker.dead_letters.moves import Target
from skep.broker.dead_letters.redrive import Redrive, Redrives
from skep.model.errors import BadRequest
from skep.server.api_document.bodies import body_of
from skep.server.auth.access import BODY, Level, listed_by, needs
from skep.server.auth.guard import Visitor, visitor_of
from skep.server.hot.decoding import decode_optional_body
from skep.server.routes.refusals import UNREADABLE, refusal

IDS_MAX: Final = 10_000
PAGE_MAX: Final = 1_000

Queue: TypeAlias = Annotated[str | None, Parameter(description="Only of this queue.")]
Partition: TypeAlias = Annotated[
    str | None, Parameter(description="Only of this partition; needs `queue`.")
]
Group: TypeAlias = Annotated[
    str | None, QueryParameter(name="consumerGroup", description="Only what this group gave up on.")
]
Since: TypeAlias = Annotated[
    datetime | None,
    QueryParameter(name="from", description="Only what failed at this time or later."),
]
Until: TypeAlias = Annotated[
    datetime | None,
    QueryParameter(name="to", description="Only what failed at this time or earlier."),
]
ErrorText: TypeAlias = Annotated[
    str | None, Parameter(description="Only where the error message contains this.")
]
Limit: TypeAlias = Annotated[int, Parameter(ge=1, le=PAGE_MAX, description="The most to return.")]
LetterLimit: TypeAlias = Annotated[
    int, Parameter(ge=1, description=f"The most to return; more than {PAGE_MAX} means {PAGE_MAX}.")
]
"""Not refused when too large: Queen's clients take a refused list for an empty one."""
Offset: TypeAlias = Annotated[int, Parameter(ge=0, le=2**62, description="How many to skip.")]
LetterId: TypeAlias = Annotated[
    int, Parameter(ge=1, le=2**62, description="The `dlqId` of a dead letter.")
]
JobId: TypeAlias = Annotated[UUID, Parameter(description="The `id` of a redrive.")]

_TAGS: Final = ["Dead letters"]


class Deleted(msgspec.Struct, frozen=True):
    """How many dead letters were deleted. The messages themselves were not."""

    deleted: int


class RedriveRequest(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"consumer_group": "consumerGroup", "since": "from", "until": "to"},
):
    """Which dead letters to redrive, and where to. Nothing given: all, to where they came from."""

    queue: str | None = None
    consumer_group: str | None = None
    partition: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    error: str | None = None
    ids: list[int] | None = None
    """Of dead letters (`dlqId`)."""
    target: Target | None = None
    """A message goes to the same partition, by name, unless the target names one."""
    limit: int | None = None
    id: UUID | None = None
    """Chosen by the caller: a request repeated with it starts nothing new."""


class RedriveList(msgspec.Struct, frozen=True):
    """Redrives, the newest first."""

    redrives: list[Redrive]


_target_decoder = msgspec.json.Decoder(Target)
_redrive_decoder = msgspec.json.Decoder(RedriveRequest)


def dead_letter_routes(letters: DeadLetters, redrives: Redrives) -> list[HTTPRouteHandler]:
    """Make the routes around what the broker does."""
    return [*_letter_routes(letters), *_redrive_routes(redrives)]


def _letter_routes(letters: DeadLetters) -> list[HTTPRouteHandler]:
    @get(
        "/api/v1/dlq",
        operation_id="listDeadLetters",
        opt=needs(Level.READ_ONLY, listed_by(queue="queue")),
        responses=UNREADABLE,
        summary="List dead letters, the newest failure first",
        tags=_TAGS,
    )
    async def list_dead_letters(
        queue: Queue = None,
        partition: Partition = None,
        consumer_group: Group = None,
        since: Since = None,
        until: Until = None,
        error: ErrorText = None,
        limit: LetterLimit = 100,
        offset: Offset = 0,
    ) -> DeadLetterPage:
        chosen = _filter(queue, partition, consumer_group, since, until, error)
        return await letters.list_letters(chosen, min(limit, PAGE_MAX), offset)

    @delete(
        "/api/v1/dlq",
        status_code=200,
        operation_id="deleteDeadLetters",
        opt=needs(Level.READ_WRITE, listed_by(queue="queue")),
        summary="Delete the dead letters that match",
        description="At least one filter, or `all=true`. The messages stay with other groups.",
        tags=_TAGS,
    )
    async def delete_dead_letters(
        queue: Queue = None,
        partition: Partition = None,
        consumer_group: Group = None,
        since: Since = None,
        until: Until = None,
        error: ErrorText = None,
        every: Annotated[
            bool, QueryParameter(name="all", description="Delete all, if there is no filter.")
        ] = False,
    ) -> Deleted:
        chosen = _filter(queue, partition, consumer_group, since, until, error)
        if chosen == LetterFilter() and not every:
            raise BadRequest("name a filter, or all=true to delete every dead letter")
        return Deleted(await letters.delete(chosen))

    @get(
        "/api/v1/dlq/{dlq_id:int}",
        operation_id="describeDeadLetter",
        opt=needs(Level.READ_ONLY),
        responses=UNREADABLE,
        summary="Show a dead letter, or what became of one that was redriven",
        tags=_TAGS,
    )
    async def describe_dead_letter(dlq_id: LetterId) -> DescribedLetter:
        return await letters.describe(dlq_id)

    @delete(
        "/api/v1/dlq/{dlq_id:int}",
        status_code=200,
        operation_id="deleteDeadLetter",
        opt=needs(Level.READ_WRITE),
        summary="Delete a dead letter; its message stays with other groups",
        tags=_TAGS,
    )
    async def delete_dead_letter(dlq_id: LetterId) -> Deleted:
        await letters.delete_one(dlq_id)
        return Deleted(1)

    @post(
        "/api/v1/dlq/{dlq_id:int}/replay",
        status_code=200,
        operation_id="replayDeadLetter",
        opt=needs(Level.READ_WRITE),
        responses=UNREADABLE,
        operation_class=body_of(Target, is_required=False),
        summary="Push the message of a dead letter again",
        description="Back to where it was, or to the queue and partition of the body. All groups "
        "of that queue get it, under the transaction id `dlq:<dlqId>`.",
        tags=_TAGS,
    )
    async def replay_dead_letter(dlq_id: LetterId, request: Request[Any, Any, Any]) -> Replayed:
        target = decode_optional_body(_target_decoder, await request.body(), {})
        return await letters.replay(dlq_id, target or Target())

    return [
        list_dead_letters,
        delete_dead_letters,
        describe_dead_letter,
        delete_dead_letter,
        replay_dead_letter,
    ]


def _redrive_routes(redrives: Redrives) -> list[HTTPRouteHandler]:
    @post(
        "/api/v1/dlq/redrive",
        status_code=202,
        operation_id="startRedrive",
        opt=needs(Level.READ_WRITE, BODY),
        operation_class=body_of(RedriveRequest, is_required=False),
        summary="Push the messages of many dead letters again, in the background",
        description="Everything that matches at this moment. Each message moves once, however "
        "often it is asked for. All groups of the target queue get it.",
        tags=_TAGS,
    )
    async def start_redrive(request: Request[Any, Any, Any]) -> Redrive:
        asked = decode_optional_body(_redrive_decoder, await request.body(), {}) or RedriveRequest()
        await _require_redrive(visitor_of(request), asked)
        return await redrives.begin(
            _redrive_filter(asked),
            asked.target or Target(),
            limit=_checked_limit(asked.limit),
            job_id=asked.id,
        )

    @get(
        "/api/v1/dlq/redrive",
        operation_id="listRedrives",
        opt=needs(Level.READ_ONLY),
        summary="List redrives, the newest first",
        tags=_TAGS,
    )
    async def list_redrives(limit: Limit = 100, offset: Offset = 0) -> RedriveList:
        return RedriveList(await redrives.list_jobs(limit, offset))

    @get(
        "/api/v1/dlq/redrive/{redrive_id:uuid}",
        operation_id="describeRedrive",
        opt=needs(Level.READ_ONLY),
        summary="Show how far a redrive got",
        tags=_TAGS,
    )
    async def describe_redrive(redrive_id: JobId) -> Redrive:
        return await redrives.describe(redrive_id)

    @post(
        "/api/v1/dlq/redrive/{redrive_id:uuid}/cancel",
        status_code=200,
        operation_id="cancelRedrive",
        opt=needs(Level.READ_WRITE),
        responses={409: refusal("It has ended.")},
        summary="End a redrive; what was moved stays moved",
        tags=_TAGS,
    )
    async def cancel_redrive(redrive_id: JobId) -> Redrive:
        return await redrives.cancel(redrive_id)

    return [start_redrive, list_redrives, describe_redrive, cancel_redrive]


def _filter(
    queue: str | None,
    partition: str | None,
    consumer_group: str | None,
    since: datetime | None,
    until: datetime | None,
    error: str | None,
) -> LetterFilter:
    """Make a filter of query parameters; an empty one is like one that is not there."""
    return LetterFilter(
        queue=queue or None,
        partition=partition or None,
        consumer_group=consumer_group or None,
        since=since,
        until=until,
        error=error or None,
    )


def _redrive_filter(request: RedriveRequest) -> LetterFilter:
    if request.ids is not None and len(request.ids) > IDS_MAX:
        raise BadRequest(f"more than {IDS_MAX} ids in one request")
    return msgspec.structs.replace(
        _filter(
            request.queue,
            request.partition,
            request.consumer_group,
            request.since,
            request.until,
            request.error,
        ),
        ids=None if request.ids is None else tuple(request.ids),
    )


async def _require_redrive(visitor: Visitor, asked: RedriveRequest) -> None:
    """Let a restricted caller redrive what is in one of its queues, to one of them."""
    if not asked.queue:
        visitor.require_everything()
        return
    target = asked.target.queue if asked.target else None
    await visitor.require(queues={asked.queue, target or asked.queue})


def _checked_limit(limit: int | None) -> int | None:
    if limit is not None and not 1 <= limit <= 2**62:
        raise BadRequest("limit must be at least 1")
    return limit
