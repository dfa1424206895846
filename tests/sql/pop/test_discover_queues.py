import pytest


async def discovered(log, namespace="", task="", limit=100):
    rows = await log.rows("select * from skep.discover_queues($1, $2, $3)", namespace, task, limit)
    return [row["name"] for row in rows]


async def create(log, name, namespace, task, priority=0):
    await log.execute("select skep.ensure_queue($1)", name)
    await log.set_options(name, namespace=namespace, task=task, priority=priority)


@pytest.mark.parametrize(
    ("namespace", "task", "found"),
    [
        ("shop", "", ["bills", "mails"]),
        ("", "send", ["mails", "news"]),
        ("shop", "send", ["mails"]),
        ("shop", "none", []),
    ],
)
async def test_queues_are_found_by_what_they_are_for(log, namespace, task, found):
    await create(log, "bills", "shop", "bill")
    await create(log, "mails", "shop", "send")
    await create(log, "news", "press", "send")

    assert await discovered(log, namespace, task) == found


async def test_the_most_important_come_first_and_equals_by_name(log):
    for name, priority in {"b": 1, "a": 1, "d": -5, "c": 7}.items():
        await create(log, name, "shop", "", priority)

    assert await discovered(log, "shop") == ["c", "a", "b", "d"]
    assert await discovered(log, "shop", limit=2) == ["c", "a"]
