from datetime import timedelta
from uuid import uuid4

import asyncpg
import pytest

from tests.sql.support.housekeeping import Keeper
from tests.sql.support.log import NOON, Poll


@pytest.fixture
def keeper(arun, log):
    return arun(Keeper.appoint(log))


async def impatient_partition(log, seconds=60, partition="a"):
    """Return a partition of a queue that lets messages wait for so long, and its group."""
    partition = await log.partition("hive", partition)
    await log.configure("hive", max_wait_time_s=seconds)
    return partition


async def test_what_waited_too_long_is_buried_and_the_rest_delivered(log, keeper):
    partition, group = await impatient_partition(log)
    await log.push(partition, "a", "b")
    await log.advance(50)
    await log.push(partition, "c")
    await log.advance(20)

    step = await keeper.evict()

    assert (step.messages, step.queue_name, step.letters) == (2, "hive", 2)
    letters = await log.dead_letters()
    assert [(row["transaction_id"], row["error"]) for row in letters] == [
        ("a", "Waited too long"),
        ("b", "Waited too long"),
    ]
    assert (await log.pop(group)).offsets == [3]


async def test_defect_43_a_group_that_lags_costs_the_others_nothing(log, keeper):
    partition, slow = await impatient_partition(log)
    fast = await log.subscribe("hive", "fast")
    late = await log.subscribe("hive", "late")
    await log.push(partition, "a")
    await log.pop(fast, Poll(auto_ack=True))
    poll = Poll(lease_s=1000)
    await log.pop(late, poll)
    await log.advance(61)

    assert await keeper.evict_all() == 1

    assert [row["group_id"] for row in await log.dead_letters()] == [slow]
    assert await keeper.kept(partition) == (1, 1)
    assert (await log.cursor(partition, late))["lease_id"] == poll.lease_id
    assert (await log.cursor(partition, late))["acked"] == 0


async def test_a_queue_that_was_never_polled_is_evicted_for_the_default_group(log, keeper):
    [partition] = await log.provision("hive", "a")
    await log.configure("hive", max_wait_time_s=60)
    await log.push(partition, "a")
    await log.advance(50)
    await log.push(partition, "b")
    await log.advance(11)

    assert await keeper.evict_all() == 1

    [letter] = await log.dead_letters()
    assert (letter["transaction_id"], letter["error"]) == ("a", "Waited too long")
    assert await keeper.kept(partition) == (1, 2)
    assert (await log.pop(await log.subscribe())).offsets == [2]
    newcomer = await log.subscribe("hive", "bees")
    assert (await log.pop(newcomer)).offsets == [1, 2], "a group that subscribes gets everything"


async def test_defect_43_a_default_group_that_was_never_polled_beside_others_evicts_nothing(
    log, keeper
):
    [partition] = await log.provision("hive", "a")
    await log.configure("hive", max_wait_time_s=60)
    named = await log.subscribe("hive", "bees")
    await log.push(partition, "a")
    await log.pop(named, Poll(auto_ack=True))
    await log.advance(1000)

    assert await keeper.evict_all() == 0
    assert await log.dead_letters() == []


async def test_a_message_waits_for_a_group_from_its_first_poll_on(log, keeper):
    partition, _ = await impatient_partition(log)
    await log.push(partition, "old")
    await log.advance(1000)
    newcomer = await log.subscribe("hive", "newcomer")
    await log.advance(60)

    await keeper.evict_all()
    assert newcomer not in {row["group_id"] for row in await log.dead_letters()}
    await log.advance(1)
    await keeper.evict_all()
    assert newcomer in {row["group_id"] for row in await log.dead_letters()}


async def test_a_lease_that_expired_leaves_its_messages_waiting(log, keeper):
    partition, group = await impatient_partition(log)
    await log.push(partition, "a")
    await log.pop(group, Poll(lease_s=100))
    await log.advance(99)
    assert await keeper.evict_all() == 0
    await log.advance(1)
    assert await keeper.evict_all() == 1


async def test_steps_bury_no_more_than_their_limit_and_end_with_everything_done(log, keeper):
    partitions = await log.provision("hive", *"abc")
    _, group = await impatient_partition(log)
    for partition in partitions:
        await log.push(partition, *(f"{number}" for number in range(7)))
    await log.advance(61)

    sizes, stop = [], None
    while stop is None or not stop.is_done:
        stop = await keeper.evict(limit=5, stop=stop)
        sizes.append(stop.messages)

    assert max(sizes) == 5
    assert sum(sizes) == len(await log.dead_letters()) == 21
    assert await log.pop(group, Poll(partitions=3)) == []


async def test_a_paused_queue_or_group_is_not_robbed_while_it_cannot_read(log, keeper):
    partition, group = await impatient_partition(log)
    await log.push(partition, "a")
    await log.advance(61)

    await log.execute("update skep.consumer_group set is_paused = true where id = $1", group)
    assert await keeper.evict_all() == 0
    await log.execute("update skep.consumer_group set is_paused = false where id = $1", group)
    assert await keeper.evict_all() == 1


async def test_a_partition_that_a_pop_holds_is_passed_over(log, open_log, keeper):
    partition, group = await impatient_partition(log)
    await log.push(partition, "a")
    await log.advance(61)
    other = await open_log()

    async with other.connection.transaction():
        await other.value("select 1 from skep.cursor where group_id = $1 for update", group)
        assert await keeper.evict_all() == 0

    assert await keeper.evict_all() == 1


async def test_a_queue_that_lets_messages_wait_again_loses_none_to_a_run_under_way(log, keeper):
    [partition] = await log.provision("hive", "a")
    await log.configure("hive", max_wait_time_s=0)
    await log.push(partition, "a")
    await log.advance(1000)

    assert await keeper.evict_all() == 0


async def test_evictions_are_in_the_history(log, keeper):
    partition, _ = await impatient_partition(log)
    await log.push(partition, "a", "b")
    await log.advance(61)

    await keeper.evict_all(limit=1)

    [row] = await keeper.history()
    assert (row["kind"], row["messages"]) == ("eviction", 2)


async def test_a_queue_that_is_gone_or_paused_needs_no_step(log, keeper):
    await impatient_partition(log)
    await log.execute("update skep.queue set is_paused = true")
    query = "select * from skep.evict_waiting($1, $2, $3, $4, 0, 'epoch', 0, $5, 10)"

    for queue_id in (await keeper.queue_id(), 0):
        arguments = ("housekeeping", keeper.holder, uuid4(), queue_id, log.now)
        assert await log.rows(query, *arguments) == []


async def test_whoever_does_not_lead_evicts_nothing(log, keeper):
    partition, _ = await impatient_partition(log)
    await log.push(partition, "a")
    await log.advance(61)

    with pytest.raises(asyncpg.PostgresError, match="is not held by"):
        await Keeper(log).evict()

    assert await log.dead_letters() == []


@pytest.mark.parametrize("option", ["delayed_processing_s", "window_buffer_s"])
async def test_a_message_that_is_held_back_waits_from_when_it_may_be_delivered(log, keeper, option):
    partition, group = await impatient_partition(log)
    await log.configure("hive", **{option: 600})
    await log.push(partition, "a")
    await log.advance(650)

    assert await keeper.evict_all() == 0
    assert (await log.pop(group, Poll(lease_s=1))).offsets == [1]
    await log.advance(11)
    assert await keeper.evict_all() == 1


async def test_what_a_subscription_that_started_later_never_wanted_is_not_buried(log, keeper):
    partition, _ = await impatient_partition(log)
    group = await log.subscribe("hive", "bees", "timestamp", NOON + timedelta(seconds=10))
    await log.push(partition, "before")
    await log.advance(10)
    await log.push(partition, "after")
    await log.advance(61)

    await keeper.evict_all()

    letters = [
        row["transaction_id"] for row in await log.dead_letters() if row["group_id"] == group
    ]
    assert letters == ["after"]


async def test_a_group_that_gets_only_the_newest_buries_nothing(log, keeper):
    partition, group = await impatient_partition(log)
    await log.execute("update skep.consumer_group set conflation = true where id = $1", group)
    await log.push(partition, "a")
    await log.push(partition, "b")
    await log.advance(61)

    assert await keeper.evict_all() == 0
    assert (await log.pop(group)).offsets == [2]
