"""Push, pop, ack, renew and release in any order, against an oracle of a page.

What the promises come to: a group gets every message of a partition, in order, without a gap; what
is done stays done and is not delivered again; whatever was not done is.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.sql.support.log import MICROSECOND, NOON, Ack, Delivered, Poll
from tests.support.sizes import sized

EXAMPLES = sized(40, large=100)
RETRY_LIMIT = 1
RETRY_DELAY = timedelta(seconds=5)
PARTITIONS = ("a", "b")
GROUPS = ("bees", "drones")

queue_numbers = count(1)
recency = st.integers(0, 7)
"""How many claims ago. A bundle of claims would not do: when two partitions have waited equally
long, PostgreSQL may serve either of them, and what can be drawn must not depend on that."""


@dataclass
class Partition:
    """What was pushed into a partition."""

    segments: list[range] = field(default_factory=list)

    @property
    def head(self) -> int:
        return self.segments[-1][-1] if self.segments else 0

    def push(self, size: int) -> None:
        self.segments.append(range(self.head + 1, self.head + 1 + size))

    def can_be_found(self, offset: int, cursor: "Cursor") -> bool:
        """Tell whether an ack without an offset finds the message."""
        return offset <= cursor.acked or cursor.leased is None or offset <= cursor.leased


@dataclass
class Cursor:
    """A group's place in a partition, with the rules for moving it."""

    partition: Partition
    acked: int = 0
    leased_from: int | None = None
    leased: int | None = None
    lease_id: UUID | None = None
    available_at: datetime | None = None
    deliveries: Counter[int] = field(default_factory=Counter)
    """Of the messages that may come again."""
    failures: dict[int, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    """Offsets above acked that need no delivery."""

    @property
    def undone(self) -> list[int]:
        return [at for at in range(self.acked + 1, self.partition.head + 1) if at not in self.done]

    def is_ready(self, now: datetime) -> bool:
        return self.available_at is not None and self.available_at <= now

    def is_held(self, now: datetime) -> bool:
        return self.leased is not None and not self.is_ready(now)

    def wake(self, now: datetime) -> None:
        self.available_at = self.available_at or now

    def take(self, poll: Poll, batch: int, now: datetime) -> list[tuple[int, int, int]]:
        """Return the offsets taken, each with its deliveries, this one included, and failures."""
        taken = self.undone[:batch]
        upto = self.behind_done(taken[-1])
        counted = [(at, self.deliveries[at] + 1, self.failures.get(at, 0)) for at in taken]
        self.leased_from, self.lease_id = self.acked, poll.lease_id
        if poll.auto_ack:
            self.acked, self.leased = upto, None
            self.done = {at for at in self.done if at > upto}
            self.rest_or_wait(now + MICROSECOND)
        else:
            self.leased = upto
            self.deliveries.update(range(self.acked + 1, upto + 1))
            self.available_at = now + timedelta(seconds=poll.lease_s)
        return counted

    def behind_done(self, offset: int) -> int:
        while offset + 1 in self.done:
            offset += 1
        return offset

    def rest_or_wait(self, since: datetime) -> None:
        self.available_at = since if self.partition.head > self.acked else None

    def ack(self, acks: list[Ack], now: datetime) -> list[str]:
        """Apply the acks, whose offsets are known, and return their outcomes in order."""
        before, failed_at, pause = self.acked, None, timedelta()
        is_held, outcomes, was_done = self.is_held(now), {}, set(self.done)
        for number, ack in sorted(enumerate(acks), key=lambda pair: pair[1].offset or 0):
            at, is_plain = ack.offset or 0, ack.status == "completed"
            is_fenced = ack.lease_id is None or (
                is_held and ack.lease_id == self.lease_id and at <= (self.leased or 0)
            )
            speaks_for_more = is_plain and is_fenced and at > self.acked and failed_at is None
            if at <= before or (at in was_done and not speaks_for_more):
                is_harmless = is_plain or ack.status == "expired"
                outcomes[number] = "noop" if is_harmless else "already_done"
            elif not is_fenced:
                outcomes[number] = "lease_lost"
            elif ack.status == "expired":
                self.done.add(at)
                outcomes[number] = "expired"
            elif failed_at is not None:
                outcomes[number] = "redelivered" if is_plain else "retried"
            elif is_plain:
                self.acked, outcomes[number] = at, "acked"
            elif ack.status == "retry":
                failed_at, outcomes[number] = at, "retried"
            elif ack.status == "failed" and self.failures.get(at, 0) < RETRY_LIMIT:
                self.failures[at] = self.failures.get(at, 0) + 1
                failed_at, pause, outcomes[number] = at, RETRY_DELAY, "retried"
            else:
                self.acked, outcomes[number] = at, "dead_lettered"
        self.acked = self.behind_done(self.acked)
        is_changed = failed_at is not None or self.acked > before or self.done != was_done
        self.done = {at for at in self.done if at > self.acked}
        if is_changed:
            self._move_on(before, None if failed_at is None else now + pause, now)
        return [outcomes[number] for number in range(len(acks))]

    def _move_on(self, before: int, retry_at: datetime | None, now: datetime) -> None:
        """End the lease if a message failed or all is done; otherwise leave it."""
        is_over = self.leased is None or self.acked >= self.leased
        if retry_at is not None:
            self.leased, self.available_at = None, retry_at
        elif is_over:
            self.leased = None
            self.rest_or_wait(now)
        if self.leased is None:
            self.leased_from = None

    def renew(self, lease_id: UUID, seconds: int, now: datetime) -> datetime | None:
        if lease_id != self.lease_id or not self.is_held(now) or self.available_at is None:
            return None
        self.available_at = max(self.available_at, now + timedelta(seconds=seconds))
        return self.available_at

    def release(self, lease_id: UUID, now: datetime) -> bool:
        can_undo = self.leased is not None or self.leased_from is not None
        if lease_id != self.lease_id or not can_undo:
            return False
        if self.leased is not None:
            self.deliveries.subtract(range(self.acked + 1, self.leased + 1))
        elif self.leased_from is not None:
            self.acked = self.leased_from
        self.leased, self.lease_id, self.available_at = None, None, now
        return True


@dataclass(frozen=True)
class Claim:
    """What one poll got from one partition."""

    partition: str
    group: str
    lease_id: UUID
    offsets: list[int]


class Delivery(RuleBasedStateMachine):
    """Two groups on two partitions, driven in any order."""

    def __init__(self, log, arun):
        super().__init__()
        self.log = log
        self.arun = arun
        self.queue = f"queue {next(queue_numbers)}"
        self.partitions = {name: Partition() for name in PARTITIONS}
        self.cursors = {
            (name, group): Cursor(self.partitions[name]) for name in PARTITIONS for group in GROUPS
        }
        self.claims = []
        self.delivered = {group: set() for group in GROUPS}
        self.skipped = {group: set() for group in GROUPS}
        arun(self._set_up())

    async def _set_up(self):
        await self.log.set_clock(NOON)
        await self.log.configure(
            self.queue, retry_limit=RETRY_LIMIT, retry_delay_ms=RETRY_DELAY.seconds * 1000
        )
        self.group_ids = {name: await self.log.subscribe(self.queue, name) for name in GROUPS}
        ids = await self.log.provision(self.queue, *PARTITIONS)
        self.partition_ids = dict(zip(PARTITIONS, ids, strict=True))
        self.names = dict(zip(ids, PARTITIONS, strict=True))

    @rule(seconds=st.sampled_from([1, 5, 20, 60]))
    def let_time_pass(self, seconds):
        self.arun(self.log.advance(seconds))

    @rule(partition=st.sampled_from(PARTITIONS), size=st.integers(1, 4))
    def push(self, partition, size):
        state = self.partitions[partition]
        names = [f"{partition}{state.head + number}" for number in range(1, size + 1)]
        self.arun(self.log.push(self.partition_ids[partition], *names))
        state.push(size)
        for group in GROUPS:
            self.cursors[partition, group].wake(self.log.now)

    @rule(
        group=st.sampled_from(GROUPS),
        batch=st.integers(1, 6),
        partitions=st.integers(1, 2),
        auto_ack=st.booleans(),
        lease_s=st.sampled_from([10, 30]),
    )
    def pop(self, group, batch, partitions, auto_ack, lease_s):
        poll = Poll(batch=batch, partitions=partitions, auto_ack=auto_ack, lease_s=lease_s)
        taken = self.arun(self.log.pop(self.group_ids[group], poll))
        ready = {
            name: self.cursors[name, group]
            for name in PARTITIONS
            if self.cursors[name, group].is_ready(self.log.now)
        }
        served = [self.names[id_] for id_ in taken.partitions]
        passed_over = ready.keys() - set(served)

        assert set(served) <= ready.keys(), "a partition was served that was not ready"
        for name in passed_over:
            waits_since = ready[name].available_at
            assert all(ready[other].available_at <= waits_since for other in served)
        # A partition is emptied before the next is begun, and only the last may have messages left.
        left = {
            name: sum(at > self._last_taken(taken, name) for at in ready[name].undone)
            for name in served
        }
        served.sort(key=lambda name: (ready[name].available_at, left[name]))
        for name in served:
            batch -= self._compare_partition(name, group, poll, batch, taken)
        assert batch == 0 or len(served) == partitions or not passed_over, (
            "a ready partition was left out"
        )

    @rule(
        group=st.sampled_from(GROUPS),
        partition=st.sampled_from(PARTITIONS),
        batch=st.integers(1, 6),
        auto_ack=st.booleans(),
    )
    def pop_partition(self, group, partition, batch, auto_ack):
        poll = Poll(
            batch=batch,
            auto_ack=auto_ack,
            lease_s=15,
            partition_id=self.partition_ids[partition],
        )
        taken = self.arun(self.log.pop_partitions(self.group_ids[group], poll))
        if self.cursors[partition, group].is_ready(self.log.now):
            self._compare_partition(partition, group, poll, batch, taken)
        else:
            assert taken == []

    def _of_partition(self, taken, partition):
        id_ = self.partition_ids[partition]
        return [message for message in taken.messages if message.partition_id == id_]

    def _last_taken(self, taken, partition):
        return self._of_partition(taken, partition)[-1].offset

    def _compare_partition(self, partition, group, poll, batch, taken):
        """Let the model take from the partition too, and return how many messages it were."""
        counted = self.cursors[partition, group].take(poll, batch, self.log.now)
        offsets = [offset for offset, _, _ in counted]
        expected = [
            Delivered(self.partition_ids[partition], offset, f"{partition}{offset}", *counts)
            for offset, *counts in counted
        ]
        assert self._of_partition(taken, partition) == expected
        self.delivered[group].update(message.transaction_id for message in expected)
        self.claims.append(Claim(partition, group, poll.lease_id, offsets))
        return len(offsets)

    def _claim(self, recency):
        return self.claims[-1 - recency] if recency < len(self.claims) else None

    @rule(
        recency=recency,
        chosen=st.lists(
            st.tuples(
                st.integers(0, 5),
                st.sampled_from(["completed", "completed", "failed", "retry", "dlq", "expired"]),
            ),
            min_size=1,
            max_size=4,
            unique_by=lambda pair: pair[0],
        ),
        is_fenced=st.sampled_from([True, True, True, False]),
        is_offset_known=st.booleans(),
    )
    def ack(self, recency, chosen, is_fenced, is_offset_known):
        claim = self._claim(recency)
        if claim is None:
            return
        cursor = self.cursors[claim.partition, claim.group]
        acks = [
            Ack(
                self.partition_ids[claim.partition],
                claim.offsets[index],
                claim.lease_id if is_fenced else None,
                status,
                f"{claim.partition}{claim.offsets[index]}",
                group=claim.group,
            )
            for index, status in chosen
            if index < len(claim.offsets)
            and (is_offset_known or cursor.partition.can_be_found(claim.offsets[index], cursor))
        ]
        if not acks:
            return
        before = cursor.acked
        expected = cursor.ack(acks, self.log.now)
        self._excuse(claim, [*range(before + 1, cursor.acked + 1), *cursor.done])

        for ack in acks:
            ack.offset = ack.offset if is_offset_known else None
        assert self.arun(self.log.outcomes(*acks)) == expected

    def _excuse(self, claim, offsets):
        """Whoever acks completes what comes before, delivered or not."""
        self.skipped[claim.group].update(f"{claim.partition}{offset}" for offset in offsets)

    @rule(recency=recency, seconds=st.sampled_from([5, 25, 50]))
    def renew(self, recency, seconds):
        claim = self._claim(recency)
        if claim is None:
            return
        ends = [
            end
            for name in PARTITIONS
            if (end := self.cursors[name, claim.group].renew(claim.lease_id, seconds, self.log.now))
        ]
        renewed = self.arun(self.log.renew(claim.lease_id, seconds))
        assert (renewed.expires_at if renewed else None) == min(ends, default=None)

    @rule(recency=recency)
    def release(self, recency):
        claim = self._claim(recency)
        if claim is None:
            return
        cursor = self.cursors[claim.partition, claim.group]
        is_released = cursor.release(claim.lease_id, self.log.now)
        released = self.arun(
            self.log.release(
                self.partition_ids[claim.partition], self.group_ids[claim.group], claim.lease_id
            )
        )
        assert released == is_released

    @invariant()
    def the_cursors_are_where_the_oracle_says(self):
        rows = self.arun(
            self.log.rows(
                "select * from skep.cursor where partition_id = any($1) and group_id = any($2)",
                list(self.names),
                list(self.group_ids.values()),
            )
        )
        stored = {(row["partition_id"], row["group_id"]): row for row in rows}
        for (partition, group), cursor in self.cursors.items():
            row = stored[self.partition_ids[partition], self.group_ids[group]]
            failures = zip(row["failed_offset"] or (), row["failed_count"] or (), strict=True)
            assert Cursor(
                cursor.partition,
                row["acked"],
                row["leased_from"],
                row["leased"],
                row["lease_id"],
                row["available_at"],
                cursor.deliveries,  # compared with every delivery
                {offset: times for offset, times in failures if offset > cursor.acked},
                {at for span in row["done"] or () for at in range(span.lower, span.upper)},
            ) == Cursor(
                **{
                    **vars(cursor),
                    "failures": {
                        offset: times
                        for offset, times in cursor.failures.items()
                        if offset > cursor.acked and offset not in cursor.done
                    },
                }
            )

    def teardown(self):
        """Whatever was not done is delivered in the end."""
        for group in GROUPS:
            self.arun(self.log.advance(3600))
            taken = self.arun(
                self.log.pop(self.group_ids[group], Poll(batch=1000, partitions=2, auto_ack=True))
            )
            got = {message.transaction_id for message in taken.messages}
            everything = {
                f"{name}{offset}"
                for name, partition in self.partitions.items()
                for offset in range(1, partition.head + 1)
            }
            assert got | self.delivered[group] | self.skipped[group] == everything


def test_every_group_gets_every_message_in_order_and_what_is_done_stays_done(log, arun):
    run_state_machine_as_test(
        lambda: Delivery(log, arun),
        settings=settings(max_examples=EXAMPLES, stateful_step_count=30, deadline=None),
    )
