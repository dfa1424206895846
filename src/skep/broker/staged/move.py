"""Move staged messages into the log: read them, let the rules of their queues decide, store them.

A message that the queue accepts is appended to its partition, or scheduled if it has a delivery
time. One that the queue refuses becomes a dead letter with the reason, because the transaction that
staged it has committed and no client waits. Each call removes its messages from the staged ones in
the transaction that stores them, so every message arrives once, even if a process or connection
dies in between.

The key cache is separate from that of pushes, for the reason that `settlement` gives.
"""

import os
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

import xxhash

from skep.broker.ack.statuses import storable_error
from skep.broker.cluster.wakeups import Announcer
from skep.broker.directory import Partition
from skep.broker.push.rules import RuleBook
from skep.broker.push.size_limit import AdmissionGate
from skep.broker.scheduled.accept import DueListener
from skep.broker.staged.read import StagedBatch, StagedMessage, StagedReader
from skep.broker.transaction.cached_partitions import CachedPartitions
from skep.db.access.errors import RejectedData, RulesChanged
from skep.db.access.functions import Functions
from skep.engine.key_cache.cache import KEY_BYTES, KeyCache
from skep.model.envelopes import build_envelope, end_of_life, join_segments
from skep.model.errors import SkepError
from skep.telemetry.meters import NoteLetters

SEQUENCE_CALL: Final = (
    "select * from skep.sequence_staged($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
)

BATCH_MESSAGES_MAX: Final = 1_000

_FULL: Final = "too many messages of the queue wait for their time"


class Moved(NamedTuple):
    """What became of one batch of staged messages."""

    found: int
    has_more: bool
    is_whole: bool
    """Everything found was moved. If not, another process moved some, or rules changed."""


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
    """A message that its queue refuses."""

    message: _Prepared
    reason: str


@dataclass(slots=True, eq=False, kw_only=True)
class StagedMover:
    """Moves staged messages, a batch at a time."""

    sql: Functions
    partitions: CachedPartitions
    """With a cache and a listener that are the mover's own."""
    rule_book: RuleBook
    gate: AdmissionGate
    announcer: Announcer
    due_listener: DueListener
    hash_seed: int
    scheduled_max: int
    note_letters: NoteLetters
    _reader: StagedReader = field(init=False)
    _batch_messages: int = BATCH_MESSAGES_MAX

    def __post_init__(self) -> None:
        self._reader = StagedReader(self.sql)

    def start_over(self) -> None:
        """Read everything that is staged again."""
        self._reader.start_over()

    async def move(self) -> Moved:
        """Move what was staged since the last time, up to a batch.

        Raises:
            SkepError: It could not be done; nothing is lost, and it may be tried again.
        """
        batch = await self._reader.read(self._batch_messages)
        if not batch.messages:
            self._reader.advance(batch)
            return Moved(0, has_more=False, is_whole=True)
        partitions = await self.partitions.find(
            {message.partition_key for message in batch.messages}
        )
        try:
            is_whole = await self._move(batch, partitions)
        except RulesChanged:
            await self._forget(partitions.values())
            is_whole = False
        except RejectedData as error:
            is_whole = await self._isolate(batch, partitions, error)
        else:
            self._batch_messages = min(BATCH_MESSAGES_MAX, self._batch_messages * 2)
        if is_whole:
            self._reader.advance(batch)
        return Moved(len(batch.messages), has_more=batch.is_cut, is_whole=is_whole)

    async def _forget(self, partitions: Collection[Partition]) -> None:
        """Forget partitions of queues that were configured or deleted."""
        for partition in partitions:
            self.partitions.forget(partition)
        await self.rule_book.read(partition.queue_id for partition in partitions)

    async def _isolate(
        self, batch: StagedBatch, partitions: dict[tuple[str, str], Partition], error: SkepError
    ) -> bool:
        """The database refused a value: find the guilty message, and let it go alone."""
        if len(batch.messages) > 1:
            self._batch_messages = len(batch.messages) // 2
            return False
        prepared = self._prepare(batch.messages[0], partitions, batch.read_at)
        return await self._reject([_Refused(prepared, error.message)])

    async def _move(self, batch: StagedBatch, partitions: dict[tuple[str, str], Partition]) -> bool:
        """Store the messages of a batch; return whether all of them are."""
        prepared = [self._prepare(each, partitions, batch.read_at) for each in batch.messages]
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
        key = xxhash.xxh3_128_digest(staged.transaction_id.encode(), self.hash_seed)
        return _Prepared(staged, partitions[staged.partition_key], key, envelope)

    def _judge(self, prepared: Sequence[_Prepared]) -> tuple[list[_Prepared], list[_Refused]]:
        """Let the rules decide, and encrypt what is to be stored."""
        accepted: list[_Prepared] = []
        refused: list[_Refused] = []
        for message in prepared:
            rules = message.partition.rules
            reason = rules.refusal_of(message.envelope)
            try:
                sealed = message._replace(envelope=self.rule_book.seal(rules, message.envelope))
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
        counts = Counter(message.partition.rules for message in accepted)
        full = {
            rules
            for rules, count in counts.items()
            if (limit := rules.size_limit) is not None
            and not await self.gate.decide(rules.queue_id, count, limit)
        }
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
            count = await self.sql.value(
                "reject_staged",
                partition_id,
                [each.message.staged.id for each in its_refused],
                [os.urandom(KEY_BYTES) for _ in its_refused],
                [each.message.envelope for each in its_refused],
                [storable_error(each.reason) for each in its_refused],
            )
            is_whole = is_whole and count is not None
            self.note_letters(its_refused[0].message.partition.key[0], count or 0)
        return is_whole

    async def _schedule(self, later: Sequence[_Prepared]) -> bool:
        """Let messages wait for their time."""
        sent = sorted(later, key=lambda message: message.staged.id)
        rows = await self.sql.rows(
            "schedule_claimed",
            [message.staged.id for message in sent],
            [message.partition.queue_id for message in sent],
            [message.partition.key[1] for message in sent],
            [message.key for message in sent],
            [message.staged.transaction_id for message in sent],
            [message.envelope for message in sent],
            [message.staged.deliver_at for message in sent],
            self.scheduled_max,
        )
        for row in rows:
            if row["outcome"] == "scheduled":
                self.due_listener.hear_of_due(row["seconds"])
        outcomes = Counter(row["outcome"] for row in rows)
        if outcomes["gone"]:
            raise RulesChanged("a queue was deleted meanwhile")
        too_many = [
            _Refused(sent[row["item"] - 1], _FULL) for row in rows if row["outcome"] == "full"
        ]
        settled = outcomes["scheduled"] + outcomes["duplicate"] + len(too_many)
        return await self._reject(too_many) and settled == len(sent)

    async def _sequence(self, messages: Sequence[_Prepared]) -> bool:
        """Append messages to their partitions; of those that are duplicates, the first."""
        pending, repeated = _without_twins(messages)
        while pending or repeated:
            call = _SequenceCall(pending, repeated)
            rows = await self.sql.call(SEQUENCE_CALL, *call.arguments(self.partitions))
            if not rows:
                return False
            partitions_by_queue = Counter(
                partition.queue_id for partition in call.settle(rows[1:], self.partitions.cache)
            )
            for queue_id, partition_count in partitions_by_queue.items():
                self.announcer.announce(queue_id, partition_count)
            pending, repeated = call.pending, call.repeated
        return True


def _without_twins(
    messages: Sequence[_Prepared],
) -> tuple[list[_Prepared], list[_Prepared]]:
    """Return the messages that have their key first in their partition, and the others.

    In a queue that does not look for duplicates there are no others.
    """
    kept: list[_Prepared] = []
    twins: list[_Prepared] = []
    seen: set[tuple[int, bytes]] = set()
    for message in messages:
        key = message.partition.partition_id, message.key
        (twins if key in seen else kept).append(message)
        if message.partition.rules.dedup_window_s:
            seen.add(key)
    return kept, twins


class _SequenceCall:
    """The messages of one call by partition."""

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

    def arguments(self, partitions: CachedPartitions) -> tuple[object, ...]:
        """Return the arguments of the call, with what the cache guarantees for its partitions."""
        numbers: dict[int, int | None] = {message.staged.id: None for message in self._dropped}
        for number, (_, messages) in enumerate(self._writes, start=1):
            numbers.update((message.staged.id, number) for message in messages)
        ids = sorted(numbers)
        rules = {partition.rules for partition, _ in self._writes}
        keys = [b"".join([message.key for message in messages]) for _, messages in self._writes]
        partition_ids = [partition.partition_id for partition, _ in self._writes]
        guaranteed = partitions.guarantee(list(zip(partition_ids, keys, strict=True)))
        return (
            ids,
            [numbers[id_] for id_ in ids],
            [each.queue_id for each in rules],
            [each.version for each in rules],
            partition_ids,
            [len(messages) for _, messages in self._writes],
            [to for to, _ in guaranteed],
            [since for _, since in guaranteed],
            keys,
            *join_segments(
                [[message.envelope for message in messages] for _, messages in self._writes]
            ),
        )

    def settle(self, rows: Sequence[Any], cache: KeyCache) -> list[Partition]:
        """Take what became of the partitions; return those that got something."""
        woken: list[Partition] = []
        for row in rows:
            number: int = row["partition"]
            partition, messages = self._writes[number - 1]
            partition_id = partition.partition_id
            if row["gap_keys"] is not None:
                cache.adopt(partition_id, row["gap_first"], row["gap_keys"], row["gap_created_at"])
            if row["first"] is not None:
                keys = b"".join([message.key for message in messages])
                cache.record(partition_id, row["first"], keys, row["created_at"])
                woken.append(partition)
                continue
            repeated = frozenset[int](row["duplicate_index"])
            for index, message in enumerate(messages):
                (self.repeated if index in repeated else self.pending).append(message)
        return woken
