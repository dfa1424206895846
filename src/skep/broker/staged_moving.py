"""Move staged messages into the log: read them, let the rules of their queues decide, store them.

Each message leaves in one of three calls. Those that the queue takes are appended to their lanes;
those for later wait for their time; those that the queue refuses become dead letters with the
reason, because the transaction that staged them has committed and nobody is left to be told. Every
call takes its messages off the staged ones in the transaction that stores them, so a message
arrives once, whichever process or connection dies in between.

The duplicate cache is one of its own, for the reason that `settlement` gives.
"""

import os
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import xxhash

from skep.broker.ack_words import storable_error
from skep.broker.admission import AdmissionGate, Full
from skep.broker.directory import Directory, Lane, LaneListener, LaneProvisioner
from skep.broker.rules import QueueRules, RuleBook
from skep.broker.scheduling import DueListener
from skep.broker.staged_reading import Portion, StagedMessage, StagedReader
from skep.broker.wakeups import Announcer
from skep.db.errors import RejectedData, RulesChanged
from skep.db.slots import Caller
from skep.engine.dedup import KEY_BYTES, DedupCache
from skep.model.envelopes import build_envelope, end_of_life
from skep.model.errors import SkepError

SEQUENCE_CALL: Final = "select * from skep.sequence_staged($1, $2, $3, $4, $5, $6, $7, $8, $9)"
SCHEDULE_CALL: Final = "select * from skep.schedule_staged($1, $2, $3, $4, $5, $6, $7, $8)"
REJECT_CALL: Final = "select skep.reject_staged($1, $2, $3, $4, $5)"

PORTION_MESSAGES: Final = 1_000

_NO_WORD: Final = (0, datetime.max.replace(tzinfo=UTC))
"""What a broker vouches for that vouches for nothing."""

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
    lane: Lane
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
        provisioner: LaneProvisioner,
        listener: LaneListener,
        rule_book: RuleBook,
        gate: AdmissionGate,
        cache: DedupCache,
        announcer: Announcer,
        due_listener: DueListener,
        hash_seed: int,
        scheduled_max: int,
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
        lanes = await self._find_lanes(portion.messages)
        try:
            is_whole = await self._move(portion, lanes)
        except RulesChanged:
            await self._learn_anew(lanes.values())
            is_whole = False
        except RejectedData as error:
            is_whole = await self._isolate(portion, lanes, error)
        else:
            self._portion_messages = min(PORTION_MESSAGES, self._portion_messages * 2)
        if is_whole:
            self._reader.pass_over(portion)
        return Moved(len(portion.messages), has_more=portion.is_cut, is_whole=is_whole)

    async def _find_lanes(self, messages: Sequence[StagedMessage]) -> dict[tuple[str, str], Lane]:
        keys = {message.lane_key for message in messages}
        await self._provisioner.provide(keys)
        lanes = {key: self._directory.lanes[key] for key in keys}
        strange = [lane for lane in lanes.values() if not self._cache.vouch(lane.partition_id)]
        if strange:
            await self._listener.prepare((), strange)
        return lanes

    async def _learn_anew(self, lanes: Collection[Lane]) -> None:
        """A queue was configured or deleted: forget what was known of it."""
        for lane in lanes:
            self._directory.forget_lane(lane)
            self._cache.forget(lane.partition_id)
        await self._rule_book.read(lane.queue_id for lane in lanes)

    async def _isolate(
        self, portion: Portion, lanes: dict[tuple[str, str], Lane], error: SkepError
    ) -> bool:
        """The database refused a value: find the guilty message, and let it go alone."""
        if len(portion.messages) > 1:
            self._portion_messages = len(portion.messages) // 2
            return False
        prepared = self._prepare(portion.messages[0], lanes, portion.read_at)
        return await self._reject([_Refused(prepared, error.message)])

    async def _move(self, portion: Portion, lanes: dict[tuple[str, str], Lane]) -> bool:
        """Store the messages of a portion; return whether all of them are."""
        prepared = [self._prepare(each, lanes, portion.read_at) for each in portion.messages]
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
        self, staged: StagedMessage, lanes: dict[tuple[str, str], Lane], read_at: datetime
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
        return _Prepared(staged, lanes[staged.lane_key], key, envelope)

    def _judge(self, prepared: Sequence[_Prepared]) -> tuple[list[_Prepared], list[_Refused]]:
        """Let the rules decide, and encrypt what is to be stored."""
        accepted: list[_Prepared] = []
        refused: list[_Refused] = []
        for message in prepared:
            rules = message.lane.rules
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
            message.lane.rules for message in accepted if message.lane.rules.size_limit is not None
        )
        full: set[QueueRules] = set()
        for rules, count in counts.items():
            assert rules.size_limit is not None
            verdict = await self._gate.decide(rules.queue_id, count, rules.size_limit)
            if isinstance(verdict, Full):
                full.add(rules)
        return (
            [each for each in accepted if each.lane.rules not in full],
            [
                _Refused(each, f"queue {each.lane.key[0]} is full")
                for each in accepted
                if each.lane.rules in full
            ],
        )

    async def _reject(self, refused: Sequence[_Refused]) -> bool:
        """Make dead letters, a lane at a time."""
        is_whole = True
        by_lane: dict[int, list[_Refused]] = {}
        for each in refused:
            by_lane.setdefault(each.message.lane.partition_id, []).append(each)
        for partition_id, its_refused in by_lane.items():
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
        return is_whole

    async def _schedule(self, later: Sequence[_Prepared]) -> bool:
        """Let messages wait; of those with the same id the first, the others come again."""
        first_by_identity: dict[tuple[int, bytes], _Prepared] = {}
        for message in later:
            first_by_identity.setdefault((message.lane.partition_id, message.key), message)
        sent = sorted(first_by_identity.values(), key=lambda message: message.staged.id)
        rows = await self._caller.call(
            SCHEDULE_CALL,
            [message.staged.id for message in sent],
            [message.lane.queue_id for message in sent],
            [message.lane.key[1] for message in sent],
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
        """Append messages to their lanes; of those with the same id in a lane the first."""
        call = _SequenceCall(messages)
        rows = await self._caller.call(
            SEQUENCE_CALL,
            sorted(message.staged.id for message in messages),
            [rules.queue_id for rules in call.rules],
            [rules.version for rules in call.rules],
            [lane.partition_id for lane in call.lanes],
            *call.vouch(self._cache),
            [lane_number for lane_number, _ in call.sent],
            [message.key for _, message in call.sent],
            [message.envelope for _, message in call.sent],
        )
        lanes_by_queue = Counter(lane.queue_id for lane in call.settle(rows, self._cache))
        for queue_id, lane_count in lanes_by_queue.items():
            self._announcer.announce(queue_id, lane_count)
        return bool(rows)


class _SequenceCall:
    """The messages of one call by lane, each key once."""

    def __init__(self, messages: Sequence[_Prepared]) -> None:
        self.lanes: Final = sorted(
            {message.lane for message in messages}, key=lambda lane: lane.partition_id
        )
        self.rules: Final = list({message.lane.rules for message in messages})
        number_by_lane = {lane: number for number, lane in enumerate(self.lanes, start=1)}
        first_by_key: dict[tuple[int, bytes], _Prepared] = {}
        for message in messages:
            first_by_key.setdefault((number_by_lane[message.lane], message.key), message)
        self.sent: Final = [(number, message) for (number, _), message in first_by_key.items()]
        """(number of the lane from 1, message)."""

    def vouch(self, cache: DedupCache) -> tuple[list[int], list[datetime]]:
        """Give the cache's word for each lane; none for a lane in which it suspects a duplicate."""
        keys: list[list[bytes]] = [[] for _ in self.lanes]
        for number, message in self.sent:
            keys[number - 1].append(message.key)
        lots = [
            (lane.partition_id, b"".join(its_keys))
            for lane, its_keys in zip(self.lanes, keys, strict=True)
        ]
        suspects = {hit.lot for hit in cache.find(lots)}
        words = [
            _NO_WORD if lot in suspects else cache.vouch(lane.partition_id) or _NO_WORD
            for lot, lane in enumerate(self.lanes)
        ]
        return [to for to, _ in words], [since for _, since in words]

    def settle(self, rows: Sequence[Any], cache: DedupCache) -> list[Lane]:
        """Let the cache learn what is stored now; return the lanes that got something."""
        woken: list[Lane] = []
        for row in rows:
            number: int = row[0]
            stored: Sequence[int] | None = row[1]
            first, created_at, _, _, gap_first, gap_keys, gap_at = row[2:]
            lane = self.lanes[number - 1]
            if gap_keys is not None:
                cache.adopt(lane.partition_id, gap_first, gap_keys, gap_at)
            if stored:
                keys = b"".join([self.sent[item - 1][1].key for item in stored])
                cache.record(lane.partition_id, first, keys, created_at)
                woken.append(lane)
        return woken
