"""What the message plane promises, as a model that keeps every message in a dictionary.

It knows nothing of ranges, marks or indexes: a group has a set of finished offsets in a partition,
and gets what is not in it. Where a promise leaves the database a choice (which of two partitions
that wait a poll gets, when a message that is too old is passed over) the model says what is
allowed, and follows what happened.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import inf
from typing import NamedTuple
from uuid import UUID

from tests.sql.support.log import MICROSECOND, QUEUE_MODE, Ack

SEVEREST_FIRST = ("dlq", "failed", "retry", "completed", "expired")


@dataclass
class Options:
    """The options of a queue that matter for what its groups get."""

    lease_time_s: int = 60
    retry_limit: int = 1
    retry_delay_ms: int = 5000
    retry_delay_ms_max: int = 8000
    ttl_s: int = 0
    max_deliveries: int = 0
    ack_mode: str = "cumulative"
    delayed_processing_s: int = 0
    window_buffer_s: int = 0
    dedup_window_s: int = 3600
    retention_enabled: bool = True
    retention_s: int = 0
    completed_retention_s: int = 0
    max_wait_time_s: int = 0

    def pause_after(self, failures: int) -> timedelta:
        """Return how long a message rests that failed so often."""
        grown = min(self.retry_delay_ms * 2 ** (failures - 1), self.retry_delay_ms_max)
        return timedelta(milliseconds=max(self.retry_delay_ms, grown))

    def too_old_from(self, kind: str, now: datetime) -> datetime | None:
        """Return the moment before which retention of this kind takes what was stored."""
        limits = [self.completed_retention_s if self.retention_enabled else 0]
        if kind == "retention":
            limits = [self.retention_s if self.retention_enabled else 0, self.ttl_s]
        limits = [seconds for seconds in limits if seconds]
        return now - timedelta(seconds=min(limits)) if limits else None


@dataclass
class Message:
    name: str
    created_at: datetime


class Segment(NamedTuple):
    offsets: range
    created_at: datetime
    number: int
    """How many segments of the queue had been written with it."""


@dataclass
class Partition:
    """A partition and what it keeps."""

    id: int
    touched_at: datetime
    """When it was pushed to or created."""
    head: int = 0
    segments: list[Segment] = field(default_factory=list[Segment])
    messages: dict[int, Message] = field(default_factory=dict[int, Message])
    deleted: set[int] = field(default_factory=set[int])

    @property
    def tail(self) -> int:
        return self.segments[0].offsets[0] if self.segments else self.head + 1

    def append(self, names: Sequence[str], now: datetime, number: int) -> None:
        """Store a segment."""
        offsets = range(self.head + 1, self.head + 1 + len(names))
        self.segments.append(Segment(offsets, now, number))
        named = zip(offsets, names, strict=True)
        self.messages |= {at: Message(name, now) for at, name in named}
        self.head, self.touched_at = offsets[-1], now

    def drop(self, segments: int) -> int:
        """Forget so many of the oldest segments; return the last offset of them."""
        gone = [at for segment in self.segments[:segments] for at in segment.offsets]
        del self.segments[:segments]
        self.deleted.difference_update(gone)
        for at in gone:
            del self.messages[at]
        return gone[-1]

    def like(self, name: str, since: datetime) -> int | None:
        """Return the newest place where a message of this name was stored after a moment."""
        places = [
            at
            for at, kept in self.messages.items()
            if kept.name == name and kept.created_at > since
        ]
        return max(places, default=None)

    def last_before(self, moment: datetime) -> int:
        """Return the last offset stored before a moment, or the one before the tail."""
        old = [at for at, kept in self.messages.items() if kept.created_at < moment]
        return max(old, default=self.tail - 1)

    def segment_of(self, at: int) -> Segment:
        return next(segment for segment in self.segments if at in segment.offsets)


@dataclass
class Offer:
    """What a poll finds in a partition."""

    passed: list[int]
    """Messages that it may pass over because they are too old for the group."""
    worn_out: int | None
    """A message that was delivered too often without an answer, and dies when a poll comes by."""
    offsets: list[int]
    """What it may take, in order."""


@dataclass
class Reader:
    """A group in a partition."""

    partition: Partition
    finished: set[int]
    """Offsets that need no delivery: done, dead, deleted, passed over, or never wanted."""
    free_at: datetime
    """From then on at the latest the partition can be served; under lease the lease ends then."""
    lease_id: UUID | None = None
    leased: int | None = None
    claimed_from: int | None = None
    """The position before the last claim, which can be given back until somebody acks."""
    deliveries: Counter[int] = field(default_factory=Counter[int])
    """Of the messages that may come again."""
    unanswered: int = 0
    failures: dict[int, int] = field(default_factory=dict[int, int])
    failed_before: dict[int, int] = field(default_factory=dict[int, int])
    """The failures before messages were finished on delivery, which may be undone."""
    rests_until: dict[int, datetime] = field(default_factory=dict[int, datetime])
    """When messages that failed may come again."""
    starts_at: datetime | None = None
    """A start that lay ahead: what was pushed before is not wanted."""
    nacked: set[int] = field(default_factory=set[int])
    """Messages under the lease whose consumer wants them again, where acks are individual."""
    retry_at: datetime | None = None

    @property
    def position(self) -> int:
        """The last offset up to which everything is finished."""
        at = 0
        while at + 1 in self.finished:
            at += 1
        return at

    @property
    def unread(self) -> list[int]:
        return [at for at in self.partition.messages if at not in self.finished]

    def is_held(self, now: datetime) -> bool:
        return self.leased is not None and self.free_at > now

    def is_resting(self, now: datetime) -> bool:
        """Tell whether a message that failed keeps the partition waiting."""
        return any(self.rests_until.get(at, now) > now for at in self.unread)

    def offer(
        self, options: Options, since: datetime | None, now: datetime, *, is_conflated: bool
    ) -> Offer:
        """Return what a poll would find, if the partition were visited now."""
        created = {at: self.partition.messages[at].created_at for at in self.unread}
        passed = [at for at, moment in created.items() if since and moment < since]
        left = [at for at in created if at not in passed]
        worn_out = None
        is_first = not passed and self.position >= self.partition.tail - 1
        is_worn_out = 0 < options.max_deliveries <= self.unanswered and not is_conflated
        if left and is_first and is_worn_out:
            worn_out = left.pop(0)
        if options.window_buffer_s and self.partition.segments:
            opens_at = self.partition.segments[-1].created_at + _seconds(options.window_buffer_s)
            left = left if opens_at <= now else []
        ripe_from = now - _seconds(options.delayed_processing_s)
        ripe = [at for at in left if created[at] <= ripe_from]
        return Offer(passed, worn_out, ripe[-1:] if is_conflated else ripe)

    def catch_up(self) -> None:
        """Notice, as a poll does, that the oldest messages were dropped to make room."""
        if self.position < self.partition.tail - 1:
            self.finished.update(range(1, self.partition.tail))
            self.unanswered = 0
            self.claimed_from = None
            self._tidy()

    def pass_over(self, offsets: Iterable[int]) -> None:
        """Finish messages in front that the group will not get."""
        before = self.position
        self.finished.update(offsets)
        if self.position > before:
            self.unanswered = 0
        self._tidy()

    def take(
        self,
        offsets: list[int],
        lease_id: UUID,
        ends_at: datetime | None,
        now: datetime,
        *,
        is_conflated: bool = False,
    ) -> list[tuple[int, int]]:
        """Deliver messages, for good without an end; return their deliveries and failures.

        A message that is conflated stands for all before it.
        """
        counted = [(self.deliveries[at] + 1, self.failures.get(at, 0)) for at in offsets]
        self.lease_id, self.nacked, self.retry_at = lease_id, set(), None
        self.claimed_from = self.position
        if ends_at is None:
            self.finished.update(range(1, offsets[-1] + 1) if is_conflated else offsets)
            self.leased, self.unanswered = None, 0
            self.failed_before = dict(self.failures)
            self.free_at = now + MICROSECOND
        else:
            upto = offsets[-1]
            while upto + 1 in self.finished and not is_conflated:
                upto += 1
            if is_conflated:
                self._forget_deliveries(before=upto)
            self.deliveries.update(offsets if is_conflated else range(self.position + 1, upto + 1))
            self.leased, self.free_at = upto, ends_at
            self.unanswered += 1
        self._tidy()
        return counted

    def name_messages(self, acks: Sequence[Ack]) -> None:
        """Say which messages the acks mean that only name a transaction id."""
        explicit = {ack.offset for ack in acks if ack.offset is not None}
        by_name: dict[str, list[Ack]] = {}
        for ack in acks:
            if ack.offset is None:
                by_name.setdefault(ack.transaction_id, []).append(ack)
        for name, its_acks in by_name.items():
            self._name(name, sorted(its_acks, key=_severity), explicit)

    def _name(self, name: str, acks: Sequence[Ack], explicit: set[int]) -> None:
        position, delivered = self.position, max(self.deliveries, default=0)
        places = [at for at, kept in self.partition.messages.items() if kept.name == name]
        ahead = [at for at in places if position < at <= (self.leased or delivered)]
        if self.leased is None and not ahead and not any(at <= position for at in places):
            ahead = [at for at in places if at <= position + 10_000]
        closed = self.finished | self.nacked | explicit
        unanswered = sorted(set(ahead) - closed, reverse=self.leased is not None)
        meant = sorted(unanswered[: len(acks)])
        known = max(ahead or [at for at in places if at <= position], default=None)
        is_mixed = len({ack.status for ack in acks}) > 1
        for rank, ack in enumerate(acks):
            ack.offset = meant[min(rank, len(meant) - 1)] if meant else known
            ack.is_doubtful = len(unanswered) > 1 and is_mixed
            ack.is_alone = ack.is_doubtful or 1 < len(unanswered) > len(acks)

    def ack(
        self, acks: Sequence[Ack], options: Options, now: datetime
    ) -> tuple[list[str], list[int]]:
        """Apply the acks of one call; return their outcomes in order, and who died."""
        call = AckCall(self, options, now)
        before, outcomes = self.position, dict[int, str]()
        for number, ack in sorted(enumerate(acks), key=_by_offset_and_severity):
            outcomes[number] = call.hear(ack)
        self.finished.update(range(1, call.reached + 1))
        if self.finished != call.were_finished or call.nacked:
            self._move_on(before, call.nacked, now + call.pause, call.is_stopped, now)
        return [outcomes[number] for number in range(len(acks))], call.dead

    def _move_on(
        self, before: int, nacked: list[int], retry_at: datetime, is_stopped: bool, now: datetime
    ) -> None:
        """End the lease when all under it is answered, or a failure stopped a cumulative ack."""
        position, leased = self.position, self.leased
        if position > before:
            self.unanswered = 1 if leased and position < leased else 0
        if position + 1 in nacked:
            self.unanswered = 0
        if nacked:
            self.nacked.update(nacked)
            self.retry_at = max(self.retry_at or retry_at, retry_at)
        answered = self.finished | self.nacked
        is_over = leased is None or answered.issuperset(range(position + 1, leased + 1))
        has_expired = bool(self.nacked) and self.free_at <= now
        if not (is_stopped or is_over or has_expired):
            self.free_at = max(self.free_at, self.retry_at or self.free_at)
        else:
            self.leased = None
            self.free_at = max(
                [now, self.retry_at or now, *(self.rests_until.get(at, now) for at in self.unread)]
            )
            self.nacked, self.retry_at = set(), None
        self.claimed_from = None
        self._tidy()

    def lose(self, offsets: Iterable[int], now: datetime) -> None:
        """Let messages be finished from outside: deleted, given up, or taken by retention."""
        before = self.position
        self.finished.update(offsets)
        position = self.position
        if position > before:
            is_left = self.leased is not None and position < self.leased
            self.unanswered = int(is_left)
            if self.leased is not None:
                self.claimed_from = None
                if not is_left:
                    self.leased, self.nacked, self.retry_at, self.free_at = None, set(), None, now
        self._tidy()

    def give_back(self, lease_id: UUID, now: datetime) -> bool:
        """Undo the last claim, as if the messages had never left.

        What was finished at once comes again with all that was finished behind it since, rather
        twice than never.
        """
        if lease_id != self.lease_id or (self.leased is None and self.claimed_from is None):
            return False
        if self.leased is None and self.claimed_from is not None:
            again = range(self.claimed_from + 1, self.position + 1)
            self.finished.difference_update(set(again) - self.partition.deleted)
            self.failures = dict(self.failed_before)
        elif self.leased is not None:
            self.deliveries -= Counter(range(self.position + 1, self.leased + 1))
        self.leased, self.lease_id, self.free_at = None, None, max(now, self.retry_at or now)
        self.nacked, self.retry_at = set(), None
        self.unanswered = max(self.unanswered - 1, 0)
        return True

    def end_lease(self, ready_at: datetime) -> None:
        """Let what is left of a lease come again, though not before a pause is over."""
        self.leased, self.free_at = None, max(ready_at, self.retry_at or ready_at)
        self.nacked, self.retry_at, self.claimed_from = set(), None, None

    def go_to(self, target: int, now: datetime, starts_at: datetime | None = None) -> None:
        """Start afresh behind an offset."""
        target = max(self.partition.tail - 1, min(self.partition.head, target))
        finished = {*range(1, target + 1), *self.partition.deleted}
        fresh = Reader(self.partition, finished, now, starts_at=starts_at)
        vars(self).update(vars(fresh))

    def _forget_deliveries(self, before: int) -> None:
        """Forget how often messages were delivered for which another stands from now on."""
        for at in [at for at in self.deliveries if at < before]:
            del self.deliveries[at]

    def _tidy(self) -> None:
        """Forget failures of what is finished."""
        for record in (self.failures, self.rests_until):
            for at in self.finished.intersection(record):
                del record[at]


class AckCall:
    """The acks of one call, heard in the order of their messages, the severest of each first."""

    def __init__(self, reader: Reader, options: Options, now: datetime) -> None:
        self._reader, self._options, self._now = reader, options, now
        self._is_individual = options.ack_mode == "individual"
        self._is_held, self._were_nacked = reader.is_held(now), set(reader.nacked)
        self._decided: dict[int, str] = {}
        self.were_finished = set(reader.finished)
        self.reached = reader.position
        """Everything up to here is finished by what was heard so far."""
        self.nacked: list[int] = []
        self.dead: list[int] = []
        self.pause = timedelta()

    @property
    def is_stopped(self) -> bool:
        """Whether a failure keeps completed messages behind it from completing all before them."""
        return bool(self.nacked) and not self._is_individual

    def hear(self, ack: Ack) -> str:
        """Apply an ack and return its outcome."""
        if ack.offset is None:
            return "not_found"
        outcome = self._refusal(ack, ack.offset) or self._decide(ack, ack.offset)
        self._decided.setdefault(ack.offset, outcome)
        return outcome

    def _refusal(self, ack: Ack, at: int) -> str | None:
        """Return why an ack changes nothing, if it does not."""
        is_harmless = ack.status in ("completed", "expired")
        is_mine = ack.lease_id is None or (self._is_held and ack.lease_id == self._reader.lease_id)
        is_covered = ack.lease_id is None or at <= (self._reader.leased or 0)
        speaks_for_more = (
            ack.status == "completed" and is_mine and is_covered and at > self.reached
        ) and not (self._is_individual or ack.is_alone or self.is_stopped)
        if at in self.were_finished and not speaks_for_more:
            return "noop" if is_harmless else "already_done"
        if not is_mine:
            return "lease_lost"
        if not is_covered:
            return "beyond_lease"
        if at <= self.reached or self._decided.get(at) in ("acked", "dead_lettered"):
            return "acked" if is_harmless else "already_done"
        if ack.status != "expired" and (self.is_stopped or self._decided.get(at) == "retried"):
            return "redelivered" if ack.status == "completed" else "retried"
        return None

    def _decide(self, ack: Ack, at: int) -> str:
        """Do what an ack asks for."""
        if ack.status == "expired":
            self._reader.finished.add(at)
            return "expired"
        if ack.status == "retry" or (ack.status == "failed" and at in self._were_nacked):
            self.nacked.append(at)
            return "retried"
        if ack.status == "completed" and ack.is_doubtful:
            self.nacked.append(at)
            return "redelivered"
        failures = self._reader.failures.get(at, 0) + 1
        if ack.status == "failed" and failures <= self._options.retry_limit:
            self._fail(at, failures)
            return "retried"
        if ack.status != "completed":
            self.dead.append(at)
        self._reader.finished.add(at)
        self.reached = self.reached if self._is_individual or ack.is_alone else at
        return "acked" if ack.status == "completed" else "dead_lettered"

    def _fail(self, at: int, failures: int) -> None:
        pause = self._options.pause_after(failures)
        self.nacked.append(at)
        self._reader.failures[at] = failures
        self._reader.rests_until[at] = self._now + pause
        self.pause = max(self.pause, pause)


def _by_offset_and_severity(pair: tuple[int, Ack]) -> tuple[int, int]:
    return pair[1].offset or 0, _severity(pair[1])


def _severity(ack: Ack) -> int:
    return SEVEREST_FIRST.index(ack.status)


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


@dataclass
class Group:
    """A consumer group and where it starts."""

    id: int
    name: str
    mode: str
    start: datetime | None
    created_at: datetime
    first_polled_at: datetime | None
    is_paused: bool = False
    conflation: bool | None = None
    """Whether it gets only the newest message of a partition; None while that is undecided."""

    def change_start(self, moment: datetime) -> None:
        """Start at another time, when it starts again or in partitions to come."""
        self.mode, self.start = "timestamp", moment

    def start_ahead(self, now: datetime) -> datetime | None:
        """Return when it starts, if that lies ahead."""
        return self.start if self.start and self.start > now else None

    def first_target(self, partition: Partition) -> int:
        """Return the last offset it does not want, when it starts in this partition."""
        if self.mode == "all":
            return partition.tail - 1
        return partition.last_before(self.start or self.created_at)


class Waiting(NamedTuple):
    """A message for later."""

    deliver_at: datetime
    id: int
    partition: str
    name: str
    had_window: bool
    """Whether the queue looked for duplicates when it came."""


class Hold(NamedTuple):
    """What a reader outside keeps from being deleted."""

    number: int
    """It has seen the segments up to this one."""
    lapses_at: datetime


@dataclass
class Plane:
    """One queue with all that belongs to it."""

    options: Options = field(default_factory=Options)
    is_paused: bool = False
    partitions: dict[str, Partition] = field(default_factory=dict[str, Partition])
    groups: dict[str, Group] = field(default_factory=dict[str, Group])
    readers: dict[tuple[str, str], Reader] = field(default_factory=dict[tuple[str, str], Reader])
    letters: set[tuple[str, str, int]] = field(default_factory=set[tuple[str, str, int]])
    """Dead letters: group, partition, offset."""
    waiting: list[Waiting] = field(default_factory=list[Waiting])
    holds: dict[str, Hold] = field(default_factory=dict[str, Hold])
    segments_written: int = 0

    def of_group(self, group: str) -> dict[str, Reader]:
        return {
            partition: reader for (partition, name), reader in self.readers.items() if name == group
        }

    def of_partition(self, partition: str) -> dict[str, Reader]:
        return {
            group: reader for (name, group), reader in self.readers.items() if name == partition
        }

    def by_id(self, partitions: Iterable[str]) -> list[str]:
        """Return names of partitions in the order in which one call writes to them."""
        return sorted(partitions, key=lambda name: self.partitions[name].id)

    def add_partition(self, partition: str, id_: int, now: datetime) -> None:
        self.partitions[partition] = state = Partition(id_, now)
        for name, group in self.groups.items():
            starts_at = group.start_ahead(now)
            self.readers[partition, name] = Reader(state, set(), now, starts_at=starts_at)

    def subscribe(self, group: Group, now: datetime) -> None:
        """Give a new group its place in every state."""
        self.groups[group.name] = group
        for partition, state in self.partitions.items():
            target = state.head if group.mode == "new" else group.first_target(state)
            finished = {*range(1, target + 1), *state.deleted}
            reader = Reader(state, finished, now, starts_at=group.start_ahead(now))
            self.readers[partition, group.name] = reader

    def forget_group(self, group: str) -> None:
        del self.groups[group]
        for partition in self.partitions:
            del self.readers[partition, group]
        self.letters = {letter for letter in self.letters if letter[0] != group}

    def oldest_wanted(self, partition: str, group: str, now: datetime) -> datetime | None:
        """Return the moment before which messages of a partition are too old for the group."""
        known, moments = self.groups[group], list[datetime]()
        if self.options.ttl_s:
            moments.append(now - _seconds(self.options.ttl_s))
        starts_at = self.readers[partition, group].starts_at
        if starts_at and known.start and known.start > known.created_at:
            moments.append(starts_at)
        return max(moments, default=None)

    def offer(self, partition: str, group: str, now: datetime) -> Offer:
        """Return what a poll of the group finds in a partition that is free."""
        since, reader = self.oldest_wanted(partition, group, now), self.readers[partition, group]
        return reader.offer(self.options, since, now, is_conflated=self.is_conflated(group))

    def is_conflated(self, group: str) -> bool:
        return bool(self.groups[group].conflation)

    def can_be_served(self, partition: str, group: str, now: datetime) -> bool:
        """Tell whether a poll may look into the partition at all."""
        reader = self.readers[partition, group]
        is_paused = self.is_paused or self.groups[group].is_paused
        return not (is_paused or reader.is_held(now) or reader.is_resting(now))

    def duplicates(self, partition: str, names: Sequence[str], now: datetime) -> dict[int, int]:
        """Return which of the names are stored already, by index, and where."""
        window = self.options.dedup_window_s
        if not window or partition not in self.partitions:
            return {}
        since = now - _seconds(window)
        found = {i: self.partitions[partition].like(name, since) for i, name in enumerate(names)}
        return {index: at for index, at in found.items() if at is not None}

    def push(self, partition: str, names: Sequence[str], now: datetime) -> None:
        """Store messages; groups that had read all are ready again.

        A group whose unread messages were dropped never ceased to be ready: it keeps its place.
        """
        state = self.partitions[partition]
        for reader in self.of_partition(partition).values():
            if reader.position >= state.head and reader.leased is None:
                reader.free_at = now
        self.segments_written += 1
        state.append(names, now, self.segments_written)

    def bury(self, group: str, partition: str, offsets: Iterable[int]) -> None:
        kept = self.partitions[partition].messages  # of what was dropped nothing is left to keep
        self.letters.update((group, partition, at) for at in offsets if at in kept)

    def delete_message(self, partition: str, at: int, now: datetime) -> str:
        state = self.partitions[partition]
        if at in state.deleted:
            return "already"
        had_letters = self._forget_letters(partition, at)
        if at not in state.messages:
            return "deleted" if had_letters else "unknown"
        state.deleted.add(at)
        for reader in self.of_partition(partition).values():
            if at not in reader.finished:
                reader.lose([at], now)
        return "deleted"

    def _forget_letters(self, partition: str, at: int) -> bool:
        gone = {letter for letter in self.letters if letter[1:] == (partition, at)}
        self.letters -= gone
        return bool(gone)

    def retain(self, kind: str, now: datetime) -> None:
        """Let every state lose its old segments, each as a whole."""
        too_old, kept_from = self.options.too_old_from(kind, now), self.kept_from(now)
        if too_old is None:
            return
        for partition, state in self.partitions.items():
            done = self._completed_to(partition) if kind == "completed" else state.head
            going = 0
            for segment in state.segments:
                is_held = segment.number >= kept_from
                if segment.created_at >= too_old or is_held or segment.offsets[-1] > done:
                    break
                going += 1
            if going:
                self._drop(partition, state.drop(going), now)

    def kept_from(self, now: datetime) -> float:
        """Return the number of the first segment that a reader outside still needs."""
        active = [hold.number + 1 for hold in self.holds.values() if hold.lapses_at > now]
        return min(active, default=inf)

    def drop_oldest(self, number: int, now: datetime) -> tuple[int, int]:
        """Make room for so many messages; return how many were dropped, and of these unread.

        Readers do not notice before their next poll.
        """
        kept_from = self.kept_from(now)
        segments = sorted(
            (segment.number, partition, segment)
            for partition, state in self.partitions.items()
            for segment in state.segments
            if segment.number < kept_from
        )
        dropped = unread = 0
        for _, partition, segment in segments:
            if unread >= number:
                break
            offsets = segment.offsets
            read_to = max(self._read_to(partition), offsets[0] - 1)
            unread += max(offsets[-1] - read_to, 0)
            dropped += len(offsets)
            self.partitions[partition].drop(1)
        return dropped, unread

    def _read_to(self, partition: str) -> int:
        """Return how far all groups have read that count."""
        readers = self.of_partition(partition)
        own = self.groups[QUEUE_MODE]
        if own.first_polled_at is None and len(readers) > 1:
            del readers[QUEUE_MODE]
        return min(reader.position for reader in readers.values())

    def remove_idle(self, before: datetime) -> list[str]:
        """Remove partitions without messages, pushes since then and dead letters."""
        named = {partition for _, partition, _ in self.letters} | {"Default"}
        idle = [
            name
            for name, state in self.partitions.items()
            if not state.segments and state.touched_at < before and name not in named
        ]
        for name in idle:
            del self.partitions[name]
            for group in self.groups:
                del self.readers[name, group]
        return idle

    def _drop(self, partition: str, last: int, now: datetime) -> None:
        for reader in self.of_partition(partition).values():
            if reader.position < last:
                reader.lose(range(1, last + 1), now)

    def _completed_to(self, partition: str) -> int:
        places = [
            reader.position
            for group, reader in self.of_partition(partition).items()
            if self.groups[group].first_polled_at is not None
        ]
        return min(places, default=0)

    def is_held(self, partitions: Iterable[str], now: datetime) -> bool:
        """Tell whether a reader outside still needs something of these partitions."""
        segments = (each for name in partitions for each in self.partitions[name].segments)
        return any(segment.number >= self.kept_from(now) for segment in segments)

    def clear(self, partition: str, now: datetime) -> int:
        """Drop all of a state; return how many messages that were."""
        state = self.partitions[partition]
        kept = len(state.messages) - len(state.deleted)
        if state.segments:
            state.drop(len(state.segments))
        for reader in self.of_partition(partition).values():
            claim = reader.lease_id
            reader.go_to(state.head, now, reader.starts_at)
            reader.lease_id = claim
        return kept

    def waits_too_long(self, group: str, partition: str, now: datetime) -> list[int]:
        """Return what eviction may take from a group in a partition that is ready."""
        limit, polled_at = self.options.max_wait_time_s, self.groups[group].first_polled_at
        if not limit or self.is_paused or self.groups[group].is_paused:
            return []
        if polled_at is None and len(self.groups) > 1:
            return []
        if self.is_conflated(group):
            return []
        # It waits from the moment it may be delivered.
        held_back_s = max(self.options.delayed_processing_s, self.options.window_buffer_s)
        since, reader = now - _seconds(limit + held_back_s), self.readers[partition, group]
        if (polled_at and polled_at >= since) or reader.is_held(now) or reader.is_resting(now):
            return []
        created = {at: reader.partition.messages[at].created_at for at in reader.unread}
        start = reader.starts_at
        return [
            at
            for at, moment in created.items()
            if moment < since and not (start and moment < start)
        ]

    def ack(self, group: str, partition: str, acks: Sequence[Ack], now: datetime) -> list[str]:
        """Apply acks of one partition; return their outcomes."""
        options = self.options
        if self.is_conflated(group):
            options = replace(options, ack_mode="cumulative")
            for ack in acks:  # whichever it means, it stands for all before it
                ack.is_alone = ack.is_doubtful = False
        outcomes, dead = self.readers[partition, group].ack(acks, options, now)
        self.bury(group, partition, dead)
        return outcomes


def queue_mode(id_: int, now: datetime) -> Group:
    """Return the group that every queue is born with, polled or not."""
    return Group(id_, QUEUE_MODE, "all", None, now, None)
