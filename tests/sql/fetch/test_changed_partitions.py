"""Partitions written since a time, page by page, with a bounded look at the others."""

from datetime import timedelta

import pytest

from tests.sql.support.log import NOON

CHANGED = "select * from skep.changed_partitions($1, $2, $3, $4, $5, $6)"
NAMES = "fcae"
"""In the order of their creation."""


@pytest.fixture(autouse=True)
def partitions(arun, log):
    """Partitions f, c, a and e; f and a were written at noon, e ten seconds later."""

    async def begin():
        ids = [(await log.provision("hive", name))[0] for name in NAMES]
        await log.push(ids[0], "x")
        await log.push(ids[2], "x", "y")
        await log.advance(10)
        await log.push(ids[3], "x")
        return ids

    return arun(begin())


async def changed(log, *, since=None, after=None, limit=1000, looks=10_000):
    """Return the names of a page of the queue, and where the next goes on."""
    queue_id = await log.value("select id from skep.queue where name = 'hive'")
    place = [None if after is None else queue_id], [after]
    *rows, last = await log.rows(CHANGED, ["hive"], [since], *place, [limit], looks)
    assert last["queue_id"] == queue_id
    assert last["partition_id"] is None
    return "".join(row["name"] for row in rows), last["looked_to"]


@pytest.mark.parametrize(
    ("since", "names"),
    [
        (None, "fcae"),
        (NOON, "fae"),
        (NOON + timedelta(seconds=1), "e"),
        (NOON + timedelta(seconds=10), "e"),
        (NOON + timedelta(seconds=11), ""),
    ],
)
async def test_they_come_in_the_order_of_their_creation(log, since, names):
    assert await changed(log, since=since) == (names, None)


async def test_a_full_page_says_where_the_next_goes_on(log, partitions):
    assert await changed(log, since=NOON, limit=2) == ("fa", partitions[2])
    assert await changed(log, since=NOON, limit=2, after=partitions[2]) == ("e", None)


async def test_a_full_last_page_is_followed_by_an_empty_one(log, partitions):
    assert await changed(log, limit=4) == ("fcae", partitions[3])
    assert await changed(log, limit=4, after=partitions[3]) == ("", None)


async def test_a_page_is_short_when_it_has_looked_at_enough(log, partitions):
    late = NOON + timedelta(seconds=10)

    assert await changed(log, since=late, looks=3) == ("", partitions[2])
    assert await changed(log, since=late, looks=3, after=partitions[2]) == ("e", None)


async def test_queues_of_a_call_share_its_looks(log, partitions):
    await log.provision("other", "a")

    rows = await log.rows(
        CHANGED, ["hive", "other", "none"], [None] * 3, [None] * 3, [None] * 3, [9, 9, 9], 4
    )

    ends = [row for row in rows if row["partition_id"] is None]
    assert [row["looked_to"] for row in ends] == [partitions[3], 0, None]
    assert [row["queue_id"] is None for row in ends] == [False, False, True]


async def test_a_place_in_another_queue_is_recognised(log):
    [row] = await log.rows(CHANGED, ["hive"], [None], [0], [1], [9], 99)

    assert row["is_other"]


async def test_a_partition_says_what_it_holds_and_when_it_was_written(log):
    rows = await log.rows(CHANGED, ["hive"], [None], [None], [None], [9], 99)

    written = {row["name"]: (row["head"], row["tail"], row["written_at"]) for row in rows[:-1]}
    assert written["a"] == (2, 1, NOON)
    assert written["c"][:2] == (0, 1)
    assert written["c"][2] is not None
