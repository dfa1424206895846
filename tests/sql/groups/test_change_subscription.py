from datetime import timedelta

from tests.sql.support.log import NOON, Poll

CHANGE = "select skep.change_subscription($1, $2)"


async def test_the_subscriptions_of_a_group_change_on_all_queues(log):
    await log.subscribe("hive", "bees")
    await log.subscribe("wax", "bees", "new")
    await log.subscribe("wax", "ants")

    assert await log.value(CHANGE, "bees", NOON) == 2

    rows = await log.rows("select * from skep.consumer_group where subscribed_from = $1", NOON)
    assert {(row["name"], row["subscription_mode"]) for row in rows} == {("bees", "timestamp")}


async def test_a_group_that_does_not_exist_changes_nothing(log):
    assert await log.value(CHANGE, "bees", NOON) == 0


async def test_cursors_stay_where_they_are(log):
    [partition] = await log.provision("hive", "a")
    group = await log.subscribe("hive", "bees")
    await log.push(partition, "x", "y")
    await log.pop(group, Poll(batch=1, auto_ack=True))

    await log.value(CHANGE, "bees", NOON)

    assert (await log.cursor(partition, group))["acked"] == 1


async def test_what_is_not_read_yet_is_delivered_although_the_new_start_is_later(log):
    [partition] = await log.provision("hive", "a")
    group = await log.subscribe("hive", "bees")
    await log.push(partition, "x", "y")
    await log.advance(10)

    await log.value(CHANGE, "bees", NOON + timedelta(seconds=5))

    assert (await log.pop(group)).offsets == [1, 2]


async def test_what_a_group_has_not_read_is_not_passed_over(log):
    partition, _ = await log.partition()
    group = await log.subscribe("hive", "bees")
    await log.advance(10)
    await log.push(partition, "a")
    await log.advance(90)

    await log.value(CHANGE, "bees", NOON + timedelta(seconds=50))

    assert (await log.pop(group)).offsets == [1]
