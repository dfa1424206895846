import asyncpg
import pytest

from tests.sql.support.log import QUEUE_MODE


def ensure(log, name):
    return log.value("select skep.ensure_queue($1)", name)


async def test_a_new_queue_has_the_defaults_of_the_wire(log):
    await ensure(log, "hive")

    queue = await log.row("select * from skep.queue")
    assert (queue["lease_time_s"], queue["retry_limit"], queue["retry_delay_ms"]) == (300, 3, 0)
    assert queue["dedup_window_s"] == 3600
    assert queue["dead_letter_queue"]


@pytest.mark.parametrize(
    ("name", "namespace", "task"),
    [("hive", "hive", ""), ("hive.wax", "hive", "wax"), ("hive.wax.comb", "hive", "wax")],
)
async def test_namespace_and_task_are_the_first_parts_of_the_name(log, name, namespace, task):
    await ensure(log, name)

    queue = await log.row("select namespace, task from skep.queue")
    assert tuple(queue) == (namespace, task)


async def test_an_existing_queue_is_found_and_left_as_it_is(log):
    queue_id = (await log.configure("hive", lease_time_s=7))["id"]

    assert await ensure(log, "hive") == queue_id
    assert await log.value("select lease_time_s from skep.queue") == 7


async def test_the_group_of_queue_mode_is_there_from_the_start(log):
    queue_id = await ensure(log, "hive")

    groups = await log.rows("select queue_id, name, subscription_mode from skep.consumer_group")
    assert list(map(tuple, groups)) == [(queue_id, QUEUE_MODE, "all")]


async def test_a_name_of_more_than_255_characters_is_refused(log):
    await ensure(log, "ä" * 255)

    with pytest.raises(asyncpg.CheckViolationError):
        await ensure(log, "ä" * 256)
