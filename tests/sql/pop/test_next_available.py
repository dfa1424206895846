import pytest

from tests.sql.support.log import Poll


async def test_a_group_with_a_message_can_be_served_now(log):
    partition, group = await log.partition()
    await log.push(partition, "a")

    assert await log.next_available(group) == 0


async def test_a_group_that_waited_is_told_for_how_long(log):
    partition, group = await log.partition()
    await log.push(partition, "a")
    await log.advance(2.5)

    assert await log.next_available(group) == -2.5


async def test_an_idle_group_has_no_answer(log):
    _, group = await log.partition()

    assert await log.next_available(group) is None


async def test_a_leased_partition_can_be_served_when_the_lease_ends(log):
    partition, group = await log.partition()
    await log.push(partition, "a")
    await log.pop(group, Poll(lease_s=30))
    await log.advance(10)

    assert await log.next_available(group) == 20


async def test_the_earliest_partition_of_a_group_counts(log):
    a, group = await log.partition()
    b, c = await log.provision("hive", "b", "c")
    await log.push_writes({a: "x", b: "y"})
    await log.pop_partitions(
        group, Poll(partition_id=a, lease_s=30), Poll(partition_id=b, lease_s=20)
    )

    assert await log.next_available(group) == 20
    assert await log.next_available(group, a) == 30
    assert await log.next_available(group, c) is None


async def test_groups_are_apart(log):
    partition, group = await log.partition()
    other = await log.subscribe("hive", "bees", "new")
    await log.push(partition, "a")
    await log.pop(group, Poll(lease_s=30))

    assert await log.next_available(group) == 30
    assert await log.next_available(other) == 0


async def test_many_questions_are_answered_by_their_number(log):
    a, group = await log.partition()
    [b] = await log.provision("hive", "b")
    idle = await log.subscribe("wax")
    await log.push(a, "x")

    rows = await log.rows(
        "select * from skep.next_available($1, $2)",
        [idle, group, group, group, group],
        [0, b, a, 0, a],
    )

    assert sorted(map(tuple, rows)) == [(3, 0.0), (4, 0.0), (5, 0.0)]


@pytest.mark.parametrize("table", ["queue", "consumer_group"])
async def test_what_is_paused_has_no_answer(log, table):
    partition, group = await log.partition()
    await log.push(partition, "a")
    await log.execute(f"update skep.{table} set is_paused = true")

    assert await log.next_available(group) is None
    assert await log.next_available(group, partition) is None

    await log.execute(f"update skep.{table} set is_paused = false")
    assert await log.next_available(group) == 0


async def test_a_group_or_partition_that_is_gone_must_be_looked_for_now(log):
    partition, group = await log.partition()
    await log.value("select skep.drop_partitions($1)", [partition])

    assert await log.next_available(group) is None
    assert await log.next_available(group, partition) == 0

    await log.value("select skep.forget_group($1)", group)
    assert await log.next_available(group) == 0
