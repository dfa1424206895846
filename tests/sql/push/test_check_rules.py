import asyncpg
import pytest


async def test_the_longest_window_of_the_queues_is_returned(log):
    first = await log.configure("hive", dedup_window_s=60)
    second = await log.configure("wax", dedup_window_s=600)

    assert await check(log, first, second) == 600


async def test_a_version_that_is_not_in_force_is_refused_with_its_own_code(log):
    queue = await log.configure("hive")
    await log.execute("update skep.queue set version = version + 1")

    with pytest.raises(asyncpg.PostgresError) as refusal:
        await check(log, queue)

    assert refusal.value.sqlstate == "SK409"


async def test_one_stale_queue_among_several_is_enough(log):
    first, second = await log.configure("hive"), await log.configure("wax")

    with pytest.raises(asyncpg.PostgresError):
        await check(log, first, {**second, "version": second["version"] + 1})


async def test_a_queue_that_does_not_exist_is_not_refused(log):
    assert await check(log, {"id": 1_000_000, "version": 1}) is None


async def test_one_queue_that_does_not_exist_leaves_no_word_about_the_others(log):
    queue = await log.configure("hive")

    assert await check(log, queue, {"id": 1_000_000, "version": 1}) is None


async def check(log, *queues):
    ids, versions = [each["id"] for each in queues], [each["version"] for each in queues]
    return await log.value("select skep.check_rules($1, $2)", ids, versions)
