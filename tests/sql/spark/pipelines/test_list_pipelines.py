import pytest

BEGIN = (
    "select run_id from skep.begin_pipeline($1, '{\"a\":1}', 'h', '/c', 'host:1', 'local', false)"
)
LIST = "select * from skep.list_pipelines($1, $2, $3)"


@pytest.fixture(autouse=True)
def three(arun, log):
    arun(log.execute("delete from skep.pipeline"))
    for name in ("b", "c", "a"):
        arun(log.connection.fetch(BEGIN, name))


async def names(log, *arguments):
    rows = await log.connection.fetch(LIST, *arguments)
    return [(row["name"], row["total"]) for row in rows]


async def test_pages_are_in_the_order_of_names_and_know_the_total(log):
    assert await names(log, None, 2, 0) == [("a", 3), ("b", 3)]
    assert await names(log, None, 2, 2) == [("c", 3)]


async def test_one_can_be_asked_for_by_name(log):
    await log.advance(4)
    (row,) = await log.connection.fetch(LIST, "b", 10, 0)

    assert (row["definition"], row["state"], row["silent_s"]) == ('{"a":1}', "starting", 4.0)
    assert await names(log, "nothing", 10, 0) == []
