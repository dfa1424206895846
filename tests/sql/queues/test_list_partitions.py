import pytest


async def page(log, queue_id=None, search=None, after=None, limit=9, offset=0):
    return await log.rows(
        "select * from skep.list_partitions($1, $2, $3, $4, $5)",
        queue_id,
        search,
        after,
        limit,
        offset,
    )


async def names(log, *arguments, **options):
    return [row["name"] for row in await page(log, *arguments, **options)]


@pytest.fixture
def partitions(arun, log):
    """Two queues: the ids of their partitions by name."""
    of_hive = arun(log.provision("hive", "c", "a", "b"))
    of_wax = arun(log.provision("wax", "a2", "A3"))
    return dict(zip(["c", "a", "b", "a2", "A3"], of_hive + of_wax, strict=True))


@pytest.fixture
def hive(arun, log, partitions):
    return arun(log.value("select id from skep.queue where name = 'hive'"))


async def test_partitions_of_a_queue_come_by_name(log, hive):
    assert await names(log, hive) == ["a", "b", "c"]
    assert await names(log, hive, limit=1, offset=1) == ["b"]


async def test_partitions_of_all_queues_come_queue_by_queue(log, partitions):
    found = await page(log)

    assert [row["queue_name"] for row in found] == ["hive"] * 3 + ["wax"] * 2
    assert [row["name"] for row in found][:3] == ["a", "b", "c"]


async def test_a_page_begins_behind_a_partition(log, hive, partitions):
    assert await names(log, hive, after=partitions["a"]) == ["b", "c"]
    assert await names(log, after=partitions["b"], limit=1) == ["c"]
    assert set(await names(log, after=partitions["c"])) == {"a2", "A3"}


async def test_behind_a_partition_of_another_queue_or_of_none_there_is_nothing(
    log, hive, partitions
):
    assert await names(log, hive, after=partitions["a2"]) == []
    assert await names(log, after=max(partitions.values()) + 1000) == []


async def test_a_search_finds_part_of_a_name_in_any_case(log, partitions):
    assert sorted(await names(log, search="a")) == ["A3", "a", "a2"]


async def test_a_partition_shows_what_it_holds(log, hive, partitions):
    await log.push(partitions["a"], "x")
    later = log.now
    await log.advance(10)
    await log.push(partitions["a"], "y")

    [partition, empty, _] = await page(log, hive)

    assert [
        partition["head"],
        partition["tail"],
        partition["total"],
        partition["dead_letters"],
    ] == [2, 1, 2, 0]
    assert [partition["oldest_at"], partition["pushed_at"]] == [later, log.now]
    assert [empty["oldest_at"], empty["pushed_at"]] == [None, None]


async def test_partitions_that_wait_for_the_sweep_are_not_shown(log, partitions):
    await log.value("select skep.remove_queue('hive')")

    assert set(await names(log)) == {"a2", "A3"}
    await log.execute("delete from skep.removed_queue")
