"""Pop: hand out messages under leases, or acknowledged at once.

Polls of one group are fused into one claim. The messages come back as segments; their envelopes
are cut out and spliced into the answer without looking into the payloads. A poll that finds
nothing waits in the parking lot, holding no connection, if its client is ready to wait.

Messages that need no delivery (deleted, expired, done ahead of the cursor) are left out. Those that
the database cannot know of are reported to it, so that the partition moves on; a poll that is left
with nothing by that tries again.

A client that hangs up gets nothing lost: what was claimed for it is given back at once, the lease
and the count of deliveries included.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from uuid import UUID, uuid4

import msgspec

from skep.broker.cluster.wakeups import Announcer
from skep.broker.directory import (
    Directory,
    Group,
    GroupWish,
    Partition,
    PartitionWish,
    Subscription,
)
from skep.broker.pop.batches import Batch, TakenSegment, wire_time
from skep.broker.pop.envelope_reader import EnvelopeReader
from skep.broker.pop.lease_memory import LeaseMemory
from skep.db.access.errors import GroupGone, NotExecuted
from skep.db.access.slots import Caller
from skep.engine.driver import Engine, Work
from skep.model.errors import Overloaded, SkepError, Unavailable
from skep.telemetry.meters import Meters

if TYPE_CHECKING:
    from skep.engine.fusion import WorkUnit

__all__ = [
    "POP_CALL",
    "POP_PARTITION_CALL",
    "Deliver",
    "DoubtfulClaim",
    "Parking",
    "Passing",
    "Poll",
    "PollOptions",
    "Pop",
    "PopExecutor",
    "ReleaseExecutor",
    "UndoExecutor",
    "UnwantedClaim",
    "empty_body",
    "wire_time",
]

POP_CALL: Final = "select * from skep.pop_messages($1, $2, $3, $4, $5, $6)"
POP_PARTITION_CALL: Final = "select * from skep.pop_partitions($1, $2, $3, $4, $5, $6)"
UNDO_CALL: Final = "select skep.undo_claims($1, $2)"
RELEASE_CALL: Final = "select skep.release_claims($1, $2, $3)"

_log = logging.getLogger(__name__)

_WEIGHT: Final = 512

_POLL, _DELIVERY, _FIRST = 0, 5, 6
"""Columns of a claim's rows. The last is null in those that bring no messages: of a poll whose
partition does not exist, or of no poll, with the number of dead letters in place of the
deliveries."""

FRUITLESS_CLAIMS_MAX: Final = 100
"""Claims in a row that bring nothing but expired messages, before a poll counts as unserved."""

Deliver: TypeAlias = Callable[[bytes | None], bool]
"""Answer a poll: the body, or None when there is nothing. False when the client is gone."""


class PollOptions(msgspec.Struct, frozen=True, gc=False):
    """What a client asks for."""

    queue: str
    group: str
    partition: str | None
    batch: int
    partitions: int
    auto_ack: bool
    lease_s: int
    """Length of the lease; 0 for the queue's own."""
    subscription: Subscription
    extra: bytes = b""
    """Further members of the answer, rendered, each ending in a comma."""
    conflation: bool | None = None
    """Whether only the newest message of each partition is wanted; None leaves it to the group."""
    is_discovered: bool = False
    """The client named no queue, so the answer as a whole names none either."""


class Parking(Protocol):
    """Where polls that found nothing wait."""

    def came_back(self, poll: "Poll", *, is_served: bool) -> None:
        """Hear how an attempt of a poll ended; one that found nothing waits."""
        ...

    def keep_waiting(self, poll: "Poll") -> bool:
        """Let a poll wait that could not try; False when its time is over."""
        ...

    def leave(self, poll: "Poll") -> None:
        """Let go of a poll that failed or whose client is gone."""
        ...


class Poll(Work):
    """One client's request for messages."""

    __slots__ = (
        "_deliver",
        "_refuse",
        "deadline",
        "doubt",
        "fruitless_claims",
        "group",
        "lease_id",
        "options",
        "parking",
        "partition",
        "tried_at",
        "unit",
    )

    def __init__(
        self,
        options: PollOptions,
        *,
        deadline: float,
        deliver: Deliver,
        refuse: Callable[[SkepError], None],
    ) -> None:
        super().__init__()
        self.options = options
        self.deadline = deadline
        self.group: Group | None = None
        self.partition: Partition | None = None
        self.lease_id: UUID = uuid4()
        self.unit: WorkUnit[Any] | None = None
        self.parking: Parking | None = None
        # Whom to tell, should the poll end while it is unknown whether its claim was made.
        self.doubt: Callable[[Poll], None] | None = None
        self.tried_at = 0.0
        self.fruitless_claims = 0
        self._deliver = deliver
        self._refuse = refuse

    def deliver(self, body: bytes | None) -> bool:
        """Answer; False when the client is gone and nothing was sent."""
        self.end()
        if body is None and self.group is not None:
            body = empty_body(self.group, self.options)
        return self._deliver(body)

    def end(self) -> None:
        """Let nothing more be done for it, except to give back what it may have claimed."""
        self.is_settled = True
        if self.doubt is not None:
            doubt, self.doubt = self.doubt, None
            doubt(self)

    def fail(self, error: SkepError) -> None:
        """Answer that the poll cannot be served, unless it can wait until that has passed.

        A consumer that hears an error gives up after a few; one that waits survives a restart of
        the database without noticing.
        """
        parking = self.parking
        if parking is not None:
            if isinstance(error, Unavailable | Overloaded) and parking.keep_waiting(self):
                return
            parking.leave(self)
        self.end()
        self._refuse(error)


class Pop:
    """Accept polls."""

    def __init__(
        self,
        engine: Engine,
        directory: Directory,
        parking: Parking,
        *,
        now: Callable[[], float],
    ) -> None:
        self._engine: Final = engine
        self._directory: Final = directory
        self._parking: Final = parking
        self._now: Final = now

    def pop_messages(self, poll: Poll) -> None:
        """Serve a poll; its answer is called once, unless it is aborted first.

        Raises:
            Overloaded: The engine is full.
        """
        options = poll.options
        group = self._directory.groups.get((options.queue, options.group))
        if group is None or (options.conflation is not None and group.conflation is None):
            wish = GroupWish(
                (options.queue, options.group),
                options.subscription,
                self._resume(poll),
                conflation=options.conflation,
            )
            self._engine.submit("subscribe", None, _WEIGHT, wish)
            return
        poll.group = group
        if options.partition is None:
            self.attempt(poll)
            return
        partition = self._directory.partitions.get((options.queue, options.partition))
        if partition is None:
            wished = PartitionWish([(options.queue, options.partition)], self._resume(poll))
            self._engine.submit("provision", None, _WEIGHT, wished)
            return
        poll.partition = partition
        self.attempt(poll)

    def attempt(self, poll: Poll) -> None:
        """Let a poll try to claim something.

        Raises:
            Overloaded: The engine is full.
        """
        assert poll.group is not None
        poll.parking = self._parking
        poll.tried_at = self._now()
        operation = "pop" if poll.partition is None else "pop_partition"
        poll.unit = self._engine.submit(operation, poll.group.group_id, _WEIGHT, poll)

    def attempt_anew(self, poll: Poll) -> None:
        """Let a poll claim something else than it just did, under a lease of its own."""
        if poll.is_settled:
            return
        poll.lease_id = uuid4()
        try:
            self.attempt(poll)
        except SkepError as error:
            poll.fail(error)

    def abort(self, poll: Poll) -> None:
        """The client of a poll is gone: stop working for it.

        A poll whose claim is under way cannot be stopped; its answer will find nobody, and what
        was claimed is given back then.
        """
        if poll.is_settled:
            return
        if poll.unit is not None:
            self._engine.withdraw(poll.unit)
        poll.end()
        self._parking.leave(poll)

    def give_back(self, group: Group, lease_id: UUID, partition_ids: set[int]) -> None:
        """Release what was claimed for a poll that nobody will receive."""
        claim = UnwantedClaim(group, lease_id, partition_ids)
        self._engine.submit("release", None, _WEIGHT, claim)

    def give_back_doubtful(self, poll: Poll) -> None:
        """Undo the claim of a poll that ended before it was known whether the claim was made."""
        assert poll.group is not None
        self._engine.submit("undo", None, _WEIGHT, DoubtfulClaim(poll.group, poll.lease_id))

    def subscribe_anew(self, group: Group, polls: Sequence[Poll]) -> None:
        """The group was deleted under its polls: let them start over.

        Not those whose queue was found and not named: if it was deleted, they must not create it.
        """
        self._directory.forget_group(group)
        for poll in polls:
            if not poll.is_settled and poll.options.is_discovered:
                poll.fail(GroupGone("the consumer group does not exist any more"))
            elif not poll.is_settled:
                self._parking.leave(poll)  # its place belongs to the group that is gone
                self._resume(poll)(None)

    def find_partition_anew(self, poll: Poll) -> None:
        """The partition of a poll was removed: start over with the one that has its name now."""
        if poll.partition is not None:
            self._directory.forget_partition(poll.partition)
            poll.partition = None
        if not poll.is_settled:
            self._parking.leave(poll)  # its place belongs to the partition that is gone
            self._resume(poll)(None)

    def _resume(self, poll: Poll) -> Callable[[SkepError | None], None]:
        def resume(error: SkepError | None) -> None:
            if poll.is_settled:
                return
            try:
                if error is not None:
                    raise error
                self.pop_messages(poll)
            except SkepError as refusal:
                poll.fail(refusal)

        return resume


class UnwantedClaim(Work):
    """Partitions claimed for a client that is gone. Nobody waits for the answer."""

    __slots__ = ("group", "lease_id", "partition_ids")

    def __init__(self, group: Group, lease_id: UUID, partition_ids: set[int]) -> None:
        super().__init__()
        self.group = group
        self.lease_id = lease_id
        self.partition_ids = partition_ids

    def fail(self, error: SkepError) -> None:
        """Leave the partitions to the end of their lease."""
        self.is_settled = True
        _log.warning("a claim could not be given back: %s", error)


class DoubtfulClaim(Work):
    """A claim that may have been made for a poll that has ended. Nobody waits for the answer."""

    __slots__ = ("group", "lease_id")

    def __init__(self, group: Group, lease_id: UUID) -> None:
        super().__init__()
        self.group = group
        self.lease_id = lease_id

    def fail(self, error: SkepError) -> None:
        """Leave the partitions to the end of their lease."""
        self.is_settled = True
        _log.warning("a claim could not be undone: %s", error)


class UndoExecutor:
    """Executor of the operation `undo`. Repeating it is harmless: a claim is named by its id."""

    def __init__(self, caller: Caller, announcer: Announcer) -> None:
        self._caller: Final = caller
        self._announcer: Final = announcer

    async def execute(self, batch: Sequence[DoubtfulClaim], *, is_repeated: bool) -> None:
        """Undo the claims, group by group, and wake those who may want what they held."""
        del is_repeated
        for claim in batch:
            await self._caller.call(UNDO_CALL, claim.group.group_id, [claim.lease_id])
            claim.is_settled = True
            self._announcer.announce(claim.group.queue_id, 1)


class ReleaseExecutor:
    """Executor of the operation `release`. Repeating it is harmless: a claim is named by its id."""

    def __init__(self, caller: Caller, announcer: Announcer) -> None:
        self._caller: Final = caller
        self._announcer: Final = announcer

    async def execute(self, batch: Sequence[UnwantedClaim], *, is_repeated: bool) -> None:
        """Release all claims in one call, and wake those who may want them."""
        del is_repeated
        partitions = [(claim, partition) for claim in batch for partition in claim.partition_ids]
        await self._caller.call(
            RELEASE_CALL,
            [partition for _, partition in partitions],
            [claim.group.group_id for claim, _ in partitions],
            [claim.lease_id for claim, _ in partitions],
        )
        for claim in batch:
            claim.is_settled = True
            self._announcer.announce(claim.group.queue_id, len(claim.partition_ids))


class Passing(Protocol):
    """Whoever records that messages under lease were passed over."""

    def pass_over(
        self,
        group: str,
        lease_id: UUID,
        addresses: Sequence[tuple[int, int]],
        then: Callable[[], None],
    ) -> None:
        """Record them, by partition and offset, as done; `then` is called once."""
        ...


class PopExecutor:
    """Executor of the operations `pop` and `pop_partition`; a call serves one group."""

    def __init__(
        self,
        caller: Caller,
        pop: Pop,
        leases: LeaseMemory,
        parking: Parking,
        *,
        passing: Passing,
        envelopes: EnvelopeReader,
        now: Callable[[], float],
        meters: Meters | None = None,
        is_paused: Callable[[], bool] = lambda: False,
    ) -> None:
        self._caller: Final = caller
        self._meters: Final = meters or Meters()
        self._is_paused: Final = is_paused
        self._pop: Final = pop
        self._leases: Final = leases
        self._parking: Final = parking
        self._passing: Final = passing
        self._envelopes: Final = envelopes
        self._now: Final = now

    async def execute(self, batch: Sequence[Poll], *, is_repeated: bool) -> None:
        """Claim for all polls in one call, and answer or park each of them."""
        for poll in batch:
            poll.unit = None  # it left; and a circle would wait for the cycle collector
        polls = [poll for poll in batch if not poll.is_settled]
        if not polls:
            return
        group = polls[0].group
        assert group is not None
        doubtful = [p.lease_id for p in polls if is_repeated or p.doubt is not None]
        if doubtful:
            await self._caller.call(UNDO_CALL, group.group_id, doubtful)
        for poll in polls:
            poll.doubt = None
        if self._is_paused():
            for poll in polls:
                self._find_nothing(poll)
            return
        try:
            rows = await self._claim(group, polls)
        except GroupGone:
            self._pop.subscribe_anew(group, polls)
            return
        except Unavailable as error:
            if not isinstance(error, NotExecuted):
                self._doubt(polls)
            raise
        taken: dict[int, list[TakenSegment]] = {}
        ghosts: set[int] = set()
        for row in rows:
            if row[_FIRST] is None:
                self._note_aside(group, row, ghosts)
                continue
            segment = TakenSegment(row)
            taken.setdefault(segment.poll, []).append(segment)
        self._count_call(taken.values())
        for number, poll in enumerate(polls, start=1):
            if number in ghosts:
                self._pop.find_partition_anew(poll)
            else:
                self._settle(group, poll, taken.get(number))

    def _note_aside(self, group: Group, row: Any, ghosts: set[int]) -> None:
        """Take note of a row without messages: of a partition that is gone, or of dead letters."""
        if row[_POLL] is None:
            self._meters.queues.note_letters(group.key[0], row[_DELIVERY])
        else:
            ghosts.add(row[_POLL])

    def _doubt(self, polls: Sequence[Poll]) -> None:
        """Note that it is unknown whether these polls claimed something."""
        for poll in polls:
            if poll.is_settled:
                self._pop.give_back_doubtful(poll)
            else:
                poll.doubt = self._pop.give_back_doubtful

    async def _claim(self, group: Group, polls: Sequence[Poll]) -> Sequence[Any]:
        leases = [poll.lease_id for poll in polls]
        batches = [poll.options.batch for poll in polls]
        auto_acks = [poll.options.auto_ack for poll in polls]
        lease_s = [poll.options.lease_s for poll in polls]
        if polls[0].partition is None:
            counts = [poll.options.partitions for poll in polls]
            return await self._caller.call(
                POP_CALL, group.group_id, leases, batches, counts, auto_acks, lease_s
            )
        partitions = [poll.partition.partition_id if poll.partition else None for poll in polls]
        return await self._caller.call(
            POP_PARTITION_CALL, group.group_id, leases, partitions, batches, auto_acks, lease_s
        )

    def _settle(self, group: Group, poll: Poll, taken: Sequence[TakenSegment] | None) -> None:
        if taken is not None:
            self._serve(group, poll, taken)
        elif poll.is_settled:
            return  # its client left, and so did it
        else:
            self._find_nothing(poll)

    def _find_nothing(self, poll: Poll) -> None:
        if poll.deadline > self._now():
            self._parking.came_back(poll, is_served=False)
        else:
            self._parking.came_back(poll, is_served=True)
            self._meters.queues.of(poll.options.queue).pop_empty += 1
            poll.deliver(None)

    def _count_call(self, taken: Iterable[Sequence[TakenSegment]]) -> None:
        messages = sum(len(segment.envelopes) for segments in taken for segment in segments)
        if messages:
            self._meters.operations["pop"].messages.observe(messages)

    def _count_delivered(
        self, group: Group, batch: Batch, body: bytes, taken: Sequence[TakenSegment]
    ) -> None:
        queues = self._meters.queues
        queue = queues.of(group.key[0])
        queue.pop_requests += 1
        queue.pop_messages += len(batch.messages)
        queue.pop_bytes += len(body)
        now = datetime.now(UTC)
        for segment in taken:
            queues.note_delivery(
                queue,
                len(segment.envelopes),
                (now - segment.created_at).total_seconds(),
                is_redelivery=segment.delivery > 1,
            )

    def _serve(self, group: Group, poll: Poll, taken: Sequence[TakenSegment]) -> None:
        """Answer with what was claimed; if nobody is there or it cannot be read, give it back."""
        partitions = {segment.partition_id for segment in taken}
        if poll.is_settled:
            self._pop.give_back(group, poll.lease_id, partitions)
            self._parking.came_back(poll, is_served=True)
            return
        try:
            batch = self._read_batch(group, poll, taken)
        except SkepError as error:
            self._pop.give_back(group, poll.lease_id, partitions)
            poll.fail(error)
            return
        if not batch.messages:
            self._pass_over(group, poll, batch, lambda: self._try_again(poll))
            return
        body = _full_body(group, poll.options, batch)
        if not poll.deliver(body):
            self._pop.give_back(group, poll.lease_id, partitions)
        else:
            self._count_delivered(group, batch, body, taken)
            if batch.left_out:
                self._pass_over(group, poll, batch, lambda: None)
        self._parking.came_back(poll, is_served=True)

    def _pass_over(self, group: Group, poll: Poll, batch: Batch, then: Callable[[], None]) -> None:
        if poll.options.auto_ack or not batch.left_out:
            then()  # they are done already
        else:
            self._passing.pass_over(group.key[1], poll.lease_id, batch.left_out, then)

    def _try_again(self, poll: Poll) -> None:
        """Let a poll go on whose claim held nothing to deliver, though not for ever."""
        poll.fruitless_claims += 1
        if poll.is_settled:
            return
        if poll.fruitless_claims < FRUITLESS_CLAIMS_MAX:
            self._pop.attempt_anew(poll)
            return
        poll.fruitless_claims = 0
        poll.lease_id = uuid4()
        self._find_nothing(poll)

    def _read_batch(self, group: Group, poll: Poll, taken: Sequence[TakenSegment]) -> Batch:
        """Splice the messages out of their segments, and remember what is under lease."""
        is_leased = not poll.options.auto_ack
        lease_text = str(poll.lease_id) if is_leased else ""
        batch = Batch(group, b'"%b"' % lease_text.encode())
        for segment in taken:
            if is_leased:
                self._leases.remember(
                    lease_text,
                    segment.partition_id,
                    segment.low,
                    segment.keys,
                    is_individual=segment.is_individual,
                )
            batch.add(segment, self._envelopes)
        return batch


def _full_body(group: Group, options: PollOptions, batch: Batch) -> bytes:
    """Render an answer with messages."""
    name_json, uuid = batch.partitions[0]
    return (
        b'{"success":true,%b%b"queue":%b,"partition":%b,"partitionId":"%b","leaseId":%b,'
        b'"consumerGroup":%b,"partitionsClaimed":%d,"messages":[%b]}'
    ) % (
        options.extra,
        _conflation_echo(group, options),
        b'""' if options.is_discovered else group.queue_json,
        name_json,
        uuid,
        batch.lease_json,
        group.group_json,
        len(batch.partitions),
        b",".join(batch.messages),
    )


def _conflation_echo(group: Group, options: PollOptions) -> bytes:
    """Say that only the newest messages are delivered, or that the group does not as asked."""
    if options.conflation is not None and options.conflation != bool(group.conflation):
        return b'"conflationConflict":true,'
    return b'"conflation":true,' if group.conflation else b""


def empty_body(group: Group, options: PollOptions) -> bytes | None:
    """Render an answer without messages; None when a bare status says all there is to say."""
    echo = _conflation_echo(group, options)
    if not echo:
        return None
    return (
        b'{"success":true,%b%b"queue":%b,"partition":"","partitionId":null,"leaseId":null,'
        b'"consumerGroup":%b,"messages":[]}'
    ) % (
        options.extra,
        echo,
        b'""' if options.is_discovered else group.queue_json,
        group.group_json,
    )
