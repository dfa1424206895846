"""The whole message plane in any order, against the model of its promises.

Every step does to the database what it does to the model, through the functions that the broker
calls. What a poll gets, what an ack is answered and where every cursor stands must agree after
each of them; in the end every group gets exactly what it is still owed, and a deleted queue leaves
nothing behind.

SKEP_PLANE_EXAMPLES sets how many scenes are played; give --hypothesis-seed to play others.
"""

import os
from copy import deepcopy
from datetime import timedelta
from itertools import count
from math import inf
from typing import NamedTuple
from uuid import UUID

import pytest
from asyncpg import PostgresError
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
from tests.sql.support.log import NOON, QUEUE_MODE, Ack, Delivered, Poll
from tests.sql.support.plane_choices import (
    PARTITIONS,
    action,
    groups,
    options,
    partitions,
    picks,
    recency,
    statuses,
)
from tests.sql.support.plane_housekeeping import Housekeeping
from tests.sql.support.plane_model import Group, Plane, Waiting, queue_mode
from tests.sql.support.plane_operators import Operators
from tests.sql.support.plane_streams import Streams
from tests.sql.support.scheduling import schedule, sequence, waiting
from tests.sql.support.settling import transact
from tests.sql.support.streaming import clear_streams, register
from tests.support.sizes import sized

EXAMPLES = int(os.environ.get("SKEP_PLANE_EXAMPLES", sized(60, large=150)))
LONG = 7200

queue_numbers = count(1)

CURSORS = """
    select c.partition_id, c.group_id, c.acked, c.done, c.leased, c.lease_id, c.available_at,
           l.head, l.tail, l.total, skep.partition_backlog(l.head, l.tail, c.acked, c.done) as
           backlog, array(select d.message_offset from skep.dead_letter d
                 where d.partition_id = c.partition_id and d.group_id = c.group_id) as letters
    from skep.partition_counts(array(select p.id from skep.partition p where p.queue_id = $1)) l
    join skep.cursor c on c.partition_id = l.id
"""
CREATED_NOW = "update skep.partition set created_at = skep.now() where id = $1"
LETTERS = """
    select d.group_id, d.partition_id, d.message_offset, d.id
    from skep.dead_letter d where d.queue_id = $1
"""


class Claim(NamedTuple):
    """What one poll got from one partition."""

    partition: str
    partition_id: int
    group: str
    lease_id: UUID
    offsets: list[int]
    names: list[str]


class Scene(Operators, Housekeeping, Streams, RuleBasedStateMachine):
    """One queue with up to three partitions and three groups, and everyone who uses it."""

    def __init__(self, log, keeper, arun):
        super().__init__()
        self.log, self.keeper, self.arun = log, keeper, arun
        self.queue = f"queue {next(queue_numbers)}"
        self.claims, self.positions, self.shards = [], [], {}
        self.names = count(1)
        arun(self._begin())

    async def _begin(self):
        await self.log.clear()  # of what an example that failed has left
        await self.log.set_clock(NOON)
        self.plane = Plane()
        await clear_streams(self.log)
        self.query_id = (await register(self.log))["query_id"]
        await self._create_queue()

    @initialize(
        options=st.fixed_dictionaries({}, optional=options),
        numbers=st.lists(st.integers(0, 5), min_size=2, max_size=2),
        mode=st.sampled_from(["all", "new"]),
        conflation=st.lists(st.sampled_from([None, None, True]), min_size=2, max_size=2),
        keep_s=st.sampled_from([None, 5, 60]),
    )
    def begin_with_something(self, options, numbers, mode, conflation, keep_s):
        """Let the queue have options and messages from the start."""
        self.configure(options)
        for partition, number in zip(PARTITIONS, numbers, strict=False):
            if number:
                self.push({partition: (number, [])})
            if keep_s and partition == "a":
                self.place_hold("spark", None, keep_s)
        self.subscribe("drones", mode, 0, conflation[0])
        self.subscribe("bees", "all", 0, conflation[1])

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
                await self.log.execute(CREATED_NOW, id_)

    async def _subscribe(self, group, mode, start, conflation=None):
        id_ = await self.log.subscribe(self.queue, group, mode, start, conflation=conflation)
        if group in self.plane.groups:
            known = self.plane.groups[group]
            known.first_polled_at = known.first_polled_at or self.log.now
        else:
            known = Group(id_, group, mode, start, self.log.now, self.log.now)
            self.plane.subscribe(known, self.log.now)
        if known.conflation is None:
            known.conflation = conflation

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
        writes_by_id = {id_: writes[partition] for id_, partition in ids.items()}
        for row in sorted(self.arun(self.log.push_writes(writes_by_id))):
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

    def push_contested(self, partition, number, repeated, unknown):
        """Push as a broker that does not know the last segments, which may be others'."""
        names = self._names(partition, number, repeated)
        self.arun(self._provision(partition))
        state, now = self.plane.partitions[partition], self.log.now
        known = state.segments[: max(len(state.segments) - unknown, 0)]
        known_to = known[-1].offsets[-1] if known else state.tail - 1
        stored = self.plane.duplicates(partition, names, now)
        in_gap = [at for at in stored.values() if at > known_to]
        new = [name for index, name in enumerate(names) if stored.get(index, inf) > known_to]
        if not new:
            return
        pushing = self.log.push_contested({state.id: new}, {state.id: known_to})
        if in_gap:
            with pytest.raises(PostgresError) as refusal:
                self.arun(pushing)
            assert refusal.value.sqlstate == "SK410"
            return
        first = state.head + 1
        assert self.arun(pushing)[0] == {state.id: (first, now)}
        self.plane.push(partition, new, now)

    def push_and_hand_over(self, partition, number, group, batch, lease_s, has_caught_up):
        """Push for a poll that waits: it gets what it would have found by itself, or nothing."""
        if group not in self.plane.groups:
            return
        if has_caught_up:
            self.pop_partition(group, partition, 100, auto_ack=True)
        names = self._names(partition, number, [])
        self.arun(self._provision(partition))
        self.arun(self._subscribe(group, "all", None))
        state, poll = self.plane.partitions[partition], Poll(batch=batch, lease_s=lease_s)
        waiting = {state.id: (self.plane.groups[group].id, poll)}
        handing = self.log.hand_over({state.id: names}, {state.id: state.head}, waiting)
        claims = self.arun(handing)
        self.plane.push(partition, names, self.log.now)
        if not claims:
            return
        taken_from, taken_to, is_individual, is_only = claims[state.id]
        taken = zip(range(taken_from + 1, taken_to + 1), names, strict=False)
        messages = [Delivered(state.id, at, name, 1, 0) for at, name in taken]
        self._compare_partition(partition, group, poll, messages)
        assert is_individual == (self.plane.options.ack_mode == "individual")
        assert is_only == (len(self.plane.of_partition(partition)) == 1)

    def push_for_later(self, partition, number, repeated, delay_s):
        names, now = self._names(partition, number, repeated), self.log.now
        answers = self.arun(
            schedule(self.log, *names, delay_s=delay_s, partition=partition, queue=self.queue)
        )
        stored = self.plane.duplicates(partition, names, now)
        has_window = self.plane.options.dedup_window_s > 0
        waiting_names = {
            each.name
            for each in self.plane.waiting
            if each.partition == partition and each.had_window and has_window
        }
        for index, answer in enumerate(answers):
            is_duplicate = index in stored or names[index] in waiting_names
            assert answer.outcome == ("duplicate" if is_duplicate else "scheduled")
            if not is_duplicate:
                due = now + timedelta(seconds=delay_s)
                self.plane.waiting.append(
                    Waiting(due, answer.scheduled_id, partition, names[index], has_window)
                )

    def sequence_what_is_due(self):
        now = self.log.now
        due = sorted(each for each in self.plane.waiting if each.deliver_at <= now)
        assert self.arun(sequence(self.log)).moved == len(due)
        self.plane.waiting = [each for each in self.plane.waiting if each.deliver_at > now]
        names_by_partition = {}
        for each in due:
            names_by_partition.setdefault(each.partition, []).append(each.name)
        self.arun(self._provision(*names_by_partition))
        for partition in self.plane.by_id(names_by_partition):
            names = names_by_partition[partition]
            known = self.plane.duplicates(partition, names, now)
            new = [name for index, name in enumerate(names) if index not in known]
            if self.plane.options.dedup_window_s:
                new = list(dict.fromkeys(new))
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
                "push_contested",
                partition=partitions,
                number=st.integers(0, 3),
                repeated=st.lists(picks, max_size=2),
                unknown=st.integers(0, 2),
            ),
            action(
                "push_and_hand_over",
                partition=partitions,
                number=st.integers(1, 4),
                group=groups,
                batch=st.integers(1, 5),
                lease_s=st.sampled_from([0, 10, 30]),
                has_caught_up=st.sampled_from([True, True, False]),
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
        """Push as a broker that knows what is there, or some of it, or for later."""
        self.perform(action)

    # Consumers

    def subscribe(self, group, mode, offset_s, conflation):
        start = self.log.now + timedelta(seconds=offset_s) if mode == "timestamp" else None
        self.arun(self._subscribe(group, mode, start, conflation))

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
        reader.catch_up()
        offer = plane.offer(partition, group, now)
        offsets = offer.offsets[: len(messages)]
        assert [message.offset for message in messages] == offsets
        self._pass_over(partition, group, offer)
        lease_s = poll.lease_s or plane.options.lease_time_s
        ends_at = None if poll.auto_ack else now + timedelta(seconds=lease_s)
        counted = reader.take(
            offsets, poll.lease_id, ends_at, now, is_conflated=plane.is_conflated(group)
        )
        names = [reader.partition.messages[at].name for at in offsets]
        assert messages == [
            Delivered(reader.partition.id, at, name, *counts)
            for at, name, counts in zip(offsets, names, counted, strict=True)
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
        if row["acked"] > position:
            reader.catch_up()
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
        reader.name_messages(acks)
        for ack in acks:
            if ack.lease_id is None and (ack.offset or 0) > reader.partition.head:
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


def test_a_group_starts_when_it_said_although_its_partition_was_cleared(log, arun):
    scene = Scene(log, arun(Keeper.appoint(log)), arun)
    scene.change_subscription("bees", 20)
    scene.forget_group("bees", is_kept=True)
    scene.clear("a")
    scene.push({"a": (1, [])})
    scene.teardown()
