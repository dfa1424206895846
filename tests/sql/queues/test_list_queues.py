import pytest


async def page(log, *, namespace=None, task=None, search=None, sort="newest", limit=9, offset=0):
    rows = await log.rows(
        "select * from skep.list_queues($1, $2, $3, $4, $5, $6)",
        namespace,
        task,
        search,
        sort,
        limit,
        offset,
    )
    names = [row["name"] for row in rows if row["id"] is not None]
    (total,) = {row["total"] for row in rows}
    return names, total


@pytest.fixture(autouse=True)
def queues(arun, log):
    for name in ("shop.pack", "Bees.pack", "shop.bill"):
        arun(log.value("select skep.ensure_queue($1)", name))


async def test_the_order_is_as_asked_for(log):
    by_name = await log.rows("select name from skep.queue order by name")

    assert (await page(log))[0] == ["shop.bill", "Bees.pack", "shop.pack"]
    assert (await page(log, sort="oldest"))[0] == ["shop.pack", "Bees.pack", "shop.bill"]
    assert (await page(log, sort="name"))[0] == [row["name"] for row in by_name]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"namespace": "shop"}, ["shop.bill", "shop.pack"]),
        ({"task": "pack"}, ["Bees.pack", "shop.pack"]),
        ({"namespace": "shop", "task": "pack"}, ["shop.pack"]),
        ({"search": "BEE"}, ["Bees.pack"]),
        ({"search": "%"}, []),
        ({"namespace": ""}, []),
    ],
    ids=str,
)
async def test_filters_select(log, wanted, expected):
    assert await page(log, **wanted) == (expected, len(expected))


async def test_the_total_is_that_of_all_pages(log):
    assert await page(log, limit=2) == (["shop.bill", "Bees.pack"], 3)
    assert await page(log, limit=2, offset=2) == (["shop.pack"], 3)
    assert await page(log, limit=2, offset=4) == ([], 3)
