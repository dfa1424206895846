import pytest

from tests.sql.support.log import NOON


def has_rules(log, group):
    query = """
        select skep.has_delivery_rules(g, q)
        from skep.consumer_group g join skep.queue q on q.id = g.queue_id where g.id = $1
    """
    return log.value(query, group)


async def test_a_queue_with_default_options_has_none(log):
    assert await has_rules(log, await log.subscribe("hive", "bees")) is False


@pytest.mark.parametrize(
    "option", ["ttl_s", "delayed_processing_s", "window_buffer_s", "max_deliveries"]
)
async def test_options_about_delivery_are_rules(log, option):
    group = await log.subscribe("hive", "bees")
    await log.set_options("hive", **{option: 1})

    assert await has_rules(log, group) is True


@pytest.mark.parametrize(("start_s", "is_rule"), [(-1, False), (0, False), (1, True)])
async def test_a_subscription_that_starts_later_is_a_rule(log, start_s, is_rule):
    await log.advance(start_s)
    start = log.now
    await log.set_clock(NOON)

    assert await has_rules(log, await log.subscribe("hive", "bees", "timestamp", start)) is is_rule


@pytest.mark.parametrize(("conflation", "is_rule"), [(None, False), (False, False), (True, True)])
async def test_a_group_that_wants_only_the_newest_has_a_rule(log, conflation, is_rule):
    group = await log.subscribe("hive", "bees")
    await log.execute("update skep.consumer_group set conflation = $1", conflation)

    assert await has_rules(log, group) is is_rule
