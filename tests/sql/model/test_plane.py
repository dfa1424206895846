"""The whole message plane in any order, against the model of its promises.

Every step does to the database what it does to the model, through the functions that the broker
calls. What a poll gets, what an ack is answered and where every cursor stands must agree after
each of them; in the end every group gets exactly what it is still owed, and a deleted queue leaves
nothing behind.

SKEP_PLANE_EXAMPLES sets how many scenes are played; give --hypothesis-seed to play others.
"""

import os
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import NamedTuple
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.sql.support.housekeeping import Keeper
from tests.sql.support.letters import redrive
from tests.sql.support.log import NOON, QUEUE_MODE, Ack, Delivered, Poll
from tests.sql.support.plane_model import Group, Plane, Waiting, queue_mode
from tests.sql.support.scheduling import schedule, sequence, waiting
from tests.sql.support.settling import transact
from tests.support.sizes import sized

EXAMPLES = int(os.environ.get("SKEP_PLANE_EXAMPLES", sized(60, large=150)))

PARTITIONS = ("a", "b", "c")
GROUPS = (QUEUE_MODE, "bees", "drones")
LONG = 7200

queue_numbers = count(1)
partitions = st.sampled_from(["a", "a", "a", "b", "c"])
groups = st.sampled_from(["bees", "bees", "bees", "drones", QUEUE_MODE])
recency = st.sampled_from([0, 0, 0, 1, 2, 3, 5])
"""How many claims ago; see test_delivery."""
picks = st.integers(0, 11)
"""Which of the things there are, counted around."""
statuses = st.sampled_from(
    ["completed", "failed", "completed", "failed", "retry", "dlq", "expired"]
)

options = {
    "retry_limit": st.sampled_from([0, 1, 2]),
    "retry_delay_ms": st.sampled_from([5000, 5000, 0]),
    "ttl_s": st.sampled_from([0, 0, 30]),
    "max_deliveries": st.sampled_from([0, 1, 2]),
    "ack_mode": st.sampled_from(["cumulative", "individual"]),
    "delayed_processing_s": st.sampled_from([0, 0, 10]),
    "window_buffer_s": st.sampled_from([0, 0, 7]),
    "dedup_window_s": st.sampled_from([0, 20, 3600]),
    "retention_s": st.sampled_from([0, 25]),
    "completed_retention_s": st.sampled_from([0, 15]),
    "max_wait_time_s": st.sampled_from([0, 20]),
}


def action(name, **arguments):
    """Something to do, by the name of the method that does it."""
    return st.tuples(st.just(name), st.fixed_dictionaries(arguments))


changes = st.one_of([st.fixed_dictionaries({name: values}) for name, values in options.items()])

CURSORS = """
    select c.partition_id, c.group_id, c.acked, c.done, c.leased, c.lease_id, c.available_at,
           l.head, l.tail, l.total, skep.partition_backlog(l.head, l.tail, c.acked, c.done) as
           backlog, array(select d.message_offset from skep.dead_letter d
                 where d.partition_id = c.partition_id and d.group_id = c.group_id) as letters
    from skep.partition_counts(array(select p.id from skep.partition p where p.queue_id = $1)) l
    join skep.cursor c on c.partition_id = l.id
"""
LETTERS = """
    select d.group_id, d.partition_id, d.message_offset, d.id
    from skep.dead_letter d where d.queue_id = $1
"""
LEFT_BEHIND = """
    select (select count(*) from skep.partition where queue_id = $1)
         + (select count(*) from skep.cursor where queue_id = $1)
         + (select count(*) from skep.segment where queue_id = $1)
         + (select count(*) from skep.dead_letter where queue_id = $1)
         + (select count(*) from skep.scheduled where queue_id = $1)
         + (select count(*) from skep.consumer_group where queue_id = $1)
         + (select count(*) from skep.removed_queue where queue_id = $1)
"""


class Claim(NamedTuple):
    """What one poll got from one partition."""

    partition: str
    partition_id: int
    group: str
    lease_id: UUID
    offsets: list[int]
    names: list[str]


class Scene(RuleBasedStateMachine):
    """One queue with up to three partitions and three groups, and everyone who uses it."""

    def __init__(self, log, keeper, arun):
        super().__init__()
        self.log, self.keeper, self.arun = log, keeper, arun
        self.queue = f"queue {next(queue_numbers)}"
        self.claims = []
        self.names = count(1)
        arun(self._begin())

    async def _begin(self):
        await self.log.clear()  # of what an example that failed has left
        await self.log.set_clock(NOON)
        self.plane = Plane()
        await self._create_queue()

    @initialize(
        options=st.fixed_dictionaries({}, optional=options),
        numbers=st.lists(st.integers(0, 5), min_size=2, max_size=2),
        mode=st.sampled_from(["all", "new"]),
    )
    def begin_with_something(self, options, numbers, mode):
        """Let the queue have options and messages from the start."""
        self.configure(options)
        for partition, number in zip(PARTITIONS, numbers, strict=False):
            if number:
                self.push({partition: (number, [])})
        self.subscribe("drones", mode, 0)

    async def _create_queue(self):
        await self.log.configure(self.queue, **vars(self.plane.options))
        self.queue_id = await self.keeper.queue_id(self.queue)
        self.plane.groups[QUEUE_MODE] = queue_mode(await self._group_id(QUEUE_MODE), self.log.now)
        await self._provision("Default", *PARTITIONS[:2])
        await self._subscribe("bees", "all", None)

    async def _group_id(self, group):
        query = "select id from skep.consumer_group where queue_id = $1 and name = $2"
        return await self.log.value(query, self.queue_id, group)

    async def _provision(self, *names):
        ids = await self.log.provision(self.queue, *names)
        for name, id_ in zip(names, ids, strict=True):
            if name not in self.plane.partitions:
                self.plane.add_partition(name, id_, self.log.now)

    async def _subscribe(self, group, mode, start):
        id_ = await self.log.subscribe(self.queue, group, mode, start)
        if group in self.plane.groups:
            known = self.plane.groups[group]
            known.first_polled_at = known.first_polled_at or self.log.now
        else:
            born = Group(id_, group, mode, start, self.log.now, self.log.now)
            self.plane.subscribe(born, self.log.now)

    # Producers

    def _names(self, partition, number, repeated):
        """Return new names, and some that were pushed before."""
        fresh = [f"{partition}{next(self.names)}" for _ in range(number)]
        state = self.plane.partitions.get(partition)
        known = sorted({kept.name for kept in state.messages.values()}) if state else []
        return list(
            dict.fromkeys([*fresh, *(known[pick % len(known)] for pick in repeated if known)])
        )

    @rule(
        wishes=st.dictionaries(
            partitions, st.tuples(st.integers(1, 4), st.lists(picks, max_size=2)), min_size=1
        )
    )
    def push(self, wishes):
        """Push what may be there already; the broker leaves the word to the database."""
        writes = {partition: self._names(partition, *wish) for partition, wish in wishes.items()}
        self.arun(self._provision(*writes))
        ids = {self.plane.partitions[partition].id: partition for partition in writes}
        for row in self.arun(
            self.log.push_writes({id_: writes[partition] for id_, partition in ids.items()})
        ):
            partition = ids.pop(row.partition_id)
            expected = self.plane.duplicates(partition, writes[partition], self.log.now)
            assert (row.duplicates or {}) == expected
            if not expected:
                assert row.first == self.plane.partitions[partition].head + 1
                self.plane.push(partition, writes[partition], self.log.now)
        assert not ids, "a partition was not answered"

    def push_guaranteed(self, partition, number, is_known):
        """Push new names as a broker that knows the state, or one whose word is out of date."""
        names = self._names(partition, number, [])
        self.arun(self._provision(partition))
        state = self.plane.partitions[partition]
        head = state.head if is_known else state.head + 1
        stored = self.arun(self.log.push_guaranteed({state.id: names}, {state.id: head}))
        assert stored == ({state.id: (state.head + 1, self.log.now)} if is_known else {})
        if is_known:
            self.plane.push(partition, names, self.log.now)

    def push_for_later(self, partition, number, repeated, delay_s):
        names, now = self._names(partition, number, repeated), self.log.now
        answers = self.arun(
            schedule(self.log, *names, delay_s=delay_s, partition=partition, queue=self.queue)
        )
        stored = self.plane.duplicates(partition, names, now)
        waiting_names = {each.name for each in self.plane.waiting if each.partition == partition}
        for index, answer in enumerate(answers):
            is_duplicate = index in stored or names[index] in waiting_names
            assert answer.outcome == ("duplicate" if is_duplicate else "scheduled")
            if not is_duplicate:
                due = now + timedelta(seconds=delay_s)
                self.plane.waiting.append(
                    Waiting(due, answer.scheduled_id, partition, names[index])
                )

    def sequence_what_is_due(self):
        now = self.log.now
        due = sorted(each for each in self.plane.waiting if each.deliver_at <= now)
        assert self.arun(sequence(self.log)).moved == len(due)
        self.plane.waiting = [each for each in self.plane.waiting if each.deliver_at > now]
        for partition in dict.fromkeys(each.partition for each in due):
            names = [each.name for each in due if each.partition == partition]
            self.arun(self._provision(partition))
            known = self.plane.duplicates(partition, names, now)
            new = [name for index, name in enumerate(names) if index not in known]
            if new:
                self.plane.push(partition, new, now)

    @rule(
        action=st.one_of(
            action(
                "push_guaranteed",
                partition=partitions,
                number=st.integers(1, 4),
                is_known=st.booleans(),
            ),
            action(
                "push_for_later",
                partition=partitions,
                number=st.integers(1, 2),
                repeated=st.lists(picks, max_size=1),
                delay_s=st.sampled_from([1.0, 10.0, 40.0]),
            ),
        )
    )
    def push_otherwise(self, action):
        """Push as a broker that knows what is there, or for later."""
        name, arguments = action
        getattr(self, name)(**arguments)

    # Consumers

    def subscribe(self, group, mode, offset_s):
        start = self.log.now + timedelta(seconds=offset_s) if mode == "timestamp" else None
        self.arun(self._subscribe(group, mode, start))

    @rule(
        group=groups,
        batch=st.integers(1, 6),
        partitions=st.integers(1, 4),
        auto_ack=st.sampled_from([False, False, True]),
        lease_s=st.sampled_from([0, 10, 30]),
    )
    def pop(self, group, batch, partitions, auto_ack, lease_s):
        if group not in self.plane.groups:
            return
        self.arun(self._subscribe(group, "all", None))
        poll = Poll(batch=batch, partitions=partitions, auto_ack=auto_ack, lease_s=lease_s)
        taken = self.arun(self.log.pop(self.plane.groups[group].id, poll))
        self._compare_poll(group, poll, taken, set(self.plane.partitions))

    @rule(
        group=groups,
        partition=partitions,
        batch=st.integers(1, 6),
        auto_ack=st.sampled_from([False, False, True]),
    )
    def pop_partition(self, group, partition, batch, auto_ack):
        if group not in self.plane.groups or partition not in self.plane.partitions:
            return
        self.arun(self._subscribe(group, "all", None))
        id_ = self.plane.partitions[partition].id
        poll = Poll(batch=batch, auto_ack=auto_ack, partition_id=id_)
        taken = self.arun(self.log.pop_partitions(self.plane.groups[group].id, poll))
        self._compare_poll(group, poll, taken, {partition})

    @rule(
        group=groups,
        partition=partitions,
        batch=st.integers(1, 4),
        chosen=st.lists(
            st.tuples(st.integers(0, 3), statuses), min_size=1, max_size=3, unique=True
        ),
    )
    def pop_and_ack(self, group, partition, batch, chosen):
        """Take messages and answer some of them."""
        claims = len(self.claims)
        self.pop_partition(group, partition, batch, auto_ack=False)
        if len(self.claims) > claims:
            self.ack(0, chosen, is_fenced=True, is_offset_known=True)

    def _compare_poll(self, group, poll, taken, asked):
        """Check that the poll got what it may and must get, and let the model take it too."""
        by_partition = {
            name: [message for message in taken.messages if message.partition_id == partition.id]
            for name, partition in self.plane.partitions.items()
        }
        got = {name: messages for name, messages in by_partition.items() if messages}
        assert set(taken.partitions) == {self.plane.partitions[name].id for name in got}, (
            "nothing was leased"
        )
        assert got.keys() <= asked
        room = poll.batch - sum(map(len, got.values()))
        assert room >= 0
        assert len(got) <= poll.partitions
        cut_short = [
            self._compare_partition(name, group, poll, messages) for name, messages in got.items()
        ]
        assert sum(cut_short) <= (room == 0), (
            "a partition was not emptied, and the batch not filled"
        )
        rows = self.arun(self._cursors())
        for name in asked - got.keys():
            self._compare_partition_left_out(
                name,
                group,
                rows[name, group],
                must_be_served=room > 0 and len(got) < poll.partitions,
            )

    def _compare_partition(self, partition, group, poll, messages):
        """Return whether the partition had more."""
        plane, now = self.plane, self.log.now
        reader = plane.readers[partition, group]
        assert plane.can_be_served(partition, group, now), "it was leased, resting or paused"
        offer = plane.offer(partition, group, now)
        offsets = offer.offsets[: len(messages)]
        assert [message.offset for message in messages] == offsets
        self._pass_over(partition, group, offer)
        lease_s = poll.lease_s or plane.options.lease_time_s
        ends_at = None if poll.auto_ack else now + timedelta(seconds=lease_s)
        delivery = reader.take(offsets, poll.lease_id, ends_at, now)
        names = [reader.partition.messages[at].name for at in offsets]
        assert messages == [
            Delivered(reader.partition.id, at, name, delivery)
            for at, name in zip(offsets, names, strict=True)
        ]
        self.claims.append(
            Claim(partition, reader.partition.id, group, poll.lease_id, offsets, names)
        )
        return len(offer.offsets) > len(offsets)

    def _pass_over(self, partition, group, offer):
        self.plane.readers[partition, group].pass_over(offer.passed)
        if offer.worn_out is not None:
            self.plane.bury(group, partition, [offer.worn_out])
            self.plane.readers[partition, group].pass_over([offer.worn_out])

    def _compare_partition_left_out(self, partition, group, row, *, must_be_served):
        """Follow what a poll passed over, if it came by, and see that it had nothing to take."""
        plane, now = self.plane, self.log.now
        reader, position = plane.readers[partition, group], plane.readers[partition, group].position
        can_be_served = plane.can_be_served(partition, group, now)
        offer = plane.offer(partition, group, now)
        # A pause after a failure is not told from a wait for a window that is shorter now.
        is_put_off = bool(reader.failures) and (row["available_at"] or now) > now
        if must_be_served and can_be_served and reader.free_at <= now and not is_put_off:
            assert not offer.offsets, "a ready partition was left out"
        gone = set(range(position + 1, row["acked"] + 1)) - reader.finished
        assert can_be_served or not gone
        assert gone <= {*offer.passed, offer.worn_out}, "a message was skipped"
        reader.pass_over(gone - {offer.worn_out})
        if offer.worn_out in gone:
            plane.bury(group, partition, [offer.worn_out])
            reader.pass_over([offer.worn_out])
        if row["leased"] is None and reader.leased is not None and not reader.is_held(now):
            reader.leased, reader.nacked, reader.retry_at = None, set(), None
            reader.lease_id = reader.claimed_from = None
        if gone:
            reader.claimed_from = None

    def _claim(self, recency):
        return self.claims[max(len(self.claims) - 1 - recency, 0)]

    def _is_alive(self, claim):
        partition = self.plane.partitions.get(claim.partition)
        return (
            partition is not None
            and partition.id == claim.partition_id
            and claim.group in self.plane.groups
        )

    @precondition(lambda self: self.claims)
    @rule(
        recency=recency,
        chosen=st.lists(
            st.tuples(st.integers(0, 6), statuses), min_size=1, max_size=4, unique=True
        ),
        is_fenced=st.sampled_from([True, True, True, False]),
        is_offset_known=st.booleans(),
    )
    def ack(self, recency, chosen, is_fenced, is_offset_known):
        claim = self._claim(recency)
        acks = self._acks(claim, chosen, is_fenced=is_fenced, is_offset_known=is_offset_known)
        if not self._is_alive(claim):
            assert self.arun(self.log.outcomes(*acks)) == []
            return
        answered = self.arun(self.log.outcomes(*acks))
        self._find_offsets(claim, acks)
        expected = self.plane.ack(claim.group, claim.partition, acks, self.log.now)
        assert answered == expected

    def _acks(self, claim, chosen, *, is_fenced, is_offset_known):
        """Return acks of messages of a claim; an index beyond it is a message after it."""
        last = claim.offsets[-1]
        messages = [*zip(claim.offsets, claim.names, strict=True), (last + 1, "?"), (last + 2, "?")]
        return [
            Ack(
                claim.partition_id,
                at if is_offset_known or name == "?" else None,
                claim.lease_id if is_fenced else None,
                status,
                name,
                group=claim.group,
            )
            for index, status in chosen
            for at, name in [messages[index % len(messages)]]
        ]

    def _find_offsets(self, claim, acks):
        """Say which offsets the acks mean."""
        reader = self.plane.readers[claim.partition, claim.group]
        for ack in acks:
            if ack.offset is None:
                ack.offset = reader.find(ack.transaction_id)
            elif ack.lease_id is None and ack.offset > reader.partition.head:
                ack.offset = None

    @precondition(lambda self: self.claims)
    @rule(recency=recency, status=statuses, upto=st.integers(0, 5))
    def ack_from_the_first_on(self, recency, status, upto):
        """Complete some messages of a claim in order, and say something else of the next."""
        chosen = [*((index, "completed") for index in range(upto)), (upto, status)]
        self.ack(recency, chosen, is_fenced=True, is_offset_known=True)

    @precondition(lambda self: self.claims)
    @rule(recency=recency, seconds=st.sampled_from([5, 25, 50]))
    def renew(self, recency, seconds):
        claim = self._claim(recency)
        now = self.log.now
        held = [
            reader
            for reader in self.plane.readers.values()
            if reader.lease_id == claim.lease_id and reader.is_held(now)
        ]
        for reader in held:
            reader.free_at = max(reader.free_at, now + timedelta(seconds=seconds))
        renewed = self.arun(self.log.renew(claim.lease_id, seconds))
        ends = [reader.free_at for reader in held]
        assert (renewed.expires_at if renewed else None) == min(ends, default=None)

    @precondition(lambda self: self.claims)
    @rule(recency=st.integers(0, 1))
    def release(self, recency):
        """Take back what a consumer never received."""
        claim = self._claim(recency)
        if not self._is_alive(claim):
            return
        group_id = self.plane.groups[claim.group].id
        reader = self.plane.readers[claim.partition, claim.group]
        released = self.arun(self.log.release(claim.partition_id, group_id, claim.lease_id))
        assert bool(released) == reader.give_back(claim.lease_id, self.log.now)

    @precondition(lambda self: self.claims)
    @rule(recency=recency)
    def hang_up(self, recency):
        """End a lease whose holder is gone."""
        claim, now = self._claim(recency), self.log.now
        if not self._is_alive(claim):
            return
        arguments = [claim.partition_id], [self.plane.groups[claim.group].id], [claim.lease_id]
        ended = self.arun(self.log.value("select skep.end_leases($1, $2, $3)", *arguments))
        reader = self.plane.readers[claim.partition, claim.group]
        is_held = reader.is_held(now) and reader.lease_id == claim.lease_id
        assert bool(ended) == is_held
        if is_held:
            reader.free_at = max(now, reader.retry_at or now)

    @precondition(lambda self: self.claims)
    @rule(
        recency=st.integers(0, 2),
        chosen=st.lists(
            st.tuples(st.integers(0, 3), st.sampled_from(["completed", "dlq"])),
            min_size=1,
            max_size=3,
            unique_by=lambda pair: pair[0],
        ),
        partition=partitions,
        number=st.integers(0, 2),
        is_required=st.booleans(),
    )
    def transact(self, recency, chosen, partition, number, is_required):
        """Ack and push, all or nothing."""
        claim = self._claim(recency)
        if not self._is_alive(claim):
            return
        self.arun(self._provision(partition))
        reader, now = self.plane.readers[claim.partition, claim.group], self.log.now
        acks = self._acks(claim, chosen, is_fenced=True, is_offset_known=True)
        acks = list(
            {ack.offset: ack for ack in acks if ack.offset <= reader.partition.head}.values()
        )
        if not acks:
            return
        names = self._names(partition, number, [])
        settled = self.arun(
            transact(
                self.log,
                acks,
                {self.plane.partitions[partition].id: names} if names else {},
                leases=[claim.lease_id] if is_required else [],
            )
        )
        after = deepcopy(self.plane)
        outcomes = after.ack(claim.group, claim.partition, acks, now)
        refusal = self._refusal(claim, outcomes, is_required=is_required)
        assert settled.refusal == refusal
        if refusal is None:
            assert settled.outcomes == outcomes
            self.plane = after
            if names:
                self.plane.push(partition, names, now)

    def _refusal(self, claim, outcomes, *, is_required):
        """Return why a transaction is refused, and because of which of its parts."""
        now = self.log.now
        held = [
            reader
            for reader in self.plane.readers.values()
            if reader.lease_id == claim.lease_id and reader.is_held(now)
        ]
        if is_required and not held:
            return "required_lease", 1
        is_held = self.plane.readers[claim.partition, claim.group] in held
        for number, outcome in enumerate(outcomes, 1):
            if outcome == "noop" and not is_held:
                return "already_done", number
            if outcome in ("lease_lost", "beyond_lease", "not_found", "already_done"):
                return outcome, number
        return None

    # Time, and who looks after the queue

    @rule(seconds=st.sampled_from([0.000001, 1, 1, 5, 5, 20, 60]))
    def let_time_pass(self, seconds):
        self.arun(self.log.advance(seconds))

    @rule(change=changes)
    def configure(self, change):
        self.arun(self.log.configure(self.queue, **change))
        self.plane.options = replace(self.plane.options, **change)

    @rule(
        action=st.one_of(
            action(
                "subscribe",
                group=groups,
                mode=st.sampled_from(["all", "new", "timestamp"]),
                offset_s=st.sampled_from([-20, 20]),
            ),
            action("change_subscription", group=groups, offset_s=st.sampled_from([-20, 20])),
            action("pause_group", group=groups, is_paused=st.booleans()),
            action(
                "seek_queue",
                group=groups,
                to=st.sampled_from(["end", "start", "timestamp"]),
                ago=st.sampled_from([0, 5, 30]),
            ),
            action("seek_partition", group=groups, partition=partitions, offset=st.integers(0, 12)),
            action("forget_group", group=groups, is_kept=st.booleans()),
        )
    )
    def look_after_groups(self, action):
        """Do something to a consumer group."""
        name, arguments = action
        getattr(self, name)(**arguments)

    @rule(
        action=st.one_of(
            action("sequence_what_is_due"),
            action("delete_message", partition=partitions, pick=picks),
            action(
                "give_up_message",
                partition=partitions,
                pick=picks,
                group=st.sampled_from([*GROUPS[1:], None]),
            ),
            action("end_backoff", partition=partitions, pick=picks),
            action("clear", partition=st.one_of(st.none(), partitions)),
            action(
                "redrive", pick=picks, to=st.one_of(st.none(), partitions), is_all=st.booleans()
            ),
        )
    )
    def look_after_messages(self, action):
        """Do something to messages from outside."""
        name, arguments = action
        getattr(self, name)(**arguments)

    @rule(
        action=st.one_of(
            action(
                "retain", kind=st.sampled_from(["retention", "completed"]), limit=st.integers(1, 4)
            ),
            action("evict", limit=st.integers(1, 3)),
            action("pause_queue", is_paused=st.booleans()),
            action("delete_and_create_queue"),
        )
    )
    def look_after_queue(self, action):
        """Do something to all of the queue."""
        name, arguments = action
        getattr(self, name)(**arguments)

    def pause_queue(self, is_paused):
        self.arun(self.log.value("select skep.pause_queue($1, $2)", self.queue, is_paused))
        self.plane.is_paused = is_paused

    def change_subscription(self, group, offset_s):
        """Let a group start elsewhere when it starts again."""
        known = self.plane.groups.get(group)
        if known is None or group == QUEUE_MODE:
            return
        moment = self.log.now + timedelta(seconds=offset_s)
        query = "select skep.change_subscription($1, $2)"
        assert self.arun(self.log.value(query, group, moment)) == 1
        known.change_start(moment)

    def pause_group(self, group, is_paused):
        if group in self.plane.groups:
            id_ = self.plane.groups[group].id
            self.arun(self.log.value("select skep.pause_group($1, $2)", id_, is_paused))
            self.plane.groups[group].is_paused = is_paused

    def seek_queue(self, group, to, ago):
        if group not in self.plane.groups:
            return
        now, moment = self.log.now, self.log.now - timedelta(seconds=ago)
        next_name = ""
        while next_name is not None:
            row = self.arun(
                self.log.row(
                    "select * from skep.seek_partitions($1, $2, 1, $3, $4)",
                    self.plane.groups[group].id,
                    next_name,
                    to,
                    moment if to == "timestamp" else None,
                )
            )
            next_name = row["next_name"]
        for reader in self.plane.of_group(group).values():
            partition = reader.partition
            targets = {
                "end": partition.head,
                "start": 0,
                "timestamp": partition.last_before(moment),
            }
            reader.go_to(targets[to], now)
        if self.plane.groups[group].start_ahead(now):
            self.plane.groups[group].change_start(now)

    def seek_partition(self, group, partition, offset):
        if group not in self.plane.groups or partition not in self.plane.partitions:
            return
        reader = self.plane.readers[partition, group]
        group_id, partition_id = self.plane.groups[group].id, reader.partition.id
        query = "select * from skep.aim_seek($1, $2, 'offset', null, $3)"
        aim = self.arun(self.log.row(query, group_id, [partition_id], offset))
        unread = set(reader.unread)
        query = "select * from skep.move_cursors($1, $2, $3)"
        self.arun(self.log.row(query, group_id, [partition_id], [aim["target"]]))
        reader.go_to(offset - 1, self.log.now)
        assert aim["skipped"] == len(unread - set(reader.unread))
        assert aim["replayed"] == len(set(reader.unread) - unread)

    def forget_group(self, group, is_kept):
        """Delete what a group did, and the group as well unless its subscription is kept."""
        if group not in self.plane.groups or group == QUEUE_MODE:
            return
        known = self.plane.groups[group]
        if not is_kept:
            assert self.arun(self.log.value("select skep.forget_group($1)", known.id))
        query = "select next_name from skep.forget_partitions($1, $2, $3, $4, 2)"
        next_name = ""
        while next_name is not None:
            next_name = self.arun(
                self.log.value(query, self.queue_id, known.id, is_kept, next_name)
            )
        readers = self.plane.of_group(group)
        self.plane.forget_group(group)
        if is_kept:
            self.plane.groups[group] = known
            for partition, reader in readers.items():
                now = self.log.now
                reader.go_to(known.first_target(reader.partition), now, known.start_ahead(now))
                self.plane.readers[partition, group] = reader

    def delete_message(self, partition, pick):
        if partition in self.plane.partitions and self.plane.partitions[partition].head:
            state = self.plane.partitions[partition]
            at = max(state.head - pick, 1)
            answer = self.arun(self.log.value("select skep.delete_message($1, $2)", state.id, at))
            assert answer == self.plane.delete_message(partition, at, self.log.now)

    def give_up_message(self, partition, pick, group):
        """Move a message to the dead letters, for one group or for all that count."""
        state = self.plane.partitions.get(partition)
        if state is None or not state.messages:
            return
        at = sorted(state.messages)[-1 - pick % len(state.messages)]
        query = "select * from skep.give_up_message($1, $2, $3, 'given up')"
        gave_up = {row[0] for row in self.arun(self.log.rows(query, state.id, at, group))}
        readers = self.plane.of_partition(partition)
        waits = {name for name, reader in readers.items() if at not in reader.finished}
        assert gave_up <= waits
        assert gave_up == ({group} & waits if group else gave_up | (waits - {QUEUE_MODE}))
        for name in gave_up:
            readers[name].lose([at], self.log.now)
        self.plane.letters |= {(name, partition, at) for name in gave_up}

    def end_backoff(self, partition, pick):
        """Let a message that failed come again at once."""
        state, now = self.plane.partitions.get(partition), self.log.now
        if state is None or not state.messages:
            return
        at = sorted(state.messages)[-1 - pick % len(state.messages)]
        query = "select group_name from skep.end_backoff($1, $2, null)"
        ended = {row[0] for row in self.arun(self.log.rows(query, state.id, at))}
        for group, reader in self.plane.of_partition(partition).items():
            is_waiting = reader.leased is None and reader.rests_until.get(at, now) > now
            assert group in ended or not is_waiting
            if group in ended:
                assert at in reader.failures
                reader.rests_until, reader.free_at = {}, now

    def clear(self, partition):
        """Drop all messages of the queue or of a partition, a segment at a time."""
        partitions = [partition] if partition else list(self.plane.partitions)
        next_from, upto, messages = partition or "", None, 0
        while next_from is not None:
            row = self.arun(
                self.log.row(
                    "select * from skep.clear_partitions($1, $2, $3, $4, 2, 2)",
                    self.queue_id,
                    next_from,
                    upto,
                    partition is not None,
                )
            )
            next_from, upto = row["next_from"], row["next_upto"]
            messages += row["messages"]
        cleared = [
            self.plane.clear(name, self.log.now)
            for name in partitions
            if name in self.plane.partitions
        ]
        assert messages == sum(cleared)

    def retain(self, kind, limit):
        reached, is_done = 0, False
        while not is_done:
            step = self.arun(self.keeper.retain(kind, queue=self.queue, after=reached, limit=limit))
            reached, is_done = step.reached, step.is_done
        self.plane.retain(kind, self.log.now)

    def evict(self, limit):
        """Let messages die that waited too long, wherever a partition is ready."""
        if self.plane.is_paused:
            return
        ready = {
            key
            for key, row in self.arun(self._cursors()).items()
            if row["available_at"] is not None and row["available_at"] <= self.log.now
        }
        stop, total = None, 0
        while stop is None or not stop.is_done:
            stop = self.arun(self.keeper.evict(queue=self.queue, limit=limit, stop=stop))
            total += stop.messages
        new = set()
        for partition, group in ready:
            waited = self.plane.waits_too_long(group, partition, self.log.now)
            new |= {(group, partition, at) for at in waited}
            if waited:
                self.plane.readers[partition, group].lose(range(1, waited[-1] + 1), self.log.now)
        assert total == len(new - self.plane.letters)
        self.plane.letters |= new

    def redrive(self, pick, to, is_all):
        """Push what died again, where it was or elsewhere."""
        letters = sorted(self.arun(self._letters()))
        if not letters:
            return
        chosen = letters if is_all else [letters[pick % len(letters)]]
        if to:
            self.arun(self._provision(to))
        goals = {id_: to or partition for id_, (_, partition, _) in chosen}
        moves = {id_: self.plane.partitions[goal].id for id_, goal in goals.items()}
        redriven = self.arun(redrive(self.log, moves))
        assert {row.result for row in redriven.values()} == {"moved"}
        for goal in sorted(set(goals.values())):
            ids = sorted(id_ for id_ in goals if goals[id_] == goal)
            self.plane.push(goal, [f"dlq:{id_}" for id_ in ids], self.log.now)
            head = self.plane.partitions[goal].head
            offsets = [redriven[id_].message_offset for id_ in ids]
            assert offsets == list(range(head - len(ids) + 1, head + 1))
        self.plane.letters -= {letter for _, letter in chosen}

    def delete_and_create_queue(self):
        """Delete the queue; whoever comes next finds an empty one of the same name."""
        self.arun(self._delete_queue())
        self.plane = Plane()
        self.arun(self._create_queue())

    async def _delete_queue(self):
        assert await self.log.value("select skep.remove_queue($1)", self.queue) == self.queue_id
        while await self.log.value("select skep.sweep_removed_queue($1, 10)", self.queue_id):
            pass
        assert await self.log.value(LEFT_BEHIND, self.queue_id) == 0

    # What holds at any time

    async def _cursors(self):
        partitions = {partition.id: name for name, partition in self.plane.partitions.items()}
        groups = {group.id: name for name, group in self.plane.groups.items()}
        return {
            (partitions[row["partition_id"]], groups[row["group_id"]]): row
            for row in await self.log.rows(CURSORS, self.queue_id)
        }

    async def _letters(self):
        """Return the dead letters as the model spells them, each with its id before it."""
        partitions = {partition.id: name for name, partition in self.plane.partitions.items()}
        groups = {group.id: name for name, group in self.plane.groups.items()}
        return [
            (id_, (groups[group_id], partitions[partition_id], at))
            for group_id, partition_id, at, id_ in await self.log.rows(LETTERS, self.queue_id)
        ]

    @invariant()
    def the_cursors_are_where_the_model_says(self):
        rows = self.arun(self._cursors())
        assert rows.keys() == self.plane.readers.keys()
        for key, reader in self.plane.readers.items():
            self._compare_cursor(rows[key], reader)
        letters = [
            (group, partition, at)
            for partition, group in rows
            for at in rows[partition, group]["letters"]
        ]
        assert set(letters) == self.plane.letters, "others died"

    def _compare_cursor(self, row, reader):
        position, partition, now = reader.position, reader.partition, self.log.now
        done = {at for span in row["done"] or () for at in range(span.lower, span.upper)}
        assert row["acked"] == position, "the position moved, or did not"
        assert done == {at for at in reader.finished if at > position}
        assert position + 1 not in done
        assert (row["head"], row["tail"]) == (partition.head, partition.tail)
        assert row["total"] == len(partition.messages) - len(partition.deleted)
        assert row["backlog"] == len(reader.unread)
        assert row["available_at"] is not None or not reader.unread, "asleep before a message"
        is_held = row["leased"] is not None and row["available_at"] > now
        assert is_held == reader.is_held(now)
        if is_held:
            assert (row["lease_id"], row["leased"]) == (reader.lease_id, reader.leased)
            assert row["available_at"] == reader.free_at

    def teardown(self):
        """In the end everybody gets what he is owed, and a deleted queue leaves nothing behind."""
        self.arun(self.log.advance(LONG))
        self.sequence_what_is_due()
        assert self.arun(waiting(self.log)) == []
        self.configure({"ttl_s": 0, "max_deliveries": 0, "window_buffer_s": 0})
        self.configure({"delayed_processing_s": 0})
        self.pause_queue(is_paused=False)
        self.arun(self.log.advance(LONG))
        for group in self.plane.groups:
            self.pause_group(group, is_paused=False)
            self.pop(group, batch=1000, partitions=10, auto_ack=True, lease_s=0)
            assert not any(reader.unread for reader in self.plane.of_group(group).values())
        self.arun(self._delete_queue())


@pytest.mark.timeout(120 + EXAMPLES)
def test_everybody_gets_what_was_promised_whatever_happens(log, arun):
    keeper = arun(Keeper.appoint(log))
    run_state_machine_as_test(
        lambda: Scene(log, keeper, arun),
        settings=settings(max_examples=EXAMPLES, stateful_step_count=30, deadline=None),
    )
