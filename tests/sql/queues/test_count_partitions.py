import pytest


@pytest.mark.parametrize(
    ("queue", "search", "expected"),
    [(None, None, 3), ("hive", None, 2), (None, "A", 2), ("hive", "a", 1), ("hive", "x", 0)],
)
async def test_partitions_are_counted_as_they_are_listed(log, queue, search, expected):
    await log.provision("hive", "a", "b")
    await log.provision("wax", "a2")
    queue_id = await log.value("select id from skep.queue where name = $1", queue)

    assert await log.value("select skep.count_partitions($1, $2)", queue_id, search) == expected


async def test_partitions_that_wait_for_the_sweep_do_not_count(log):
    await log.provision("hive", "a")
    await log.value("select skep.remove_queue('hive')")

    assert await log.value("select skep.count_partitions(null, null)") == 0
    await log.execute("delete from skep.removed_queue")
