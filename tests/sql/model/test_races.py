"""Sessions that meet at the same row, arranged so that each order of events really happens."""

import asyncio
import random
from collections import defaultdict
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg
import pytest

from tests.sql.support.log import ALWAYS, NOON, Ack, Guarantee, Poll, keys_of
from tests.sql.support.waiting import eventually
from tests.support.sizes import sized

GUARANTEED = Guarantee(1 << 60, ALWAYS)
"""The word of a broker that knows every key; the keys of these tests are all different."""


async def until_it_waits(observer, task, log):
    """Return when the session waits for a lock; fail if its task ends without waiting."""
    query = "select wait_event_type = 'Lock' from pg_stat_activity where pid = $1"
    pid = log.connection.get_server_pid()

    async def has_stopped():
        return task.done() or await observer.value(query, pid)

    await eventually(has_stopped)
    assert not task.done(), "it did not wait"


@asynccontextmanager
async def waiting(observer, log, coroutine):
    """Start what must wait for a lock, and give it time to finish when the block is left."""
    async with asyncio.timeout(60):
        task = asyncio.get_running_loop().create_task(coroutine)
        await until_it_waits(observer, task, log)
        yield task
        await task


@pytest.fixture
def other(arun, open_log):
    return arun(open_log())


@pytest.fixture
def observer(arun, open_log):
    return arun(open_log())


async def consume(log, group, **options):
    """Pop everything there is and return the transaction ids."""
    await log.advance()
    taken = await log.pop(group, Poll(partitions=10, auto_ack=True, **options))
    return [message.transaction_id for message in taken.messages]


async def test_an_ack_that_waited_for_a_group_that_is_forgotten_fails_nobody(log, other, observer):
    forgotten, kept = await log.provision("hive", "a", "b")
    groups = [await log.subscribe("hive", name) for name in ("bees", "drones")]
    await log.push_writes({forgotten: "x", kept: "y"})
    leases = [Poll(partitions=2), Poll(partitions=2)]
    for group, poll in zip(groups, leases, strict=True):
        await log.pop(group, poll)
    acks = [
        Ack(forgotten, 1, leases[0].lease_id, "failed", group="bees"),
        Ack(kept, 1, leases[1].lease_id, group="drones"),
    ]
    queue_id = await log.value("select id from skep.queue")

    async with log.connection.transaction():
        await log.value("select skep.forget_group($1)", groups[0])
        await log.rows(
            "select * from skep.forget_partitions($1, $2, false, '', 10)", queue_id, groups[0]
        )
        task = asyncio.get_running_loop().create_task(other.ack(*acks))
        await until_it_waits(observer, task, other)

    assert [(answer.item, answer.outcome) for answer in await task] == [(2, "acked")]


async def leased_message(log):
    """Push a message and lease it; return the partition, the group and the lease."""
    partition, group = await log.partition()
    await log.push(partition, "first")
    poll = Poll()
    await log.pop(group, poll)
    return partition, group, poll.lease_id


async def test_defect_01_a_push_that_commits_late_is_not_passed_over(log, other, observer):
    partition, group = await log.partition()

    async with waiting_push(log, other, observer, partition):
        assert await consume(observer, group) == [], "a message was served before its commit"

    assert await consume(observer, group) == ["late", "second"]


@asynccontextmanager
async def waiting_push(log, other, observer, partition):
    """One session has pushed and not committed; another waits to push. Both commit at the end."""
    transaction = log.connection.transaction()
    await transaction.start()
    await log.push(partition, "late")
    async with waiting(observer, other, other.push(partition, "second")):
        yield
        await transaction.commit()


async def test_a_rolled_back_push_leaves_no_hole(log, other, observer):
    partition, group = await log.partition()
    transaction = log.connection.transaction()
    await transaction.start()
    await log.push(partition, "never")

    async with waiting(observer, other, other.push(partition, "only")) as pushed:
        await transaction.rollback()

    assert pushed.result().first == 1
    assert await consume(observer, group) == ["only"]


async def test_a_duplicate_that_is_not_committed_yet_is_waited_for(log, other, observer):
    partition, _ = await log.partition()
    transaction = log.connection.transaction()
    await transaction.start()
    await log.push(partition, "same")

    async with waiting(observer, other, other.push(partition, "same")) as pushed:
        await transaction.commit()

    assert pushed.result().duplicates == {0: 1}


async def test_a_pop_leaves_a_partition_ready_while_a_push_is_in_flight_on_it(log, other):
    partition, group = await log.partition()
    await log.push(partition, "first")

    async with log.connection.transaction():
        await log.push(partition, "second")
        assert await consume(other, group) == ["first"]
        assert await other.next_available(group) is not None

    assert await consume(other, group) == ["second"]


async def test_a_pop_that_finds_nothing_leaves_a_partition_ready_while_a_push_is_in_flight(
    log, other
):
    partition, _ = await log.partition()
    group = await log.subscribe("hive", "bees")

    async with log.connection.transaction():
        await log.push(partition, "first")
        assert await consume(other, group) == []
        assert await other.next_available(group) is not None

    assert await consume(other, group) == ["first"]


@pytest.mark.parametrize("items", [1, 2], ids=["plain", "several"])
async def test_an_ack_leaves_a_partition_ready_while_a_push_is_in_flight_on_it(log, other, items):
    partition, group, lease = await leased_message(other)

    async with log.connection.transaction():
        await log.push(partition, "second")
        answers = await other.ack(*[Ack(partition, 1, lease)] * items)
        assert [answer.has_more for answer in answers] == [True] * items

    assert await consume(other, group) == ["second"]


async def test_a_push_waits_for_a_pop_that_puts_the_partition_to_rest_and_wakes_it_again(
    log, other, observer
):
    partition, group = await log.partition()
    await log.push(partition, "first")
    transaction = log.connection.transaction()
    await transaction.start()
    assert await consume(log, group) == ["first"]

    async with waiting(observer, other, other.push(partition, "second")):
        await transaction.commit()

    assert await consume(log, group) == ["second"]


@pytest.mark.parametrize("items", [1, 2], ids=["plain", "several"])
async def test_a_push_waits_for_an_ack_that_puts_the_partition_to_rest_and_wakes_it_again(
    log, other, observer, items
):
    partition, group, lease = await leased_message(log)
    transaction = log.connection.transaction()
    await transaction.start()
    answers = await log.ack(*[Ack(partition, 1, lease)] * items)
    assert not any(answer.has_more for answer in answers)

    async with waiting(observer, other, other.push(partition, "second")):
        await transaction.commit()

    assert await consume(log, group) == ["second"]


async def test_a_push_wakes_a_cursor_that_somebody_changed_while_it_waited_for_it(
    log, other, observer
):
    partition, group = await log.partition()
    transaction = log.connection.transaction()
    await transaction.start()
    await log.execute("update skep.cursor set deliveries = 1")

    async with waiting(observer, other, other.push(partition, "first")):
        await transaction.commit()

    assert await consume(log, group) == ["first"]


async def test_a_push_hands_over_by_what_a_cursor_became_while_it_waited_for_it(
    log, other, observer
):
    partition, group = await log.partition()
    await log.push(partition, "first")
    await consume(log, group)
    transaction = log.connection.transaction()
    await transaction.start()
    await log.execute("update skep.cursor set failed_offset = '{2}', failed_count = '{1}'")

    pushing = other.hand_over({partition: ["second"]}, {partition: 1}, {partition: (group, Poll())})
    async with waiting(observer, other, pushing) as pushed:
        await transaction.commit()

    assert await pushed == {}
    assert await consume(other, group) == ["second"]


async def test_a_push_finds_the_cursor_of_a_group_that_came_while_it_was_in_flight(log, other):
    partition, _ = await log.partition()

    async with log.connection.transaction():
        await log.push(partition, "first")
        group = await other.subscribe("hive", "bees", "new")

    assert await consume(other, group) == ["first"]


async def test_two_claimers_never_get_the_same_partition(log, other, observer):
    a, b = await log.provision("hive", "a", "b")
    group = await log.subscribe("hive")
    await log.push_writes({a: "x", b: "y"})

    async with log.connection.transaction():
        mine = (await log.pop(group)).partitions
        theirs = (await other.pop(group)).partitions
        nobodys = (await observer.pop(group, Poll(partitions=2))).partitions

    assert sorted(mine + theirs) == sorted([a, b])
    assert nobodys == []
    assert await observer.pop(group, Poll(partitions=2)) == []


async def test_a_partition_asked_for_by_name_is_not_waited_for(log, other):
    partition, group = await log.partition()
    await log.push(partition, "x")

    async with log.connection.transaction():
        await log.pop(group)
        assert await other.pop_partitions(group, Poll(partition_id=partition)) == []


async def test_an_ack_waits_for_the_claim_that_takes_its_lease_over(log, other, observer):
    partition, group, lease = await leased_message(log)
    for session in (log, other):
        await session.advance(300)
    transaction = log.connection.transaction()
    await transaction.start()
    await log.pop(group)

    async with waiting(observer, other, other.outcomes(Ack(partition, 1, lease))) as acked:
        await transaction.commit()

    assert acked.result() == ["lease_lost"]


async def test_a_renewal_waits_for_the_ack_that_ends_its_lease(log, other, observer):
    partition, _, lease = await leased_message(log)
    transaction = log.connection.transaction()
    await transaction.start()
    await log.ack(Ack(partition, 1, lease))

    async with waiting(observer, other, other.renew(lease, 60)) as renewed:
        await transaction.commit()

    assert renewed.result() is None


async def test_a_group_and_a_partition_that_come_at_the_same_time_have_a_cursor(
    log, other, observer
):
    await log.provision("hive", "old")
    transaction = log.connection.transaction()
    await transaction.start()
    [partition] = await log.provision("hive", "new")

    async with waiting(observer, other, other.subscribe("hive", "bees")) as subscribed:
        await transaction.commit()

    assert await log.cursor(partition, subscribed.result()) is not None


async def test_a_partition_and_a_group_that_come_at_the_same_time_have_a_cursor(
    log, other, observer
):
    await log.provision("hive", "old")
    transaction = log.connection.transaction()
    await transaction.start()
    group = await log.subscribe("hive", "bees")

    async with waiting(observer, other, other.provision("hive", "new")) as provisioned:
        await transaction.commit()

    [partition] = provisioned.result()
    assert await log.cursor(partition, group) is not None


async def test_two_subscriptions_of_a_new_group_become_one(log, other, observer):
    partition, _ = await log.partition()
    transaction = log.connection.transaction()
    await transaction.start()
    group = await log.subscribe("hive", "bees")

    async with waiting(observer, other, other.subscribe("hive", "bees")) as subscribed:
        await transaction.commit()

    assert subscribed.result() == group
    count = "select count(*) from skep.cursor where partition_id = $1 and group_id = $2"
    assert await log.value(count, partition, group) == 1


async def test_a_queue_that_two_calls_create_is_the_same_for_both(log, other, observer):
    transaction = log.connection.transaction()
    await transaction.start()
    mine = await log.provision("hive", "a")

    async with waiting(observer, other, other.provision("hive", "a")) as provisioned:
        await transaction.commit()

    assert provisioned.result() == mine


@pytest.mark.parametrize("queues_exist", [False, True])
async def test_defect_23_calls_that_create_the_same_partitions_neither_deadlock_nor_differ(
    log, other, observer, queues_exist
):
    sessions, dice = [log, other, observer], random.Random(7)
    partition_count = 60 if queues_exist else 3  # enough for the calls to overlap
    for number in range(30):
        partitions = [
            (f"queue {number}.{q}", f"partition {p}")
            for q in range(3)
            for p in range(partition_count)
        ]
        if queues_exist:
            await provision_all(log, {(queue, "old") for queue, _ in partitions})
        orders = [dice.sample(partitions, len(partitions)) for _ in sessions]

        answers = await asyncio.gather(*map(provision_all, sessions, orders))

        assert answers[0].keys() == set(partitions)
        for partition in partitions:
            assert len({answer[partition]["partition_id"] for answer in answers}) == 1
            assert sorted(answer[partition]["created"] for answer in answers) == [
                False,
                False,
                True,
            ]
    await assert_no_cursor_is_missing(log)


async def provision_all(log, partitions):
    rows = await log.rows(
        "select * from skep.provision_partitions($1, $2)",
        [queue for queue, _ in partitions],
        [partition for _, partition in partitions],
    )
    return {(row["queue_name"], row["partition_name"]): row for row in rows}


async def test_groups_and_partitions_that_come_in_any_order_miss_no_cursor(log, other, observer):
    for number in range(40):
        queue = f"queue {number}"
        await asyncio.gather(
            log.provision(queue, "a", "b"),
            other.subscribe(queue, "bees"),
            observer.provision(queue, "b", "c"),
        )

    await assert_no_cursor_is_missing(log)


async def test_a_guaranteed_push_that_waited_for_another_one_stores_nothing(log, other, observer):
    [partition] = await log.provision("hive", "a")
    writes, heads = {partition: "x"}, {partition: 0}
    transaction = log.connection.transaction()
    await transaction.start()
    assert await log.push_guaranteed(writes, heads) != {}

    async with waiting(observer, other, other.push_guaranteed(writes, heads)) as late:
        await transaction.commit()

    assert late.result() == {}
    assert await log.value("select head from skep.partition") == 1


async def test_a_contested_push_that_waited_for_another_one_compares_with_it(log, other, observer):
    [partition] = await log.provision("hive", "a")
    transaction = log.connection.transaction()
    await transaction.start()
    await log.push_contested({partition: "x"}, {partition: 0})

    async with waiting(
        observer, other, other.push_contested({partition: "y"}, {partition: 0})
    ) as late:
        await transaction.commit()

    assert late.result() == ({partition: (2, NOON)}, [(partition, 1, NOON, keys_of("x"))])
    with pytest.raises(asyncpg.PostgresError):
        await other.push_contested({partition: "x"}, {partition: 0})


async def assert_no_cursor_is_missing(log):
    missing = await log.value(
        """
        select count(*)
        from skep.partition p
        join skep.consumer_group g on g.queue_id = p.queue_id
        left join skep.cursor c on c.partition_id = p.id and c.group_id = g.id
        where c.partition_id is null
        """
    )
    assert missing == 0


class Traffic:
    """Overlapping pushes, pops, acks, renewals and releases of one session, drawn at random.

    Consumers keep up with producers, so that partitions fall idle and are woken all the time, and
    acks also name partitions whose lease this session does not hold, so that they lock what others
    lock.
    """

    ROUNDS = sized(750, large=2_500)

    def __init__(self, log, partitions, group_ids, seed):
        self.log = log
        self.partitions = partitions
        self.group_ids = group_ids
        self.dice = random.Random(seed)
        self.heads = defaultdict(int)
        self.pushed = set()
        self.delivered = {group: set() for group in group_ids}

    async def run(self):
        await self.log.execute("reset skep.fake_now")
        self.versions = await self.log.versions(self.partitions)
        for number in range(self.ROUNDS):
            await self.push(number)
            if number % 4 == 0:
                await self.consume()

    async def push(self, number):
        chosen = self.dice.sample(self.partitions, self.dice.randint(2, 4))
        writes = {id_: [f"{id(self)} {number} {id_}"] for id_ in chosen}
        self.pushed.update(name for [name] in writes.values())
        if self.chance(0.5):
            heads = {id_: self.heads[id_] if self.chance(0.5) else None for id_ in writes}
            for id_ in await self.push_known(writes, heads):
                del writes[id_]
            if not writes:
                return
        is_probed = self.dice.random() < 0.05
        guarantees = {
            id_: Guarantee(self.heads[id_], ALWAYS) if is_probed else GUARANTEED for id_ in writes
        }
        rows = await self.log.push_writes(writes, guarantees)
        self.heads.update({row.partition_id: row.first for row in rows})

    async def push_known(self, writes, heads):
        """Push what the cache guarantees, expecting others or not; return what was stored."""
        if self.chance(0.5):
            return await self.log.push_guaranteed(writes, heads, versions=self.versions)
        stored, gaps = await self.log.push_contested(writes, heads, versions=self.versions)
        self.heads.update({id_: first for id_, first, _, _ in gaps})
        return stored

    async def consume(self):
        acks = []
        for group, group_id in self.group_ids.items():
            poll = Poll(batch=1000, partitions=self.dice.randint(1, 8), auto_ack=self.chance(0.2))
            taken = await self.log.pop(group_id, poll)
            self.delivered[group].update(message.transaction_id for message in taken.messages)
            acks += [
                Ack(row.partition_id, row.taken_to, poll.lease_id, self.status(), group=group)
                for row in taken
            ]
            acks += [
                Ack(partition, 1 << 60, uuid4(), self.status(), group=group)
                for partition in self.dice.sample(self.partitions, 3)
            ]
            await self.renew_or_release(group_id, poll, taken)
        self.dice.shuffle(acks)
        await self.log.ack(*acks)

    async def renew_or_release(self, group_id, poll, taken):
        if self.chance(0.5):
            await self.log.renew(poll.lease_id, 600)
        if self.chance(0.1):
            partitions = taken.partitions[::-1]
            query = "select skep.release_claims($1, $2, $3)"
            groups, leases = [group_id] * len(partitions), [poll.lease_id] * len(partitions)
            await self.log.execute(query, partitions, groups, leases)

    def status(self):
        return self.dice.choice(["completed", "completed", "completed", "failed"])

    def chance(self, share):
        return self.dice.random() < share


@pytest.mark.slow
async def test_thousands_of_overlapping_pushes_with_pops_and_acks_never_deadlock(log, open_log):
    await log.configure("hive", retry_delay_ms=0, retry_limit=1_000_000)
    partitions = await log.provision("hive", *"abcdefgh")
    group_ids = {name: await log.subscribe("hive", name) for name in ("bees", "drones")}
    sessions = [await open_log() for _ in range(4)]
    traffic = [Traffic(s, partitions, group_ids, seed) for seed, s in enumerate(sessions)]

    await asyncio.gather(*(each.run() for each in traffic))

    await assert_offsets_are_dense(log, partitions)
    await assert_everything_is_delivered(log, traffic, group_ids)


async def assert_offsets_are_dense(log, partitions):
    holes = await log.value(
        """
        select count(*)
        from (
          select s.first, lag(s.last, 1, 0::bigint) over partition as last_before,
                 s.created_at < lag(s.created_at) over partition as is_backwards
          from skep.segment s
          window partition as (partition by s.partition_id order by s.first)
        ) s
        where s.first <> s.last_before + 1 or s.is_backwards
        """
    )
    assert holes == 0
    heads = await log.rows(
        """
        select p.id, p.head, max(s.last) as last, sum(s.last - s.first + 1) as messages
        from skep.partition p join skep.segment s on s.partition_id = p.id group by p.id
        """
    )
    assert sorted(row["id"] for row in heads) == sorted(partitions)
    assert all(row["head"] == row["last"] == row["messages"] for row in heads)


async def assert_everything_is_delivered(log, traffic, group_ids):
    """Drain what is left, once every lease is over, and compare."""
    await log.set_clock(NOON.replace(year=2100))
    pushed = set().union(*(each.pushed for each in traffic))
    for group, group_id in group_ids.items():
        rest = await log.pop(group_id, Poll(batch=1_000_000, partitions=100, auto_ack=True))
        left = {message.transaction_id for message in rest.messages}
        assert left.union(*(each.delivered[group] for each in traffic)) == pushed
        assert await log.next_available(group_id) is None
