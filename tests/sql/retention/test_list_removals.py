from uuid import uuid4

import pytest

from tests.sql.support.housekeeping import Keeper

NEWEST = 2**63 - 1
LIST = "select * from skep.list_removals($1, $2, $3, $4)"


@pytest.fixture
def history(arun, log):
    """Runs on two queues and on one that is gone."""

    async def record():
        keeper = await Keeper.appoint(log)
        await log.partition("hive")
        await log.partition("comb")
        ids = {"hive": await keeper.queue_id("hive"), "comb": await keeper.queue_id("comb")}
        for number, (queue, kind) in enumerate(
            [
                ("hive", "retention"),
                ("comb", "eviction"),
                ("hive", "eviction"),
                ("gone", "retention"),
            ]
        ):
            await log.value(
                "select skep.record_removal($1, $2, $3, $4, 1, 1, $5)",
                uuid4(),
                ids.get(queue, 0),
                kind,
                number,
                log.now,
            )

    arun(record())


async def messages(log, queue=None, kind=None, before=NEWEST, limit=10):
    return [row["messages"] for row in await log.rows(LIST, queue, kind, before, limit)]


async def test_the_newest_comes_first_and_queues_that_are_gone_have_no_name(log, history):
    rows = await log.rows(LIST, None, None, NEWEST, 10)

    assert [(row["queue"], row["messages"]) for row in rows] == [
        (None, 3),
        ("hive", 2),
        ("comb", 1),
        ("hive", 0),
    ]


async def test_it_can_be_narrowed_to_a_queue_and_a_kind(log, history):
    assert await messages(log, queue="hive") == [2, 0]
    assert await messages(log, kind="eviction") == [2, 1]
    assert await messages(log, queue="hive", kind="retention") == [0]
    assert await messages(log, queue="nowhere") == []


async def test_pages_follow_one_another_by_id(log, history):
    first = await log.rows(LIST, None, None, NEWEST, 3)

    assert await messages(log, before=first[-1]["id"]) == [0]
