"""Brokers that act at once: each has a call under way that others meet before it is committed.

A step begins a call, another commits it or rolls it back; in between other processes push, poll,
acknowledge and clean up. A call that meets a lock waits until its holder is done. What a call
answers must follow from what was committed when it got its locks. At any time the log is dense, no
key is stored twice inside the window, and no partition with unread messages is asleep; in the end
every group gets what it is still owed. Each broker has a cache of its own, which knows nothing of
the others' pushes: a guarantee that is out of date must be refused.

SKEP_PLANE_EXAMPLES sets how many scenes are played; give --hypothesis-seed to play others.
"""

import os
from datetime import timedelta
from itertools import count

import asyncpg
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

from tests.sql.support.broker_model import GROUPS, Claim, Ledger
from tests.sql.support.housekeeping import SERVICE, Keeper
from tests.sql.support.log import MICROSECOND, NOON, QUEUE_MODE, Ack, Poll, keys_of
from tests.sql.support.plane_choices import Actions, action
from tests.sql.support.processes import Process, settle_all
from tests.sql.support.settling import transact
from tests.support.sizes import sized

EXAMPLES = int(os.environ.get("SKEP_PLANE_EXAMPLES", sized(80, large=200)))
PROCESSES = 2
LONG = 7200

numbers = st.integers(0, PROCESSES - 1)
kept = st.sampled_from([False, False, True])
recency = st.sampled_from([0, 0, 0, 1, 2])
statuses = st.sampled_from(["completed", "completed", "failed"])
partitions = st.sampled_from(["a", "a", "a", "b"])
groups = st.sampled_from(["bees", "bees", "bees", QUEUE_MODE])
names = st.lists(st.integers(1, 8), min_size=1, max_size=3, unique=True)
"""Few, so that brokers often push what another has pushed."""
queue_numbers = count(1)

LOG = """
    select p.id, p.head, p.tail, array_agg((s.first, s.last, s.keys) order by s.first)
      filter (where s.first is not null) as segments
    from skep.partition p left join skep.segment s on s.partition_id = p.id
    where p.queue_id = $1 group by p.id
"""
CURSORS = """
    select c.partition_id, g.name, c.acked, c.leased, c.lease_id, c.available_at
    from skep.cursor c join skep.consumer_group g on g.id = c.group_id where c.queue_id = $1
"""


class Brokers(Actions, RuleBasedStateMachine):
    """One queue with two partitions and two groups, and two processes."""

    def __init__(self, observer, logs, keeper, arun):
        super().__init__()
        self.observer, self.keeper, self.arun = observer, keeper, arun
        self.processes = [Process(log) for log in logs]
        self.queue = f"queue {next(queue_numbers)}"
        self.now = NOON
        self.claims = []
        self.has_failed = False
        arun(self._begin())

    async def _begin(self):
        await self.observer.clear()  # of what an example that failed has left
        await self.observer.set_clock(NOON)
        await self.observer.configure(self.queue, lease_time_s=60, retry_limit=9, retry_delay_ms=0)
        self.queue_id = await self.keeper.queue_id(self.queue)
        self.ledger = Ledger()
        self.group_ids = {
            group: await self.observer.subscribe(self.queue, group) for group in GROUPS
        }

    @initialize(window_s=st.sampled_from([20, 3600]), retention_s=st.sampled_from([0, 25]))
    def begin_with_options(self, window_s, retention_s):
        self.ledger.window = timedelta(seconds=window_s)
        self.ledger.retention_s = retention_s
        self.arun(
            self.observer.configure(
                self.queue,
                dedup_window_s=window_s,
                retention_enabled=True,
                retention_s=retention_s,
            )
        )
        self.process = self.processes[0]
        self.push("a", [1, 2, 3])
        self._settle()
        self._end(self.process, is_kept=True)

    # Beginning and ending calls

    @precondition(lambda self: any(process.is_free for process in self.processes))
    @rule(number=numbers, partition=partitions, names=names, is_kept=kept)
    def begin_push(self, number, partition, names, is_kept):
        self._begin_action(number, is_kept, ("push", {"partition": partition, "numbers": names}))

    @precondition(lambda self: any(process.is_free for process in self.processes))
    @rule(
        number=numbers,
        action=action(
            "pop",
            group=groups,
            partition=st.one_of(st.none(), partitions),
            batch=st.sampled_from([1, 2, 100]),
            auto_ack=st.sampled_from([False, False, True]),
        ),
        is_kept=st.sampled_from([True, True, False]),
    )
    def begin_poll(self, number, action, is_kept):
        self._begin_action(number, is_kept, action)

    @precondition(lambda self: self.claims and any(each.is_free for each in self.processes))
    @rule(
        number=numbers,
        action=st.one_of(
            action("ack", recency=recency, index=st.integers(0, 3), status=statuses),
            action("ack", recency=recency, index=st.just(-1), status=st.just("completed")),
            action("transact", recency=recency, partition=partitions, numbers=names),
            action("release", recency=recency),
        ),
        is_kept=kept,
    )
    def begin_answer(self, number, action, is_kept):
        self._begin_action(number, is_kept, action)

    @precondition(lambda self: any(process.is_free for process in self.processes))
    @rule(
        number=numbers,
        action=st.one_of(
            action("drop_oldest", messages=st.integers(1, 4)),
            action("retain"),
            action("remove_idle_partitions"),
        ),
        is_kept=kept,
    )
    def begin_to_clean_up(self, number, action, is_kept):
        self._begin_action(number, is_kept, action)

    def _begin_action(self, number, is_kept, action):
        """Begin a call of a process that has none; perhaps it is committed at once."""
        free = [process for process in self.processes if process.is_free]
        self.process = free[number % len(free)]
        self.perform(action)
        self._settle()
        if is_kept and not (self.process.is_free or self.process.is_waiting):
            self._end(self.process, is_kept=True)

    @precondition(lambda self: not all(process.is_free for process in self.processes))
    @rule(number=numbers, is_kept=st.sampled_from([True, True, True, False]))
    def end(self, number, is_kept):
        """Commit a call, or roll it back."""
        open_ones = [each for each in self.processes if not (each.is_free or each.is_waiting)]
        if open_ones:
            self._end(open_ones[number % len(open_ones)], is_kept=is_kept)

    @precondition(lambda self: not any(process.is_waiting for process in self.processes))
    @rule(seconds=st.sampled_from([1, 5, 30, 61]))
    def let_time_pass(self, seconds):
        """Let the clock of calls to come go on; what is executed has its time already."""
        self.now += timedelta(seconds=seconds)

    def _begin_call(self, call, check):
        process, now = self.process, self.now
        self.now += MICROSECOND  # what a poll leaves ready is ready after it

        async def begin():
            await process.log.set_clock(now)
            try:
                return await call(process)
            except asyncpg.LockNotAvailableError:  # background work does not wait for long
                await process.log.execute("rollback")
                return None

        def check_if_done(answer):
            return None if answer is None else check(answer)

        self.arun(process.start(begin(), check_if_done))

    def _settle(self):
        self.has_failed = True
        self.arun(settle_all(self.processes, self.observer))
        self.has_failed = False

    def _end(self, process, *, is_kept):
        self.arun(process.end(is_kept=is_kept))
        self.what_is_committed_agrees()
        self._settle()

    @property
    def _is_alone(self):
        """Whether no other process has anything under way."""
        return all(each.is_free for each in self.processes if each is not self.process)

    # Calls

    async def _provision(self, process, partition):
        if partition not in process.ids:
            [id_] = await process.log.provision(self.queue, partition)
            process.ids[partition] = id_
            self.ledger.add_partition(partition, id_, self.now)
            await process.log.execute(
                "update skep.partition set created_at = skep.now()"
                " where id = $1 and created_at > skep.now()",
                id_,
            )
        return process.ids[partition]

    def push(self, partition, numbers):
        process, now = self.process, self.now
        wanted = [f"{partition}{number}" for number in numbers]

        async def call(process):
            return await process.push(await self._provision(process, partition), wanted)

        def check(sent):
            self.ledger.check_push(sent, now)
            return lambda: self._pushed(process, sent)

        self._begin_call(call, check)

    def _pushed(self, process, sent):
        process.remember(sent)
        if self.ledger.by_id(sent.partition_id) is None:
            process.forget(sent.partition_id)
        elif sent.first is not None:
            self.ledger.append(sent.partition_id, sent.names, sent.created_at)

    def pop(self, group, partition, batch, auto_ack):
        """Poll any partition, or one that the broker knows."""
        process, now, is_alone = self.process, self.now, self._is_alone
        id_ = process.ids.get(partition, 0)
        lease = timedelta(seconds=60)
        poll = Poll(batch=batch, partitions=2, auto_ack=auto_ack, partition_id=id_)

        async def call(process):
            await process.begin()
            serve = process.log.pop_partitions if id_ else process.log.pop
            return await serve(self.group_ids[group], poll)

        def check(taken):
            if any(row.first is None for row in taken):
                assert self.ledger.by_id(id_) is None, "a partition was not found"
                return lambda: process.forget(id_)
            taken_by_id = {}
            for message in taken.messages:
                taken_by_id.setdefault(message.partition_id, []).append(message)
            for each, messages in taken_by_id.items():
                self.ledger.check_claim(each, group, messages, now)
            if is_alone:
                asked = {id_} if id_ else None
                self.ledger.check_nothing_left_out(group, poll, taken_by_id, asked, now)
            claims = [
                Claim(each, group, poll.lease_id, [message.offset for message in messages])
                for each, messages in taken_by_id.items()
            ]
            return lambda: self._claimed(claims, None if auto_ack else now + lease)

        self._begin_call(call, check)

    def _claimed(self, claims, ends_at):
        for claim in claims:
            self.ledger.claim(claim, ends_at)
        self.claims += claims

    def _claim(self, recency):
        return self.claims[max(len(self.claims) - 1 - recency, 0)] if self.claims else None

    def _ack_of(self, claim, index, status):
        at = claim.offsets[index % len(claim.offsets)]
        return Ack(claim.partition_id, at, claim.lease_id, status, group=claim.group)

    def ack(self, recency, index, status):
        claim, now = self._claim(recency), self.now
        if claim is None:
            return
        ack = self._ack_of(claim, index, status)

        async def call(process):
            await process.begin()
            return await process.log.outcomes(ack)

        def check(outcomes):
            expected = self.ledger.outcome(ack, now)
            assert outcomes == ([] if expected is None else [expected])
            return lambda: self.ledger.ack(ack, expected)

        self._begin_call(call, check)

    def transact(self, recency, partition, numbers):
        """Ack and push, all or nothing."""
        claim, now, process = self._claim(recency), self.now, self.process
        if claim is None:
            return
        ack = self._ack_of(claim, -1, "completed")
        wanted = [f"{partition}{number}" for number in numbers]

        async def call(process):
            id_ = await self._provision(process, partition)
            await process.begin()
            return id_, await transact(process.log, [ack], {id_: wanted})

        def check(answer):
            id_, settled = answer
            expected = self.ledger.outcome(ack, now)
            if self.ledger.by_id(id_) is None or expected != "acked":
                assert settled.refusal is not None or expected == "noop"
                return lambda: process.forget(id_)
            assert settled.refusal is None
            new = self.ledger.check_distinct(id_, wanted, settled, now)

            def apply():
                self.ledger.ack(ack, expected)
                if new:
                    self.ledger.append(id_, new, settled.row["partition_created_at"][0])

            return apply

        self._begin_call(call, check)

    def release(self, recency):
        """Take back what a consumer never received."""
        claim = self._claim(recency)
        if claim is None:
            return

        async def call(process):
            await process.begin()
            group_id = self.group_ids[claim.group]
            return await process.log.release(claim.partition_id, group_id, claim.lease_id)

        def check(released):
            assert bool(released) == self.ledger.can_release(claim)
            return lambda: self.ledger.release(claim) if released else None

        self._begin_call(call, check)

    # Cleaning up

    def drop_oldest(self, messages):
        async def call(process):
            await process.begin()
            query = "select * from skep.drop_oldest($1, $2)"
            await process.log.row(query, self.queue_id, messages)
            return await self._tails(process.log)

        self._begin_call(call, lambda tails: lambda: self.ledger.move_tails(tails))

    def retain(self):
        now = self.now

        async def call(process):
            await process.begin()
            process_keeper = Keeper(process.log)
            process_keeper.holder = self.keeper.holder
            await process_keeper.retain(queue=self.queue)
            return await self._tails(process.log)

        def check(tails):
            self.ledger.check_retention(tails, now)
            return lambda: self.ledger.move_tails(tails, is_told=True)

        self._begin_call(call, check)

    async def _tails(self, log):
        """Return the tails as the open transaction sees them."""
        query = "select id, tail from skep.partition where queue_id = $1"
        return dict(map(tuple, await log.rows(query, self.queue_id)))

    def remove_idle_partitions(self):
        now, is_alone = self.now, self._is_alone
        idle_s = 20

        async def call(process):
            await process.begin()
            await process.log.row(
                "select * from skep.remove_idle_partitions($1, $2, $3, 0, 1000, $4)",
                SERVICE,
                self.keeper.holder,
                self.keeper.run_id,
                idle_s,
            )
            return set(await self._tails(process.log))

        def check(left):
            cutoff = now - timedelta(seconds=idle_s)
            gone = self.ledger.check_removal(left, cutoff, is_alone=is_alone)
            return lambda: self.ledger.remove(gone)

        self._begin_call(call, check)

    # What holds at any time

    @invariant()
    def what_is_committed_agrees(self):
        logs, cursors = self.arun(self._read())
        self.ledger.compare_log(
            {
                row["id"]: (
                    row["head"],
                    row["tail"],
                    [(first, last, keys) for first, last, keys in row["segments"] or ()],
                )
                for row in logs
            },
            keys_of,
        )
        self.ledger.compare_cursors({(row["partition_id"], row["name"]): row for row in cursors})

    async def _read(self):
        return (
            await self.observer.rows(LOG, self.queue_id),
            await self.observer.rows(CURSORS, self.queue_id),
        )

    def teardown(self):
        """In the end every call is over, and every group gets what it is owed."""
        try:
            if not self.has_failed:
                self._finish()
        finally:
            for process in self.processes:
                self.arun(process.give_up())

    def _finish(self):
        while not all(process.is_free for process in self.processes):
            assert not all(process.is_waiting for process in self.processes)
            self.end(0, is_kept=True)
        self.now += timedelta(seconds=LONG)
        self.process = self.processes[0]
        for group in self.group_ids:
            self.pop(group, None, 1000, auto_ack=True)
            self._settle()
            self._end(self.process, is_kept=True)
            assert not self.ledger.unread(group)
        self.what_is_committed_agrees()


@pytest.mark.timeout(120 + EXAMPLES)
def test_nothing_is_lost_whatever_brokers_do_at_once(log, open_log, arun):
    keeper = arun(Keeper.appoint(log))
    logs = [arun(open_log()) for _ in range(PROCESSES)]
    run_state_machine_as_test(
        lambda: Brokers(log, logs, keeper, arun),
        settings=settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None),
    )
