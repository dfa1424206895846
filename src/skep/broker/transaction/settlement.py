"""Settle: acks and pushes that happen together or not at all.

Transactions and stream cycles are both made of this. A `Stager` checks what a client sent and
turns it into rows of a call. A `Settler` takes the rows as a `Settlement`, runs its call, then
updates the key cache and the memory of leases, and wakes polls.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec
import xxhash

from skep.broker.ack import statuses
from skep.broker.ack.naming import named_message
from skep.broker.cluster.housekeeping import CallDuty
from skep.broker.cluster.wakeups import Announcer
from skep.broker.directory import Directory, Partition, PartitionRequest, QueueLabels
from skep.broker.pop.lease_memory import LeaseMemory
from skep.broker.push.request import (
    check_labels,
    checked_transaction_id,
    item_envelope,
    queue_labels,
)
from skep.broker.push.rules import RuleBook
from skep.broker.push.size_limit import AdmissionGate
from skep.broker.transaction.cached_partitions import CachedPartitions, KeyedBatch
from skep.db.access.slots import Caller
from skep.engine.driver import Engine, Work
from skep.model.envelopes import checked_trace_id
from skep.model.errors import BadRequest, InvalidPayload, PartitionDeferred, Refused, SkepError
from skep.model.limits import NAME_CHARS_MAX
from skep.model.names import check_name
from skep.model.wire import DEFAULT_PARTITION, QUEUE_MODE, AckItem, PushItem
from skep.telemetry.meters import OTHER_QUEUES, Meters

FORGET_CALL: Final = "select skep.forget_transactions($1)"
FORGET_AGE_S: Final = 600
"""Far longer than a broker repeats a call."""
FORGET_INTERVAL_S: Final = 60.0
FORGET_STEP: Final = 10_000
"""Records that one call deletes."""

PARTITION_TRIES_MAX: Final = 3
"""How often a partition may vanish under a call before its queue is taken to be in deletion."""

TEXT_BY_REFUSAL: Final = {
    **statuses.REFUSAL_BY_OUTCOME,
    "required_lease": "Invalid or expired lease",
}

_digest = xxhash.xxh3_128_digest


class StagedPush(msgspec.Struct, gc=False):
    """A message to store."""

    partition_key: tuple[str, str]
    transaction_id: str
    trace_id: str | None
    key: bytes
    envelope: bytes
    labels: QueueLabels = {}


class StagedAck(statuses.AckColumns, gc=False):
    """A message to acknowledge."""

    transaction_id: str | None


class Operations(msgspec.Struct):
    """What has to happen together."""

    pushes: list[StagedPush]
    acks: list[StagedAck]
    required_leases: list[UUID]
    further_weight: int = 0
    """Of what is settled with them."""

    @property
    def weight(self) -> int:
        """About how many bytes it holds on to."""
        pushed = sum(512 + len(push.envelope) for push in self.pushes)
        return 1024 + 512 * len(self.acks) + pushed + self.further_weight

    def labels(self) -> QueueLabels:
        """Return the namespaces and tasks of queues that it may create."""
        return {queue: each for push in self.pushes for queue, each in push.labels.items()}

    def partition_keys(self) -> set[tuple[str, str]]:
        """Return the queue and partition of everything pushed."""
        return {push.partition_key for push in self.pushes}


class AckSettled(msgspec.Struct, gc=False):
    """What became of an ack."""

    outcome: str
    lease_released: bool


class PushSettled(msgspec.Struct, gc=False):
    """Where a message is stored."""

    partition: Partition
    offset: int
    is_duplicate: bool


class Settled(msgspec.Struct):
    """How it ended. Without a refusal everything is done; with one, nothing."""

    refusal: str | None
    refused_position: int
    """The ack or required lease that was refused, from 0."""
    acks: list[AckSettled]
    pushes: list[PushSettled]
    row: Any
    """What the call returned, for columns beyond those of `settle_operations`."""


@dataclass(slots=True, eq=False)
class Settlement(Work):
    """Operations on their way to one call, and the callback for how it ended."""

    id: UUID
    """A repeated call finds by it what the lost one did."""
    statement: str
    operations: Operations
    answer: Callable[[Settled | SkepError], None]
    arguments: Sequence[object] = ()
    """Arguments of the call between the repeat flag and those of the operations."""

    def finish(self, settled: Settled) -> None:
        """Answer with how it ended."""
        # In this order: if the answer cannot be rendered, the engine answers in its place.
        self.answer(settled)
        self.is_settled = True

    def fail(self, error: SkepError) -> None:
        """Answer that it is not known to have happened."""
        self.is_settled = True
        self.answer(error)


class Unacceptable(Refused):
    """An operation can never be done, in any state of the broker."""

    code = "unacceptable"


@dataclass(slots=True, eq=False, frozen=True)
class Stager:
    """Checks what clients send and turns it into rows of a call."""

    leases: LeaseMemory
    hash_seed: int
    now: Callable[[], datetime]
    check_partition: Callable[[tuple[str, str]], None] = lambda _: None
    requires_lease: bool = False

    def stage_push(
        self, item: PushItem, *, producer: str | None, transaction_id: str | None = None
    ) -> StagedPush:
        """Make a row of an item; `transaction_id` is used if the item has none.

        Raises:
            BadRequest: A name or an id cannot be stored, or an option does not work here.
            Unavailable: Messages of its partition that came first are not stored yet.
        """
        if item.deliver_at is not None or item.delay_seconds is not None:
            raise BadRequest("deliverAt and delaySeconds do not work here: push the message alone")
        name = checked_transaction_id(item, transaction_id)
        check_labels(item)
        trace_id = checked_trace_id(item.trace_id)
        partition_key = (
            check_name("queue", item.queue),
            check_name("partition", item.partition or DEFAULT_PARTITION),
        )
        self.check_partition(partition_key)
        return StagedPush(
            partition_key=partition_key,
            transaction_id=name,
            trace_id=trace_id,
            key=_digest(name.encode(), self.hash_seed),
            envelope=item_envelope(item, name, trace_id, producer, self.now()),
            labels=queue_labels((item,)),
        )

    def stage_ack(self, item: AckItem, required_leases: Sequence[str]) -> StagedAck:
        """Make a row of an ack."""
        word = item.status or "completed"
        status = statuses.STATUS_BY_WORD.get(word)
        if status is None:
            raise Unacceptable(statuses.unknown_status(word))
        try:
            partition_id, offset = named_message(item)
        except BadRequest as error:
            raise Unacceptable(error.message) from error
        group = item.consumer_group or QUEUE_MODE
        if len(group) > NAME_CHARS_MAX or "\0" in group:
            raise Unacceptable(TEXT_BY_REFUSAL["no_group"])
        lease_texts = [item.lease_id] if item.lease_id else required_leases
        if self.requires_lease and not lease_texts:
            raise Unacceptable(TEXT_BY_REFUSAL["lease_missing"])
        key, lease_text = b"", item.lease_id or ""
        if offset is None:
            name = item.transaction_id or ""
            key = _digest(name.encode(), self.hash_seed)
            offset, lease_text = self._find(name, partition_id, key, lease_texts)
        return StagedAck(
            transaction_id=item.transaction_id,
            partition_id=partition_id,
            group=group,
            lease_id=parse_lease_id(item.lease_id) if item.lease_id else None,
            offset=offset,
            key=key,
            status=status,
            error=statuses.storable_error(item.error),
            lease_text=lease_text,
        )

    def _find(
        self, transaction_id: str, partition_id: int, key: bytes, lease_texts: Sequence[str]
    ) -> tuple[int | None, str]:
        """Return the offset, if it is known here, and the lease the message went out under."""
        for lease_text in lease_texts:
            offset = self.leases.find(lease_text, partition_id, key)
            if offset is not None:
                return offset, lease_text
        return statuses.spelled_offset(transaction_id, partition_id), ""


def parse_lease_id(text: str) -> UUID:
    """Return a lease id."""
    try:
        return UUID(text)
    except ValueError:
        raise Unacceptable(TEXT_BY_REFUSAL["lease_lost"]) from None


@dataclass(slots=True, eq=False)
class Settler:
    """Takes settlements, runs their calls and applies the outcome."""

    engine: Engine
    caller: Caller
    directory: Directory
    partitions: CachedPartitions
    rule_book: RuleBook
    gate: AdmissionGate
    leases: LeaseMemory
    announcer: Announcer
    meters: Meters = field(default_factory=Meters)

    def submit(self, operation: str, settlement: Settlement) -> None:
        """Settle once the partitions that are pushed to exist.

        Raises:
            Overloaded: There is no room; the answer is not called. Otherwise it is, once.
        """
        operations = settlement.operations
        known = self.directory.partitions
        missing = [key for key in operations.partition_keys() if key not in known]

        def proceed(error: SkepError | None) -> None:
            try:
                if error is not None:
                    raise error
                self.engine.submit(operation, None, operations.weight, settlement)
            except SkepError as refusal:
                settlement.fail(refusal)

        if missing:
            wish = PartitionRequest(missing, labels=operations.labels(), on_done=proceed)
            self.engine.submit("provision", None, 512 * len(missing), wish)
        else:
            self.engine.submit(operation, None, operations.weight, settlement)

    async def execute(self, batch: Sequence[Settlement], *, is_repeated: bool) -> None:
        """Settle each; a call carries one. One that an earlier try settled is found by its id."""
        for settlement in batch:
            settled = await self.settle(
                settlement.statement,
                (settlement.id, is_repeated, *settlement.arguments),
                settlement.operations,
                is_repeated=is_repeated,
            )
            settlement.finish(settled)

    async def settle(
        self,
        statement: str,
        leading: Sequence[object],
        operations: Operations,
        *,
        is_repeated: bool,
        with_places: bool = False,
    ) -> Settled:
        """Call a function that settles the operations.

        The last arguments of the statement and its columns include those of `transact` without the
        first two of its arguments. What `is_repeated` may have been settled by an earlier call: the
        queues accepted the pushes, and must not refuse them now, perhaps for being full of them.
        `with_places` tells the function, after the leading arguments, which of the messages sent
        each push is: those with the same key are sent once.

        Raises:
            SkepError: A queue refuses a push or operations wait in a partition, or the call failed.
        """
        for _ in range(PARTITION_TRIES_MAX):
            partitions = await self.partitions.find(operations.partition_keys())
            if partitions:
                await self.rule_book.read(each.queue_id for each in partitions.values())
            pushed = KeyedBatch(
                [(partitions[push.partition_key], push) for push in operations.pushes]
            )
            await self._enforce(pushed, is_repeated=is_repeated)
            places = [pushed.places] if with_places else []
            row = await self._call(statement, [*leading, *places], operations, pushed)
            refused_item: int = row["refused_item"]
            if row["refusal"] == "deferred":
                # The partition is numbered among those pushed to and then those acknowledged.
                found = [("push", partition.partition_id) for partition in pushed.partitions]
                found += [("ack_batch", ack.partition_id) for ack in operations.acks]
                type_, partition_id = found[refused_item - 1]
                raise PartitionDeferred(partition_id=partition_id, operation_type=type_)
            if row["refusal"] != "partition_gone":
                return self._conclude(row, operations, pushed)
            self.partitions.forget(pushed.partitions[refused_item - 1])
        raise Refused("a queue that is pushed to is being deleted")

    async def _enforce(self, pushed: KeyedBatch[StagedPush], *, is_repeated: bool) -> None:
        """Apply the rules of the queues to the pushes; all are accepted, or none."""
        sizes: Counter[Partition] = Counter()
        for at, (number, push) in enumerate(pushed.sent):
            partition = pushed.partitions[number - 1]
            sizes[partition] += 1
            if not is_repeated and (refusal := partition.rules.refusal_of(push.envelope)):
                raise InvalidPayload(refusal)
            envelope = self.rule_book.seal(partition.rules, push.envelope)
            pushed.sent[at] = number, msgspec.structs.replace(push, envelope=envelope)
        if not is_repeated:
            await self.gate.require_room(sizes)

    async def _call(
        self,
        statement: str,
        leading: Sequence[object],
        operations: Operations,
        pushed: KeyedBatch[StagedPush],
    ) -> Any:
        guaranteed = self.partitions.guarantee(pushed.writes())
        (row,) = await self.caller.call(
            statement,
            *leading,
            operations.required_leases,
            *statuses.ack_columns(operations.acks),
            [partition.partition_id for partition in pushed.partitions],
            [to for to, _ in guaranteed],
            [since for _, since in guaranteed],
            [number for number, _ in pushed.sent],
            [push.key for _, push in pushed.sent],
            [push.envelope for _, push in pushed.sent],
        )
        return row

    def _conclude(
        self, row: Any, operations: Operations, pushed: KeyedBatch[StagedPush]
    ) -> Settled:
        if row["refusal"] is not None:
            return Settled(row["refusal"], (row["refused_item"] or 1) - 1, [], [], row)
        acks: dict[int, AckSettled] = {}
        available: dict[int, set[int]] = {}
        for item, outcome, is_released, has_more, queue_id in _columns(
            row, "ack_item", "ack_outcome", "ack_released", "ack_has_more", "ack_queue_id"
        ):
            ack = operations.acks[int(item) - 1]
            acks[item] = AckSettled(outcome, is_released)
            self._count_ack(queue_id, ack, outcome)
            if is_released and ack.lease_text:
                self.leases.forget(ack.lease_text, ack.partition_id)
            if has_more:
                available.setdefault(queue_id, set()).add(ack.partition_id)
        pushes = _settled_pushes(pushed, row["push_offset"], row["push_is_duplicate"])
        self._learn(pushed, row)
        self._count(operations, pushes, row["ack_queue_id"] or ())
        for push in pushes:
            if not push.is_duplicate:
                partition = push.partition
                available.setdefault(partition.queue_id, set()).add(partition.partition_id)
        for queue_id, partition_ids in available.items():
            self.announcer.announce(queue_id, len(partition_ids))
        return Settled(None, 0, [acks[item] for item in sorted(acks)], pushes, row)

    def _learn(self, pushed: KeyedBatch[StagedPush], row: Any) -> None:
        if row["partition_first"] is None:
            return  # an earlier try stored it; the next push finds it as a gap
        outcomes = _columns(
            row, "partition_first", "partition_created_at", "gap_first", "gap_keys",
            "gap_created_at",
        )  # fmt: skip
        verdicts = zip(pushed.sent, row["push_is_duplicate"], strict=True)
        pushed.teach(
            self.partitions.cache,
            [(number, *outcome) for number, outcome in enumerate(outcomes, start=1)],
            [sent for sent, is_duplicate in verdicts if not is_duplicate],
        )

    def _count_ack(self, queue_id: int, ack: StagedAck, outcome: str) -> None:
        queue = self.directory.queue_name(queue_id) or OTHER_QUEUES
        meter = self.meters.queues.of(queue)
        statuses.note_outcome(self.meters.groups, (queue, ack.group), outcome)
        if ack.status == "completed":
            meter.ack_success += 1
        else:
            meter.ack_failed += 1
        meter.dead_letters += outcome == "dead_lettered"

    def _count(
        self, operations: Operations, pushes: Sequence[PushSettled], acked: Sequence[int]
    ) -> None:
        names = {push.partition.key[0] for push in pushes}
        names |= {self.directory.queue_name(queue_id) or OTHER_QUEUES for queue_id in acked}
        for name in names:
            self.meters.queues.of(name).transactions += 1
        for push, staged in zip(pushes, operations.pushes, strict=True):
            meter = self.meters.queues.of(push.partition.key[0])
            if push.is_duplicate:
                meter.push_duplicates += 1
            else:
                meter.push_messages += 1
                meter.push_bytes += len(staged.envelope)


def _columns(row: Any, *names: str) -> Iterable[tuple[Any, ...]]:
    """Read columns that are arrays of the same length as rows; null is an empty array."""
    return zip(*(row[name] or () for name in names), strict=True)


def _settled_pushes(
    pushed: KeyedBatch[StagedPush], offsets: Sequence[int], duplicates: Sequence[bool]
) -> list[PushSettled]:
    """Return where every push is, also those left out because one before has their key."""
    settled: list[PushSettled] = []
    seen: set[int] = set()
    for place in pushed.places:
        partition = pushed.partitions[pushed.sent[place][0] - 1]
        is_duplicate = duplicates[place] or place in seen
        settled.append(PushSettled(partition, offsets[place], is_duplicate))
        seen.add(place)
    return settled


def settled_purge(caller: Caller) -> CallDuty:
    """Return the duty that deletes the records of transactions and of calls on keys."""
    return CallDuty(
        "forget transactions",
        FORGET_INTERVAL_S,
        caller,
        FORGET_CALL,
        (FORGET_AGE_S,),
        again_from=FORGET_STEP,
    )
