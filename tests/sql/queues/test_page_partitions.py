import pytest

PAGE = "select * from skep.page_partitions($1, $2, $3)"


async def pages(log, queue, limit):
    """Return the ids of all partitions, page by page."""
    queue_id = await log.value("select id from skep.queue where name = $1", queue)
    found, name = [], ""
    while name is not None:
        row = await log.row(PAGE, queue_id, name, limit)
        found.append(row["partition_id"])
        name = row["next_name"]
    return found


@pytest.mark.parametrize("limit", range(1, 6))
async def test_every_partition_is_on_exactly_one_page(log, limit):
    ids = await log.provision("hive", "", "a", "b", "c", "d")
    await log.provision("wax", "e")

    found = await pages(log, "hive", limit)

    assert sorted(id_ for page in found for id_ in page) == sorted(ids)
    assert max(map(len, found)) <= limit


async def test_the_ids_of_a_page_ascend_whatever_the_names(log):
    ids = await log.provision("hive", "c", "a", "b")

    assert await pages(log, "hive", 10) == [sorted(ids)]


async def test_a_queue_without_partitions_has_one_empty_page(log):
    await log.subscribe("hive", "bees")

    assert await pages(log, "hive", 10) == [[]]
