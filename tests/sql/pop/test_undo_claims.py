from types import SimpleNamespace
from uuid import uuid4

from skep.broker.directory import Group
from skep.broker.pop.accept import UnwantedClaim
from skep.broker.pop.execute import ClaimReturns
from tests.sql.support.log import Ack, Poll


def undo(log, group, *lease_ids):
    return log.value("select skep.undo_claims($1, $2)", group, list(lease_ids))


async def test_leased_claims_are_found_by_their_lease_and_given_back(log):
    a, b = await log.provision("hive", "a", "b")
    group = await log.subscribe("hive")
    await log.push_writes({a: "x", b: "y"})
    poll = Poll(partitions=2)
    await log.pop(group, poll)

    assert await undo(log, group, poll.lease_id) == 2

    taken = await log.pop(group, Poll(partitions=2))
    assert {(m.transaction_id, m.delivery) for m in taken.messages} == {("x", 1), ("y", 1)}


async def test_claims_acknowledged_at_once_are_given_back(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b")
    poll = Poll(auto_ack=True)
    await log.pop(group, poll)

    assert await undo(log, group, poll.lease_id) == 1

    assert (await log.pop(group)).offsets == [1, 2]


async def test_a_call_that_had_claimed_nothing_is_undone_by_doing_nothing(log):
    partition, group = await log.partition()
    await log.push(partition, "a")

    assert await undo(log, group, uuid4()) == 0
    assert (await log.pop(group)).offsets == [1]


async def test_a_claim_is_left_alone_when_the_cursor_moved_on(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b")
    lost = Poll(auto_ack=True, batch=1)
    await log.pop(group, lost)
    await log.advance()
    await log.pop(group, Poll(auto_ack=True))

    assert await undo(log, group, lost.lease_id) == 0
    assert (await log.cursor(partition, group))["acked"] == 2


async def test_a_claim_acknowledged_at_once_outlives_that_its_partition_is_put_to_rest(log):
    """A partition is left ready while a push is in flight; the next poll may find nothing yet."""
    partition, group = await log.partition()
    await log.push(partition, "a")
    lost = Poll(auto_ack=True)
    await log.pop(group, lost)
    await log.execute("update skep.cursor set available_at = $1", log.now)
    await log.advance()
    assert await log.pop(group) == []

    assert await undo(log, group, lost.lease_id) == 1
    assert (await log.pop(group)).offsets == [1]


async def test_a_lease_that_was_completed_stays_done(log):
    partition, group = await log.partition()
    await log.push(partition, "a")
    poll = Poll()
    await log.pop(group, poll)
    await log.ack(Ack(partition, 1, poll.lease_id))

    assert await undo(log, group, poll.lease_id) == 0
    assert (await log.cursor(partition, group))["acked"] == 1


async def test_other_groups_and_other_leases_keep_their_claims(log):
    partition, group = await log.partition()
    bees = await log.subscribe("hive", "bees")
    await log.push(partition, "a")
    poll = Poll(lease_s=30)
    await log.pop(group, poll)
    await log.pop(bees, poll)

    assert await undo(log, group, poll.lease_id, uuid4()) == 1
    assert await log.next_available(bees) == 30


async def test_a_lease_that_was_partly_acknowledged_gives_back_only_the_rest(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b")
    poll = Poll()
    await log.pop(group, poll)
    await log.ack(Ack(partition, 1, poll.lease_id))

    assert await undo(log, group, poll.lease_id) == 1
    assert (await log.pop(group)).offsets == [2]


async def test_acks_of_a_part_of_a_lease_touch_no_index(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b", "c", "d")
    poll = Poll()
    await log.pop(group, poll)
    query = "select pg_stat_get_xact_tuples_hot_updated('skep.cursor'::regclass)"

    async with log.connection.transaction():
        before = await log.value(query)
        await log.ack(Ack(partition, 1, poll.lease_id))  # a plain one
        await log.ack(Ack(partition, 2, poll.lease_id), Ack(partition, 3, poll.lease_id))

        assert await log.value(query) - before == 2


async def test_all_claims_that_a_failover_left_in_doubt_are_undone_in_one_call(log):
    (partition,) = await log.provision("hive", "a")
    groups = {name: await log.subscribe("hive", name) for name in ("bees", "wasps", "ants")}
    await log.push(partition, "x")
    claims, answers = [], []
    for name, group in groups.items():
        poll = Poll(auto_ack=name == "ants")
        await log.pop(group, poll)
        claims.append(
            UnwantedClaim(Group("hive", name, 1, group), poll.lease_id, (), answers.append)
        )
    calls, woken = [], []

    async def call(statement, *arguments):
        calls.append(statement)
        return await log.rows(statement, *arguments)

    announcer = SimpleNamespace(announce=lambda *arguments: woken.append(arguments))
    returns = ClaimReturns(SimpleNamespace(call=call), announcer, is_whole=lambda: True)

    await returns.undo(claims, is_repeated=False)

    assert len(calls) == 1
    assert all(claim.is_settled for claim in claims)
    assert answers == [None] * 3
    assert len(woken) == 3
    assert [(await log.pop(group)).offsets for group in groups.values()] == [[1]] * 3
