"""Settle: acks and pushes that happen together or not at all.

Transactions and stream cycles are both made of this. A `Stager` checks what a client sent and
turns it into rows of a call; a `Settler` runs the call, then updates the duplicate cache and the
memory of leases, and wakes polls.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid4

import msgspec
import xxhash

from skep.broker.ack.statuses import (
    REFUSAL_BY_OUTCOME,
    STATUS_BY_WORD,
    spelled_offset,
    storable_error,
    unknown_status,
)
from skep.broker.cluster.wakeups import Announcer
from skep.broker.directory import Directory, Partition, PartitionListener, PartitionProvisioner
from skep.broker.pop.lease_memory import LeaseMemory
from skep.broker.push.rules import RuleBook
from skep.broker.push.size_limit import AdmissionGate, Full
from skep.broker.transaction.cached_partitions import CachedPartitions
from skep.db.access.slots import Caller
from skep.engine.dedup.cache import DedupCache
from skep.model.envelopes import (
    build_envelope,
    check_headers,
    checked_trace_id,
    end_of_life,
)
from skep.model.errors import BadRequest, InvalidPayload, PartitionDeferred, Refused
from skep.model.ids import parse_partition_uuid
from skep.model.limits import NAME_CHARS_MAX, TRANSACTION_ID_CHARS_MAX
from skep.model.names import check_name, refuse_transaction_id
from skep.model.wire import DEFAULT_PARTITION, QUEUE_MODE, AckItem, PushItem
from skep.telemetry.meters import OTHER_QUEUES, Meters

PARTITION_TRIES_MAX: Final = 3
"""How often a partition may vanish under a call before its queue is taken to be in deletion."""

TEXT_BY_REFUSAL: Final = {**REFUSAL_BY_OUTCOME, "required_lease": "Invalid or expired lease"}

_digest = xxhash.xxh3_128_digest


class StagedPush(msgspec.Struct, gc=False):
    """A message to store."""

    partition_key: tuple[str, str]
    transaction_id: str
    trace_id: str | None
    key: bytes
    envelope: bytes


class StagedAck(msgspec.Struct, gc=False):
    """A message to acknowledge."""

    transaction_id: str
    partition_id: int
    group: str
    lease_id: UUID | None
    offset: int | None
    key: bytes
    status: str
    error: str | None
    lease_text: str


class Operations(msgspec.Struct):
    """What has to happen together."""

    pushes: list[StagedPush]
    acks: list[StagedAck]
    required_leases: list[UUID]

    @property
    def weight(self) -> int:
        """About how many bytes it holds on to."""
        return 1024 + 512 * len(self.acks) + sum(512 + len(push.envelope) for push in self.pushes)

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


class Unacceptable(Refused):
    """An operation can never be done, in any state of the broker."""

    code = "unacceptable"


class Stager:
    """Checks what clients send and turns it into rows of a call."""

    def __init__(
        self,
        leases: LeaseMemory,
        *,
        hash_seed: int,
        now: Callable[[], datetime],
        check_partition: Callable[[tuple[str, str]], None] = lambda _: None,
        requires_lease: bool = False,
    ) -> None:
        """Take what is needed; `check_partition` raises when a partition takes no pushes now."""
        self._check_partition: Final = check_partition
        self._requires_lease: Final = requires_lease
        self._leases: Final = leases
        self._hash_seed: Final = hash_seed
        self._now: Final = now

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
        name = item.transaction_id or transaction_id or str(uuid4())
        if len(name) > TRANSACTION_ID_CHARS_MAX or "\0" in name:
            refuse_transaction_id(name)
        trace_id = checked_trace_id(item.trace_id)
        partition_key = (
            check_name("queue", item.queue),
            check_name("partition", item.partition or DEFAULT_PARTITION),
        )
        self._check_partition(partition_key)
        return StagedPush(
            partition_key=partition_key,
            transaction_id=name,
            trace_id=trace_id,
            key=_digest(name.encode(), self._hash_seed),
            envelope=build_envelope(
                name,
                bytes(item.payload),
                trace_id=trace_id,
                producer=producer,
                headers=check_headers(item.headers),
                expires_at=end_of_life(item.ttl_seconds, self._now()),
            ),
        )

    def stage_ack(self, item: AckItem, required_leases: Sequence[str]) -> StagedAck:
        """Make a row of an ack. The message may be named by its transaction id or its own id.

        Raises:
            Unacceptable: It can never succeed; the text says why.
        """
        word = item.status or "completed"
        status = STATUS_BY_WORD.get(word)
        if status is None:
            raise Unacceptable(unknown_status(word))
        partition_id = parse_partition_uuid(item.partition_id)
        if partition_id is None:
            raise Unacceptable(TEXT_BY_REFUSAL["not_found"])
        group = item.consumer_group or QUEUE_MODE
        if len(group) > NAME_CHARS_MAX or "\0" in group:
            raise Unacceptable(TEXT_BY_REFUSAL["no_group"])
        key = _digest(item.transaction_id.encode(), self._hash_seed)
        lease_texts = [item.lease_id] if item.lease_id else required_leases
        if self._requires_lease and not lease_texts:
            raise Unacceptable(TEXT_BY_REFUSAL["lease_missing"])
        offset, lease_text = self._find(item.transaction_id, partition_id, key, lease_texts)
        return StagedAck(
            transaction_id=item.transaction_id,
            partition_id=partition_id,
            group=group,
            lease_id=parse_lease_id(item.lease_id) if item.lease_id else None,
            offset=offset,
            key=key,
            status=status,
            error=storable_error(item.error),
            lease_text=lease_text,
        )

    def _find(
        self, transaction_id: str, partition_id: int, key: bytes, lease_texts: Sequence[str]
    ) -> tuple[int | None, str]:
        """Return the offset, if it is known here, and the lease the message went out under."""
        for lease_text in lease_texts:
            offset = self._leases.find(lease_text, partition_id, key)
            if offset is not None:
                return offset, lease_text
        return spelled_offset(transaction_id, partition_id), ""


def parse_lease_id(text: str) -> UUID:
    """Return a lease id.

    Raises:
        Unacceptable: It is no id of a lease.
    """
    try:
        return UUID(text)
    except ValueError:
        raise Unacceptable(TEXT_BY_REFUSAL["lease_lost"]) from None


class Settler:
    """Runs calls that settle operations, and applies their outcome."""

    def __init__(
        self,
        caller: Caller,
        *,
        directory: Directory,
        provisioner: PartitionProvisioner,
        listener: PartitionListener,
        rule_book: RuleBook,
        gate: AdmissionGate,
        cache: DedupCache,
        leases: LeaseMemory,
        announcer: Announcer,
        meters: Meters | None = None,
    ) -> None:
        """Take what is needed; `cache` and the `listener` that fills it are the settler's own."""
        self._caller: Final = caller
        self._queues: Final = (meters or Meters()).queues
        self._directory: Final = directory
        self._partitions: Final = CachedPartitions(directory, provisioner, listener, cache)
        self._rule_book: Final = rule_book
        self._gate: Final = gate
        self._leases: Final = leases
        self._announcer: Final = announcer

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

        Args:
            statement: The call. Its last arguments and its columns include those of `transact`
                without the first two of its arguments.
            leading: Its first arguments.
            operations: What to settle.
            is_repeated: An earlier call may have settled them. Then the queues accepted the pushes,
                and must not refuse them now, perhaps for being full of them.
            with_places: Tell the function, after the leading arguments, which of the messages sent
                each push is: those with the same key are sent once.

        Raises:
            PartitionDeferred: Operations wait in a partition.
            Refused: A queue is being deleted faster than it can be created.
            BadRequest: A queue refuses a payload.
            QueueFull: A queue has no room.
            SkepError: As the call fails.
        """
        for _ in range(PARTITION_TRIES_MAX):
            partitions = await self._partitions.find(operations.partition_keys())
            pushed = _Pushed(operations, partitions)
            await self._enforce(pushed, is_repeated=is_repeated)
            places = [pushed.places] if with_places else []
            row = await self._call(statement, [*leading, *places], operations, pushed)
            refused_item: int = row["refused_item"]
            if row["refusal"] == "deferred":
                # The partition is numbered among those pushed to and then those acknowledged.
                ids = [partition.partition_id for partition in pushed.partitions]
                ids += [ack.partition_id for ack in operations.acks]
                raise PartitionDeferred(partition_id=ids[refused_item - 1])
            if row["refusal"] != "partition_gone":
                return self._conclude(row, operations, pushed)
            self._partitions.forget(pushed.partitions[refused_item - 1])
        raise Refused("a queue that is pushed to is being deleted")

    async def _enforce(self, pushed: "_Pushed", *, is_repeated: bool) -> None:
        """Apply the rules of the queues to the pushes; all are accepted, or none."""
        if not pushed.sent:
            return
        await self._rule_book.read(partition.queue_id for partition in pushed.partitions)
        sizes: Counter[Partition] = Counter()
        for number, (partition_number, push) in enumerate(pushed.sent):
            partition = pushed.partitions[partition_number - 1]
            sizes[partition] += 1
            if not is_repeated and (refusal := partition.rules.refusal_of(push.envelope)):
                raise InvalidPayload(refusal)
            envelope = self._rule_book.seal(partition.rules, push.envelope)
            pushed.sent[number] = partition_number, msgspec.structs.replace(push, envelope=envelope)
        for partition, count in sizes.items():
            if partition.rules.size_limit is not None and not is_repeated:
                verdict = await self._gate.decide(
                    partition.queue_id, count, partition.rules.size_limit
                )
                if isinstance(verdict, Full):
                    raise verdict.error(partition.key[0])

    async def _call(
        self,
        statement: str,
        leading: Sequence[object],
        operations: Operations,
        pushed: "_Pushed",
    ) -> Any:
        acks = operations.acks
        guaranteed = self._partitions.guarantee(pushed.writes())
        (row,) = await self._caller.call(
            statement,
            *leading,
            operations.required_leases,
            [ack.partition_id for ack in acks],
            [ack.group for ack in acks],
            [ack.lease_id for ack in acks],
            [ack.offset for ack in acks],
            [ack.key for ack in acks],
            [ack.status for ack in acks],
            [ack.error for ack in acks],
            [partition.partition_id for partition in pushed.partitions],
            [to for to, _ in guaranteed],
            [since for _, since in guaranteed],
            [partition_number for partition_number, _ in pushed.sent],
            [push.key for _, push in pushed.sent],
            [push.envelope for _, push in pushed.sent],
        )
        return row

    def _conclude(self, row: Any, operations: Operations, pushed: "_Pushed") -> Settled:
        if row["refusal"] is not None:
            return Settled(row["refusal"], (row["refused_item"] or 1) - 1, [], [], row)
        acks: dict[int, AckSettled] = {}
        available: dict[int, set[int]] = {}
        for item, outcome, is_released, has_more, queue_id in zip(
            row["ack_item"] or (),
            row["ack_outcome"] or (),
            row["ack_released"] or (),
            row["ack_has_more"] or (),
            row["ack_queue_id"] or (),
            strict=True,
        ):
            ack = operations.acks[item - 1]
            acks[item] = AckSettled(outcome, is_released)
            self._count_ack(queue_id, ack.status, outcome)
            if is_released and ack.lease_text:
                self._leases.forget(ack.lease_text, ack.partition_id)
            if has_more:
                available.setdefault(queue_id, set()).add(ack.partition_id)
        pushes = pushed.settle(row["push_offset"], row["push_is_duplicate"])
        pushed.teach(self._partitions.cache, row)
        self._count(operations, pushes, row["ack_queue_id"] or ())
        for push in pushes:
            if not push.is_duplicate:
                partition = push.partition
                available.setdefault(partition.queue_id, set()).add(partition.partition_id)
        for queue_id, partition_ids in available.items():
            self._announcer.announce(queue_id, len(partition_ids))
        return Settled(None, 0, [acks[item] for item in sorted(acks)], pushes, row)

    def _count_ack(self, queue_id: int, status: str, outcome: str) -> None:
        meter = self._queues.of(self._directory.queue_name(queue_id) or OTHER_QUEUES)
        if status == "completed":
            meter.ack_success += 1
        else:
            meter.ack_failed += 1
        meter.dead_letters += outcome == "dead_lettered"

    def _count(
        self, operations: Operations, pushes: Sequence[PushSettled], acked: Sequence[int]
    ) -> None:
        names = {push.partition.key[0] for push in pushes}
        names |= {self._directory.queue_name(queue_id) or OTHER_QUEUES for queue_id in acked}
        for name in names:
            self._queues.of(name).transactions += 1
        for push, staged in zip(pushes, operations.pushes, strict=True):
            meter = self._queues.of(push.partition.key[0])
            if push.is_duplicate:
                meter.push_duplicates += 1
            else:
                meter.push_messages += 1
                meter.push_bytes += len(staged.envelope)


class _Pushed:
    """The pushes of one call by partition, each key once."""

    def __init__(
        self, operations: Operations, partition_by_key: dict[tuple[str, str], Partition]
    ) -> None:
        self.partitions: list[Partition] = sorted(
            partition_by_key.values(), key=lambda partition: partition.partition_id
        )
        self.sent: list[tuple[int, StagedPush]] = []
        """(number of the partition from 1, push); later pushes of the same key are left out."""
        self.places: list[int] = []
        """Of every push: where in `sent` it is, or the one of the same key before it."""
        number_by_key = {
            partition.key: number for number, partition in enumerate(self.partitions, start=1)
        }
        place_by_key: dict[tuple[int, bytes], int] = {}
        for push in operations.pushes:
            number = number_by_key[push.partition_key]
            place = place_by_key.setdefault((number, push.key), len(self.sent))
            if place == len(self.sent):
                self.sent.append((number, push))
            self.places.append(place)

    def writes(self) -> list[tuple[int, bytes]]:
        """Return the id and the joined keys of each partition."""
        keys = self._keys_by_partition(self.sent)
        return [
            (partition.partition_id, keys[number])
            for number, partition in enumerate(self.partitions, start=1)
        ]

    def settle(self, offsets: Sequence[int], duplicates: Sequence[bool]) -> list[PushSettled]:
        """Return where every push is, also those left out."""
        settled: list[PushSettled] = []
        seen: set[int] = set()
        for place in self.places:
            partition = self.partitions[self.sent[place][0] - 1]
            settled.append(
                PushSettled(partition, offsets[place], duplicates[place] or place in seen)
            )
            seen.add(place)
        return settled

    def teach(self, cache: DedupCache, row: Any) -> None:
        """Let the cache learn what was stored by this call, and by others before it."""
        if row["partition_first"] is None:
            return  # an earlier try stored it; the next push finds it as a gap
        verdicts = zip(self.sent, row["push_is_duplicate"], strict=True)
        keys = self._keys_by_partition(
            [sent for sent, is_duplicate in verdicts if not is_duplicate]
        )
        by_partition = zip(
            self.partitions,
            row["partition_first"],
            row["partition_created_at"] or (),
            row["gap_first"] or (),
            row["gap_keys"] or (),
            row["gap_created_at"] or (),
            strict=True,
        )
        for number, outcome in enumerate(by_partition, start=1):
            partition, first, created_at, gap_first, gap_keys, gap_created_at = outcome
            if gap_keys is not None:
                cache.adopt(partition.partition_id, gap_first, gap_keys, gap_created_at)
            if first is not None:
                cache.record(partition.partition_id, first, keys[number], created_at)

    @staticmethod
    def _keys_by_partition(sent: Sequence[tuple[int, StagedPush]]) -> dict[int, bytes]:
        """Return the joined keys of each partition, by its number."""
        keys: dict[int, list[bytes]] = {}
        for number, push in sent:
            keys.setdefault(number, []).append(push.key)
        return {number: b"".join(each) for number, each in keys.items()}
