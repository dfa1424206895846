"""Schedule: accept messages that are to be delivered later.

Such a message waits outside the log until it is due; then `sequence` appends it. In a queue with a
window a transaction id counts once: among the messages that wait, and against what the partition
stored inside the window. Duplicates that slip through are found when the message is sequenced.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from skep.broker import timestamps
from skep.broker.push.rules import RuleBook
from skep.broker.timestamps import wire_time
from skep.db.access.slots import Caller
from skep.engine.driver import Engine, Work
from skep.model.errors import BadRequest, InvalidPayload, QueueFull, Refused, SkepError
from skep.model.ids import message_id
from skep.model.limits import SCHEDULE_SECONDS_MAX

SCHEDULE_CALL: Final = (
    "select * from skep.schedule_messages($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
)

_ITEM_WEIGHT: Final = 512
"""Bytes an item costs beyond its envelope."""

_FULL: Final = "too many messages of the queue wait for their time; try again when some are due"
_GONE: Final = "the queue does not exist any more; push again to create it"


class Moment(NamedTuple):
    """When to deliver: at a time, or so many seconds after the database got the message."""

    deliver_at: datetime | None
    delay_s: float | None

    def due_at(self, now: datetime) -> datetime:
        """Return the time, counting a delay from now."""
        return self.deliver_at or now + timedelta(seconds=self.delay_s or 0)


def parse_moment(
    deliver_at: str | None, delay_seconds: float | None, now: datetime
) -> Moment | None:
    """Parse when to deliver an item; None means at once."""
    if deliver_at is None:
        if not delay_seconds:
            return None
        if not 0 < delay_seconds <= SCHEDULE_SECONDS_MAX:
            raise BadRequest(f"delaySeconds must be between 0 and {SCHEDULE_SECONDS_MAX}")
        return Moment(None, float(delay_seconds))
    if delay_seconds is not None:
        raise BadRequest("deliverAt and delaySeconds exclude each other")
    moment = timestamps.parse_moment("deliverAt", deliver_at)
    if moment > now + timedelta(seconds=SCHEDULE_SECONDS_MAX):
        raise BadRequest("deliverAt is more than a year ahead")
    return Moment(moment, None)


class ScheduleItem(NamedTuple):
    """One message to let wait."""

    queue_id: int
    partition: str
    key: bytes
    transaction_id: str
    envelope: bytes
    moment: Moment
    nonce: int
    """Tells it from others with its transaction id; the same when the call is repeated."""


def new_nonce() -> int:
    """Return a number for a message of its own."""
    return secrets.randbits(62) + 1


class ScheduleOutcome(msgspec.Struct, frozen=True):
    """What became of one item."""

    status: Literal["scheduled", "duplicate", "failed"]
    scheduled_id: int | None = None
    deliver_at: datetime | None = None
    partition_id: int | None = None
    """With `message_offset`: where the message lies that a duplicate repeats."""
    message_offset: int | None = None
    refusal: SkepError | None = None
    """Why it failed."""


Answer: TypeAlias = Callable[[Sequence[ScheduleOutcome] | None, SkepError | None], None]
"""Called once: with an outcome for each item, or with the error that none was scheduled for."""


@dataclass(slots=True, eq=False)
class PendingSchedule(Work):
    """The items of one request that wait to be scheduled."""

    items: Sequence[ScheduleItem]
    answer: Answer

    @property
    def weight(self) -> int:
        """About how many bytes it holds."""
        return sum(_ITEM_WEIGHT + len(item.envelope) for item in self.items)

    def finish(self, outcomes: Sequence[ScheduleOutcome]) -> None:
        """Answer with what became of the items."""
        self.is_settled = True
        self.answer(outcomes, None)

    def fail(self, error: SkepError) -> None:
        """Answer that it is not known whether any item is scheduled."""
        self.is_settled = True
        self.answer(None, error)


class Schedule:
    """Accept messages for later."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Final = engine

    def schedule_messages(
        self, items: Sequence[ScheduleItem], answer: Answer, *, is_admitted: bool = False
    ) -> None:
        """Let the items wait for their time; `answer` is called once.

        Raises:
            Overloaded: The engine is full and nothing was scheduled.
        """
        pending = PendingSchedule(items, answer)
        self._engine.submit("schedule", None, pending.weight, pending, is_admitted=is_admitted)


class DueListener(Protocol):
    """Learns when messages become due."""

    def hear_of_due(self, seconds: float) -> None:
        """Hear that a message is due in so many seconds."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleExecutor:
    """Executor of the operation `schedule`."""

    caller: Caller
    rule_book: RuleBook
    listener: DueListener
    waiting_max: int

    async def execute(self, batch: Sequence[PendingSchedule], *, is_repeated: bool) -> None:
        """Schedule the items of all pending in one call."""
        items = [item for pending in batch for item in pending.items]
        outcomes = await self._enforce(items)
        accepted = [number for number in range(len(items)) if number not in outcomes]
        await self._schedule(items, accepted, outcomes, is_repeated=is_repeated)
        start = 0
        for pending in batch:
            end = start + len(pending.items)
            if not pending.is_settled:
                pending.finish([outcomes[number] for number in range(start, end)])
            start = end

    async def _enforce(self, items: list[ScheduleItem]) -> dict[int, ScheduleOutcome]:
        """Return what the rules of the queues refuse, by place; encrypt the others in place."""
        rules_by_queue = await self.rule_book.read(item.queue_id for item in items)
        refused: dict[int, ScheduleOutcome] = {}
        for number, item in enumerate(items):
            rules = rules_by_queue[item.queue_id]
            try:
                if refusal := rules.refusal_of(item.envelope):
                    raise InvalidPayload(refusal)
                items[number] = item._replace(envelope=self.rule_book.seal(rules, item.envelope))
            except SkepError as error:
                refused[number] = ScheduleOutcome("failed", refusal=error)
        return refused

    async def _schedule(
        self,
        items: Sequence[ScheduleItem],
        places: Sequence[int],
        outcomes: dict[int, ScheduleOutcome],
        *,
        is_repeated: bool,
    ) -> None:
        """Schedule the items at these places, and note what became of them."""
        while places:
            pending = [items[place] for place in places]
            again: list[int] = []
            rows = await self.caller.call(
                SCHEDULE_CALL,
                [item.queue_id for item in pending],
                [item.partition for item in pending],
                [item.key for item in pending],
                [item.transaction_id for item in pending],
                [item.envelope for item in pending],
                [item.moment.deliver_at for item in pending],
                [item.moment.delay_s for item in pending],
                self.waiting_max,
                is_repeated,
                [item.nonce for item in pending],
            )
            for row in rows:
                place = places[int(row[0]) - 1]
                if row[1] == "again":
                    again.append(place)
                    continue
                outcomes[place] = _outcome(row)
                if row[1] == "scheduled":
                    self.listener.hear_of_due(row[4])
            places = again


def _outcome(row: Any) -> ScheduleOutcome:
    _, outcome, scheduled_id, deliver_at, _, partition_id, offset = row
    if outcome == "full":
        return ScheduleOutcome("failed", refusal=QueueFull(_FULL))
    if outcome == "gone":
        return ScheduleOutcome("failed", refusal=Refused(_GONE))
    return ScheduleOutcome(outcome, scheduled_id, deliver_at, partition_id, offset)


def render_outcome(
    outcome: ScheduleOutcome,
    *,
    position: int,
    transaction_id: bytes,
    trace_id: bytes,
    partition_uuid: bytes,
    queue: bytes,
) -> bytes:
    """Render the result of a push for a scheduled item; ids and names are JSON already."""
    head = b'{"index":%d,"transaction_id":%b,"status":"%b"' % (
        position,
        transaction_id,
        outcome.status.encode(),
    )
    tail = b',"partition_id":"%b","trace_id":%b,"queueName":%b}' % (partition_uuid, trace_id, queue)
    if outcome.refusal is not None:
        error = msgspec.json.encode(outcome.refusal.message)
        return b'%b,"error":%b,"queueName":%b}' % (head, error, queue)
    if outcome.partition_id is not None and outcome.message_offset is not None:
        address = message_id(outcome.partition_id, outcome.message_offset)
        return b'%b,"message_id":"%b"%b' % (head, address.encode(), tail)
    assert outcome.scheduled_id is not None
    assert outcome.deliver_at is not None
    return b'%b,"scheduledId":"%d","deliverAt":"%b"%b' % (
        head,
        outcome.scheduled_id,
        wire_time(outcome.deliver_at),
        tail,
    )
