"""Schedule: accept messages that are to be delivered later.

Such a message waits outside the log until it is due; then `sequence` appends it. A transaction id
counts once: among the messages that wait, and against what the partition stored inside the queue's
window. Duplicates that slip through are found when the message is sequenced.
"""

from collections.abc import Callable, Iterable, Sequence
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

SCHEDULE_CALL: Final = "select * from skep.schedule_messages($1, $2, $3, $4, $5, $6, $7, $8, $9)"

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
    """Parse when to deliver an item; None means at once.

    Raises:
        BadRequest: It says both, is no time, or is too far ahead.
    """
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

    @property
    def identity(self) -> tuple[int, str, bytes]:
        """What no two waiting messages share."""
        return self.queue_id, self.partition, self.key


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


class PendingSchedule(Work):
    """The items of one request that wait to be scheduled."""

    __slots__ = ("_answer", "items")

    def __init__(self, items: Sequence[ScheduleItem], answer: Answer) -> None:
        super().__init__()
        self.items = items
        self._answer = answer

    @property
    def weight(self) -> int:
        """About how many bytes it holds."""
        return sum(_ITEM_WEIGHT + len(item.envelope) for item in self.items)

    def finish(self, outcomes: Sequence[ScheduleOutcome]) -> None:
        """Answer with what became of the items."""
        self.is_settled = True
        self._answer(outcomes, None)

    def fail(self, error: SkepError) -> None:
        """Answer that it is not known whether any item is scheduled."""
        self.is_settled = True
        self._answer(None, error)


class Schedule:
    """Accept messages for later."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Final = engine

    def schedule_messages(self, items: Sequence[ScheduleItem], answer: Answer) -> None:
        """Let the items wait for their time; `answer` is called once.

        Raises:
            Overloaded: The engine is full and nothing was scheduled.
        """
        pending = PendingSchedule(items, answer)
        self._engine.submit("schedule", None, pending.weight, pending)


class DueListener(Protocol):
    """Learns when messages become due."""

    def hear_of_due(self, seconds: float) -> None:
        """Hear that a message is due in so many seconds."""
        ...


class ScheduleExecutor:
    """Executor of the operation `schedule`."""

    def __init__(
        self, caller: Caller, rule_book: RuleBook, listener: DueListener, *, waiting_max: int
    ) -> None:
        self._caller: Final = caller
        self._rule_book: Final = rule_book
        self._listener: Final = listener
        self._waiting_max: Final = waiting_max

    async def execute(self, batch: Sequence[PendingSchedule], *, is_repeated: bool) -> None:
        """Schedule the items of all pending; of those with the same key the first decides."""
        first_by_identity: dict[tuple[int, str, bytes], ScheduleItem] = {}
        for pending in batch:
            for item in pending.items:
                first_by_identity.setdefault(item.identity, item)
        items = list(first_by_identity.values())
        outcome_by_identity = await self._enforce(items)
        accepted = [item for item in items if item.identity not in outcome_by_identity]
        outcome_by_identity |= await self._schedule(accepted, is_repeated=is_repeated)
        for pending in batch:
            if not pending.is_settled:
                pending.finish(
                    list(_outcomes(pending.items, first_by_identity, outcome_by_identity))
                )

    async def _enforce(
        self, items: list[ScheduleItem]
    ) -> dict[tuple[int, str, bytes], ScheduleOutcome]:
        """Return what the rules of the queues refuse; encrypt the others in place."""
        await self._rule_book.read(item.queue_id for item in items)
        refused: dict[tuple[int, str, bytes], ScheduleOutcome] = {}
        for number, item in enumerate(items):
            rules = self._rule_book.of(item.queue_id)
            try:
                if refusal := rules.refusal_of(item.envelope):
                    raise InvalidPayload(refusal)
                items[number] = item._replace(envelope=self._rule_book.seal(rules, item.envelope))
            except SkepError as error:
                refused[item.identity] = ScheduleOutcome("failed", refusal=error)
        return refused

    async def _schedule(
        self, items: Sequence[ScheduleItem], *, is_repeated: bool
    ) -> dict[tuple[int, str, bytes], ScheduleOutcome]:
        outcomes: dict[tuple[int, str, bytes], ScheduleOutcome] = {}
        pending = items
        while pending:
            again: list[ScheduleItem] = []
            for row in await self._call(pending, is_repeated=is_repeated):
                number: int = row[0]
                item = pending[number - 1]
                if row[1] == "again":
                    again.append(item)
                    continue
                outcomes[item.identity] = _outcome(row)
                if row[1] == "scheduled":
                    self._listener.hear_of_due(row[4])
            pending = again
        return outcomes

    async def _call(self, items: Sequence[ScheduleItem], *, is_repeated: bool) -> Sequence[Any]:
        return await self._caller.call(
            SCHEDULE_CALL,
            [item.queue_id for item in items],
            [item.partition for item in items],
            [item.key for item in items],
            [item.transaction_id for item in items],
            [item.envelope for item in items],
            [item.moment.deliver_at for item in items],
            [item.moment.delay_s for item in items],
            self._waiting_max,
            is_repeated,
        )


def _outcome(row: Any) -> ScheduleOutcome:
    _, outcome, scheduled_id, deliver_at, _, partition_id, offset = row
    if outcome == "full":
        return ScheduleOutcome("failed", refusal=QueueFull(_FULL))
    if outcome == "gone":
        return ScheduleOutcome("failed", refusal=Refused(_GONE))
    return ScheduleOutcome(outcome, scheduled_id, deliver_at, partition_id, offset)


def _outcomes(
    items: Iterable[ScheduleItem],
    first_by_identity: dict[tuple[int, str, bytes], ScheduleItem],
    outcome_by_identity: dict[tuple[int, str, bytes], ScheduleOutcome],
) -> Iterable[ScheduleOutcome]:
    for item in items:
        outcome = outcome_by_identity[item.identity]
        is_twin = first_by_identity[item.identity] is not item
        if is_twin and outcome.status == "scheduled":
            outcome = msgspec.structs.replace(outcome, status="duplicate")
        yield outcome


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
