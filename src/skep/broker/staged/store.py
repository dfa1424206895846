"""Move staged messages into the log: read them, let the rules of their queues decide, store them.

Each message leaves in one of three calls. Those that the queue takes are appended to their
partitions; those for later wait for their time; those that the queue refuses become dead letters
with the reason, because the transaction that staged them has committed and nobody is left to be
told. Every call takes its messages off the staged ones in the transaction that stores them, so a
message arrives once, whichever process or connection dies in between.

The duplicate cache is one of its own, for the reason that `settlement` gives.
"""

import os
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import xxhash

from skep.broker.ack.statuses import storable_error
from skep.broker.cluster.wakeups import Announcer
from skep.broker.directory import Directory, Partition, PartitionListener, PartitionProvisioner
from skep.broker.push.rules import QueueRules, RuleBook
from skep.broker.push.size_limit import AdmissionGate, Full
from skep.broker.scheduled.accept import DueListener
from skep.broker.staged.read import Portion, StagedMessage, StagedReader
from skep.db.access.errors import RejectedData, RulesChanged
from skep.db.access.slots import Caller
from skep.engine.dedup.cache import KEY_BYTES, DedupCache, Guarantee
from skep.model.envelopes import build_envelope, end_of_life
from skep.model.errors import SkepError
from skep.telemetry.meters import NoteLetters

SEQUENCE_CALL: Final = "select * from skep.sequence_staged($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
SCHEDULE_CALL: Final = "select * from skep.schedule_claimed($1, $2, $3, $4, $5, $6, $7, $8)"
REJECT_CALL: Final = "select skep.reject_staged($1, $2, $3, $4, $5)"

PORTION_MESSAGES: Final = 1_000

_NO_WORD: Final[Guarantee] = (0, datetime.max.replace(tzinfo=UTC))
"""What a broker guarantees that guarantees nothing."""

_FULL: Final = "too many messages of the queue wait for their time"


class Moved(NamedTuple):
    """What became of one look at the staged messages."""

    found: int
    has_more: bool
    is_whole: bool
    """All that was found is moved. If not, another process was at it, or rules were changed."""


class _Prepared(NamedTuple):
    """A message as it will be stored."""

    staged: StagedMessage
    partition: Partition
    key: bytes
    envelope: bytes

    @property
    def is_later(self) -> bool:
        return self.staged.deliver_at is not None


class _Refused(NamedTuple):
    """A message that its queue does not take."""

    message: _Prepared
    reason: str


class StagedMover:
    """Moves staged messages, a portion at a time."""

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
        announcer: Announcer,
        due_listener: DueListener,
        hash_seed: int,
        scheduled_max: int,
        note_letters: NoteLetters,
    ) -> None:
        """Take what is needed; `cache` and the `listener` that fills it are the mover's own."""
        self._caller: Final = caller
        self._reader: Final = StagedReader(caller)
        self._directory: Final = directory
        self._provisioner: Final = provisioner
        self._listener: Final = listener
        self._rule_book: Final = rule_book
        self._gate: Final = gate
        self._cache: Final = cache
        self._announcer: Final = announcer
        self._due_listener: Final = due_listener
        self._hash_seed: Final = hash_seed
        self._scheduled_max: Final = scheduled_max
        self._note_letters: Final = note_letters
        self._portion_messages = PORTION_MESSAGES

    def start_over(self) -> None:
        """Look at everything again that is staged."""
        self._reader.start_over()

    async def move(self) -> Moved:
        """Move what was staged since the last time, up to a portion.

        Raises:
            SkepError: It could not be done; nothing is lost, and it may be tried again.
        """
        portion = await self._reader.read(self._portion_messages)
        if not portion.messages:
            self._reader.pass_over(portion)
            return Moved(0, has_more=False, is_whole=True)
        partitions = await self._find_partitions(portion.messages)
        try:
            is_whole = await self._move(portion, partitions)
        except RulesChanged:
            await self._learn_anew(partitions.values())
            is_whole = False
        except RejectedData as error:
            is_whole = await self._isolate(portion, partitions, error)
        else:
            self._portion_messages = min(PORTION_MESSAGES, self._portion_messages * 2)
        if is_whole:
            self._reader.pass_over(portion)
        return Moved(len(portion.messages), has_more=portion.is_cut, is_whole=is_whole)

    async def _find_partitions(
        self, messages: Sequence[StagedMessage]
    ) -> dict[tuple[str, str], Partition]:
        keys = {message.partition_key for message in messages}
        await self._provisioner.provide(keys)
        partitions = {key: self._directory.partitions[key] for key in keys}
        strange = [
            partition
            for partition in partitions.values()
            if not self._cache.guarantee(partition.partition_id)
        ]
        if strange:
            await self._listener.prepare((), strange)
        return partitions

    async def _learn_anew(self, partitions: Collection[Partition]) -> None:
        """A queue was configured or deleted: forget what was known of it."""
        for partition in partitions:
            self._directory.forget_partition(partition)
            self._cache.forget(partition.partition_id)
        await self._rule_book.read(partition.queue_id for partition in partitions)

    async def _isolate(
        self, portion: Portion, partitions: dict[tuple[str, str], Partition], error: SkepError
    ) -> bool:
        """The database refused a value: find the guilty message, and let it go alone."""
        if len(portion.messages) > 1:
            self._portion_messages = len(portion.messages) // 2
            return False
        prepared = self._prepare(portion.messages[0], partitions, portion.read_at)
        return await self._reject([_Refused(prepared, error.message)])

    async def _move(self, portion: Portion, partitions: dict[tuple[str, str], Partition]) -> bool:
        """Store the messages of a portion; return whether all of them are."""
        prepared = [self._prepare(each, partitions, portion.read_at) for each in portion.messages]
        accepted, refused = self._judge(prepared)
        accepted, turned_away = await self._admit(accepted)
        later = [each for each in accepted if each.is_later]
        at_once = [each for each in accepted if not each.is_later]
        is_whole = await self._reject(refused + turned_away)
        if later:
            is_whole = await self._schedule(later) and is_whole
        if at_once:
            is_whole = await self._sequence(at_once) and is_whole
        return is_whole

    def _prepare(
        self, staged: StagedMessage, partitions: dict[tuple[str, str], Partition], read_at: datetime
    ) -> _Prepared:
        if staged.deliver_at is not None and staged.deliver_at <= read_at:
            staged = staged._replace(deliver_at=None)
        envelope = build_envelope(
            staged.transaction_id,
            staged.payload,
            trace_id=None if staged.trace_id is None else str(staged.trace_id),
            headers=staged.headers,
            expires_at=end_of_life(staged.ttl_s, staged.deliver_at or read_at),
        )
        key = xxhash.xxh3_128_digest(staged.transaction_id.encode(), self._hash_seed)
        return _Prepared(staged, partitions[staged.partition_key], key, envelope)

    def _judge(self, prepared: Sequence[_Prepared]) -> tuple[list[_Prepared], list[_Refused]]:
        """Let the rules decide, and encrypt what is to be stored."""
        accepted: list[_Prepared] = []
        refused: list[_Refused] = []
        for message in prepared:
            rules = message.partition.rules
            reason = rules.refusal_of(message.envelope)
            try:
                sealed = message._replace(envelope=self._rule_book.seal(rules, message.envelope))
            except SkepError as error:
                refused.append(_Refused(message, reason or error.message))
                continue
            if reason is None:
                accepted.append(sealed)
            else:
                refused.append(_Refused(sealed, reason))
        return accepted, refused

    async def _admit(self, accepted: Sequence[_Prepared]) -> tuple[list[_Prepared], list[_Refused]]:
        """Turn away the messages of queues that are full."""
        counts: Counter[QueueRules] = Counter(
            message.partition.rules
            for message in accepted
            if message.partition.rules.size_limit is not None
        )
        full: set[QueueRules] = set()
        for rules, count in counts.items():
            assert rules.size_limit is not None
            verdict = await self._gate.decide(rules.queue_id, count, rules.size_limit)
            if isinstance(verdict, Full):
                full.add(rules)
        return (
            [each for each in accepted if each.partition.rules not in full],
            [
                _Refused(each, f"queue {each.partition.key[0]} is full")
                for each in accepted
                if each.partition.rules in full
            ],
        )

    async def _reject(self, refused: Sequence[_Refused]) -> bool:
        """Make dead letters, a partition at a time."""
        is_whole = True
        by_partition: dict[int, list[_Refused]] = {}
        for each in refused:
            by_partition.setdefault(each.message.partition.partition_id, []).append(each)
        for partition_id, its_refused in by_partition.items():
            its_refused.sort(key=lambda each: each.message.staged.id)
            ((count,),) = await self._caller.call(
                REJECT_CALL,
                partition_id,
                [each.message.staged.id for each in its_refused],
                [os.urandom(KEY_BYTES) for _ in its_refused],
                [each.message.envelope for each in its_refused],
                [storable_error(each.reason) for each in its_refused],
            )
            is_whole = is_whole and count is not None
            self._note_letters(its_refused[0].message.partition.key[0], count or 0)
        return is_whole

    async def _schedule(self, later: Sequence[_Prepared]) -> bool:
        """Let messages wait; of those with the same id the first, the others come again."""
        first_by_identity: dict[tuple[int, bytes], _Prepared] = {}
        for message in later:
            first_by_identity.setdefault((message.partition.partition_id, message.key), message)
        sent = sorted(first_by_identity.values(), key=lambda message: message.staged.id)
        rows = await self._caller.call(
            SCHEDULE_CALL,
            [message.staged.id for message in sent],
            [message.partition.queue_id for message in sent],
            [message.partition.key[1] for message in sent],
            [message.key for message in sent],
            [message.staged.transaction_id for message in sent],
            [message.envelope for message in sent],
            [message.staged.deliver_at for message in sent],
            self._scheduled_max,
        )
        for _, outcome, seconds in rows:
            if outcome == "scheduled":
                self._due_listener.hear_of_due(seconds)
        outcomes = Counter(row[1] for row in rows)
        if outcomes["gone"]:
            raise RulesChanged("a queue was deleted meanwhile")
        too_many = [_Refused(sent[row[0] - 1], _FULL) for row in rows if row[1] == "full"]
        settled = outcomes["scheduled"] + outcomes["duplicate"] + len(too_many)
        return await self._reject(too_many) and settled == len(later)

    async def _sequence(self, messages: Sequence[_Prepared]) -> bool:
        """Append messages to their partitions; of those with one id in a partition, the first."""
        pending, repeated = _without_twins(messages)
        while pending or repeated:
            call = _SequenceCall(pending, repeated)
            rows = await self._caller.call(SEQUENCE_CALL, *call.arguments(self._cache))
            if not rows:
                return False
            partitions_by_queue = Counter(
                partition.queue_id for partition in call.settle(rows[1:], self._cache)
            )
            for queue_id, partition_count in partitions_by_queue.items():
                self._announcer.announce(queue_id, partition_count)
            pending, repeated = call.pending, call.repeated
        return True


def _without_twins(
    messages: Sequence[_Prepared],
) -> tuple[list[_Prepared], list[_Prepared]]:
    """Return the messages that have their key first in their partition, and the others."""
    first_by_key: dict[tuple[int, bytes], _Prepared] = {}
    twins = [
        message
        for message in messages
        if first_by_key.setdefault((message.partition.partition_id, message.key), message)
        is not message
    ]
    return list(first_by_key.values()), twins


class _SequenceCall:
    """The messages of one call by partition, no key twice in a partition."""

    def __init__(self, messages: Sequence[_Prepared], repeated: Sequence[_Prepared]) -> None:
        """Take what to store, and what is only to be dropped because it repeats another."""
        by_partition: dict[Partition, list[_Prepared]] = {}
        for message in messages:
            by_partition.setdefault(message.partition, []).append(message)
        self._writes: Final = sorted(by_partition.items(), key=lambda write: write[0].partition_id)
        self._dropped: Final = repeated
        self.pending: list[_Prepared] = []
        """After the call: what has to go again."""
        self.repeated: list[_Prepared] = []
        """After the call: what turned out to be stored already."""

    def arguments(self, cache: DedupCache) -> tuple[object, ...]:
        """Return the arguments of the call, with the word of the cache for its partitions."""
        numbers: dict[int, int | None] = {message.staged.id: None for message in self._dropped}
        for number, (_, messages) in enumerate(self._writes, start=1):
            numbers.update((message.staged.id, number) for message in messages)
        ids = sorted(numbers)
        rules = {partition.rules for partition, _ in self._writes}
        keys = [b"".join([message.key for message in messages]) for _, messages in self._writes]
        words = self._guarantee(keys, cache)
        return (
            ids,
            [numbers[id_] for id_ in ids],
            [each.queue_id for each in rules],
            [each.version for each in rules],
            [partition.partition_id for partition, _ in self._writes],
            [len(messages) for _, messages in self._writes],
            [to for to, _ in words],
            [since for _, since in words],
            keys,
            [
                b"[%b]" % b",".join([message.envelope for message in messages])
                for _, messages in self._writes
            ],
        )

    def _guarantee(self, keys: Sequence[bytes], cache: DedupCache) -> list[Guarantee]:
        """Return what the cache guarantees for each partition; nothing where it sees a hit."""
        partition_ids = [partition.partition_id for partition, _ in self._writes]
        suspects = {hit.write for hit in cache.find(list(zip(partition_ids, keys, strict=True)))}
        return [
            _NO_WORD if write in suspects or word is None else word
            for write, word in enumerate(cache.guarantee_each(partition_ids))
        ]

    def settle(self, rows: Sequence[Any], cache: DedupCache) -> list[Partition]:
        """Take what became of the partitions; return those that got something."""
        woken: list[Partition] = []
        for row in rows:
            number: int = row[0]
            first, created_at, duplicates, _, gap_first, gap_keys, gap_created_at = row[2:]
            partition, messages = self._writes[number - 1]
            if gap_keys is not None:
                cache.adopt(partition.partition_id, gap_first, gap_keys, gap_created_at)
            if first is not None:
                keys = b"".join([message.key for message in messages])
                cache.record(partition.partition_id, first, keys, created_at)
                woken.append(partition)
                continue
            repeated = frozenset[int](duplicates)
            for index, message in enumerate(messages):
                (self.repeated if index in repeated else self.pending).append(message)
        return woken
