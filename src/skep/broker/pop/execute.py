"""Execute polls: claim partitions for them, deliver what was claimed, give back what was not.

Polls of one group are fused into one claim. The messages come back as segments; their envelopes
are cut out and spliced into the answer without parsing the payloads.

Messages that need no delivery (deleted, expired, completed ahead of the cursor) are left out. The
database does not know of all of them, so they are acknowledged and the partition moves on; a poll
that is left with nothing tries again.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias
from uuid import UUID, uuid4

from skep.broker.cluster.wakeups import Announcer
from skep.broker.directory import Group
from skep.broker.pop.accept import Poll, PollOptions, Pop, UnwantedClaim, conflation_echo
from skep.broker.pop.batches import Batch, EnvelopeReader, TakenSegment, cut_segment
from skep.broker.pop.lease_memory import LeaseMemory
from skep.broker.pop.long_poll import LongPolls
from skep.db.access.errors import GroupGone, NotExecuted
from skep.db.access.slots import Caller
from skep.model.errors import SkepError, Unavailable
from skep.telemetry.meters import Meters

POP_CALL: Final = "select * from skep.pop_messages($1, $2, $3, $4, $5, $6, true, $7)"
POP_PARTITION_CALL: Final = "select * from skep.pop_partitions($1, $2, $3, $4, $5, $6, true, $7)"
UNDO_CALL: Final = "select skep.undo_claims($1, $2)"
RELEASE_CALL: Final = "select skep.release_claims($1, $2, $3)"

_POLL, _PARTITION, _DELIVERY, _FIRST = 0, 1, 5, 6
"""Columns of a claim's rows. `first` is null in rows without messages: of a poll whose partition
does not exist, of a poll for which the answer had no room (with neither partition), or of no poll,
with the number of dead letters in place of the deliveries."""

FRUITLESS_CLAIMS_MAX: Final = 100
"""Claims in a row that bring nothing but expired messages, before a poll counts as unserved."""

PassOver: TypeAlias = Callable[[str, UUID, Sequence[tuple[int, int]], Callable[[bool], None]], None]
"""Acknowledges messages that a group leased but that are not delivered, by partition and offset;
the callback is called once, with whether it succeeded."""


class ClaimReturns:
    """Executes the operations `undo` and `release`; a claim is named by its id, so both may repeat.

    Either wakes the polls of the queues. `is_whole` tells whether every broken connection has been
    replaced: until then the session of one may still make the claim that is to be undone.
    """

    def __init__(
        self, caller: Caller, announcer: Announcer, *, is_whole: Callable[[], bool]
    ) -> None:
        self._caller: Final = caller
        self._announcer: Final = announcer
        self._is_whole: Final = is_whole

    async def undo(self, batch: Sequence[UnwantedClaim], *, is_repeated: bool) -> None:
        """Undo claims of which it is unknown whether they were made."""
        del is_repeated
        _require_whole(self._is_whole)
        await self._caller.call(UNDO_CALL, None, [claim.lease_id for claim in batch])
        for claim in batch:
            self._end(claim, 1)

    async def release(self, batch: Sequence[UnwantedClaim], *, is_repeated: bool) -> None:
        """Release all claims in one call."""
        del is_repeated
        partitions = [(claim, partition) for claim in batch for partition in claim.partition_ids]
        await self._caller.call(
            RELEASE_CALL,
            [partition for _, partition in partitions],
            [claim.group.group_id for claim, _ in partitions],
            [claim.lease_id for claim, _ in partitions],
        )
        for claim in batch:
            self._end(claim, len(claim.partition_ids))

    def _end(self, claim: UnwantedClaim, partition_count: int) -> None:
        claim.finish()
        self._announcer.announce(claim.group.queue_id, partition_count)


def _require_whole(is_whole: Callable[[], bool]) -> None:
    if not is_whole():
        raise NotExecuted("a connection to the database is yet to be replaced")


class _Call:
    """Polls whose call is under way."""

    __slots__ = ("is_over", "polls")

    def __init__(self, polls: Sequence[Poll]) -> None:
        self.polls: Final = polls
        self.is_over: Final = asyncio.Event()

    @property
    def has_ended_unfenced(self) -> bool:
        return any(poll.is_settled and poll.options.auto_ack for poll in self.polls)


@dataclass(slots=True, eq=False, frozen=True)
class PopExecutor:
    """Executor of the operations `pop` and `pop_partition`; a call serves one group."""

    caller: Caller
    pop: Pop
    leases: LeaseMemory
    long_polls: LongPolls
    pass_over: PassOver
    envelopes: EnvelopeReader
    now: Callable[[], float]
    bytes_max: int
    """Of the messages that one call claims, for all polls in it together."""
    meters: Meters = field(default_factory=Meters)
    is_paused: Callable[[], bool] = lambda: False
    is_whole: Callable[[], bool] = lambda: True
    """As that of `ClaimReturns`."""
    calls: dict[int, list[_Call]] = field(default_factory=dict[int, list[_Call]])
    """Under way, by group."""

    async def execute(self, batch: Sequence[Poll], *, is_repeated: bool) -> None:
        """Claim for all polls in one call, and answer or park each of them."""
        for poll in batch:
            poll.unit = None  # it left; and a circle would wait for the cycle collector
        group = batch[0].group
        assert group is not None
        while in_doubt := self._call_in_doubt(group):
            await in_doubt.is_over.wait()
        polls = [poll for poll in batch if not poll.is_settled]
        if not polls:
            return
        self.meters.groups.polled.add(group.key)
        call = _Call(polls)
        calls = self.calls.setdefault(group.group_id, [])
        calls.append(call)
        try:
            await self._serve_polls(group, polls, is_repeated=is_repeated)
        finally:
            calls.remove(call)
            call.is_over.set()
            if not calls:
                del self.calls[group.group_id]

    def _call_in_doubt(self, group: Group) -> _Call | None:
        """Return a call that claims what has to go back before anything else is claimed."""
        calls = self.calls.get(group.group_id, ())
        return next((call for call in calls if call.has_ended_unfenced), None)

    async def _serve_polls(self, group: Group, polls: Sequence[Poll], *, is_repeated: bool) -> None:
        doubtful = [p.lease_id for p in polls if is_repeated or p.undo_claim is not None]
        unfenced = self.pop.unfenced.get(group.group_id, ())
        if doubtful or unfenced:
            if unfenced or not is_repeated:  # the session of a call that is repeated has ended
                _require_whole(self.is_whole)
            await self.caller.call(UNDO_CALL, group.group_id, [*doubtful, *unfenced])
            polls = [poll for poll in polls if not poll.is_settled]  # it may have ended meanwhile
            if not polls:
                return
        for poll in polls:
            poll.undo_claim = None
        if self.is_paused():
            for poll in polls:
                self._find_nothing(poll)
            return
        try:
            rows = await self._claim(group, polls)
        except GroupGone:
            self.pop.subscribe_again(group, polls)
            return
        except Unavailable as error:
            if not isinstance(error, NotExecuted):
                self._note_doubtful(polls)
            raise
        taken: dict[int, list[TakenSegment]] = {}
        without_partition: set[int] = set()
        without_room: set[int] = set()
        for row in rows:
            if row[_FIRST] is not None:
                segment = cut_segment(row)
                taken.setdefault(segment.poll, []).append(segment)
            elif row[_POLL] is None:
                self.meters.queues.note_letters(group.key[0], row[_DELIVERY])
            elif row[_PARTITION] is None:
                without_room.add(row[_POLL])
            else:
                without_partition.add(row[_POLL])
        self.count_call(taken.values())
        for number, poll in enumerate(polls, start=1):
            segments = taken.get(number)
            if number in without_partition:
                self.pop.find_partition_again(poll)
            elif number in without_room:
                self.pop.attempt_again(poll)
            elif segments is not None:
                self.serve(group, poll, segments)
            elif not poll.is_settled:
                self._find_nothing(poll)

    def _note_doubtful(self, polls: Sequence[Poll]) -> None:
        """Note that it is unknown whether these polls claimed something."""
        for poll in polls:
            if poll.is_settled:
                assert poll.group is not None
                self.pop.undo_claim_of(poll)
            else:
                poll.undo_claim = self.pop.undo_claim_of

    async def _claim(self, group: Group, polls: Sequence[Poll]) -> Sequence[Any]:
        leases = [poll.lease_id for poll in polls]
        batches = [poll.options.batch for poll in polls]
        auto_acks = [poll.options.auto_ack for poll in polls]
        lease_s = [poll.options.lease_s for poll in polls]
        if polls[0].partition is None:
            counts = [poll.options.partitions for poll in polls]
            return await self.caller.call(
                POP_CALL,
                group.group_id,
                leases,
                batches,
                counts,
                auto_acks,
                lease_s,
                self.bytes_max,
            )
        partitions = [poll.partition.partition_id if poll.partition else None for poll in polls]
        return await self.caller.call(
            POP_PARTITION_CALL,
            group.group_id,
            leases,
            partitions,
            batches,
            auto_acks,
            lease_s,
            self.bytes_max,
        )

    def _find_nothing(self, poll: Poll) -> None:
        if poll.deadline > self.now():
            self.long_polls.park(poll)
        else:
            self.long_polls.end_wait(poll)
            self.meters.queues.of(poll.options.queue).pop_empty += 1
            poll.deliver(None)

    def count_call(self, taken: Iterable[Sequence[TakenSegment]]) -> None:
        """Count the messages that a call claimed."""
        messages = sum(len(segment.envelopes) for segments in taken for segment in segments)
        if messages:
            self.meters.operations["pop"].messages.observe(messages)

    def _count_delivered(
        self, group: Group, poll: Poll, batch: Batch, body: bytes, taken: Sequence[TakenSegment]
    ) -> None:
        queues, groups = self.meters.queues, self.meters.groups
        groups.polled.add(group.key)
        if poll.options.auto_ack:
            groups.progressed.add(group.key)
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

    def serve(self, group: Group, poll: Poll, taken: Sequence[TakenSegment]) -> None:
        """Answer with what was claimed; give it back if the client is gone or it cannot be read."""
        partitions = {segment.partition_id for segment in taken}
        if poll.is_settled:
            self._give_back(group, poll, partitions)
            self.long_polls.end_wait(poll)
            return
        try:
            batch = self._read_batch(group, poll, taken)
        except SkepError as error:
            self._give_back(group, poll, partitions)
            poll.fail(error)
            return
        if not batch.messages:

            def go_on(is_done: bool) -> None:
                if is_done:
                    self._try_again(poll)
                    return
                self._give_back(group, poll, partitions)  # no consumer holds the lease
                self._wait_for_another(poll)  # which wakes it

            self._acknowledge_left_out(group, poll, batch, go_on)
            return
        body = _full_body(group, poll.options, batch)
        if not poll.deliver(body):
            self._give_back(group, poll, partitions)
        else:
            self._count_delivered(group, poll, batch, body, taken)
            if batch.left_out:
                self._acknowledge_left_out(group, poll, batch, lambda _: None)
        self.long_polls.end_wait(poll)

    def _give_back(self, group: Group, poll: Poll, partitions: set[int]) -> None:
        is_fenced = not poll.options.auto_ack
        self.pop.give_back(group, poll.lease_id, partitions, is_fenced=is_fenced)

    def _acknowledge_left_out(
        self, group: Group, poll: Poll, batch: Batch, proceed: Callable[[bool], None]
    ) -> None:
        if poll.options.auto_ack or not batch.left_out:
            proceed(True)  # they are done already
        else:
            self.pass_over(group.key[1], poll.lease_id, batch.left_out, proceed)

    def _try_again(self, poll: Poll) -> None:
        """Let a poll whose claim held nothing to deliver claim again, up to a limit."""
        poll.fruitless_claims += 1
        if poll.is_settled:
            return
        if poll.fruitless_claims < FRUITLESS_CLAIMS_MAX:
            self.pop.attempt_again(poll)
            return
        poll.fruitless_claims = 0
        self._wait_for_another(poll)

    def _wait_for_another(self, poll: Poll) -> None:
        """Let a poll wait for a claim under a new lease; this one is not its own any more."""
        if not poll.is_settled:
            poll.lease_id = uuid4()
            self._find_nothing(poll)

    def _read_batch(self, group: Group, poll: Poll, taken: Sequence[TakenSegment]) -> Batch:
        """Splice the messages out of their segments, and remember what is under lease."""
        is_leased = not poll.options.auto_ack
        lease_text = str(poll.lease_id) if is_leased else ""
        batch = Batch(group, b'"%b"' % lease_text.encode())
        for segment in taken:
            if is_leased:
                self.leases.remember(
                    lease_text,
                    segment.partition_id,
                    segment.low,
                    segment.keys,
                    is_individual=segment.is_individual,
                )
            batch.add(segment, self.envelopes)
        return batch


def _full_body(group: Group, options: PollOptions, batch: Batch) -> bytes:
    """Render an answer with messages."""
    name_json, uuid = batch.partitions[0]
    return (
        b'{"success":true,%b%b"queue":%b,"partition":%b,"partitionId":"%b","leaseId":%b,'
        b'"consumerGroup":%b,"partitionsClaimed":%d,"messages":[%b]}'
    ) % (
        options.extra,
        conflation_echo(group, options),
        b'""' if options.is_discovered else group.queue_json,
        name_json,
        uuid,
        batch.lease_json,
        group.group_json,
        len(batch.partitions),
        b",".join(batch.messages),
    )
