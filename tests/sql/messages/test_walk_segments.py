"""The walk from the newest segment back: all of them once, whatever the size of a step."""

from datetime import timedelta

import pytest

from tests.sql.support.log import NOON, key_of

QUERY = "select * from skep.walk_segments($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"


async def step(log, *, after=None, segments=100, messages=1000, size=None, **chosen):
    place = (None,) * 3
    if after is not None:
        place = (after["xid"], after["partition_id"], after["first"])
    names = [chosen.get(name) for name in ("queue", "partition", "namespace", "task", "key")]
    until = chosen.get("until", NOON + timedelta(days=1))
    rows = await log.rows(
        QUERY, *names, chosen.get("since"), until, *place, segments, messages, size
    )
    return list(rows)


async def walk(log, **options):
    """Walk to the end in as many steps as it takes."""
    found = rows = await step(log, **options)
    while rows:
        rows = await step(log, after=found[-1], **options)
        found = found + rows
    return [(row["partition_id"], row["first"]) for row in found if row["is_wanted"]]


async def fill(log):
    """Push into three partitions of two queues; return the segments, the newest first."""
    a, b = await log.provision("hive.x", "a", "b")
    [c] = await log.provision("comb.y", "c")
    pushed = []
    for partition, names in [(a, "12"), (b, "3"), (a, "4"), (c, "5"), (b, "678"), (a, "9")]:
        row = await log.push(partition, *names)
        pushed.append((partition, row.first))
        await log.advance()
    pushed.reverse()
    return pushed, (a, b, c)


@pytest.mark.parametrize("size", [1, 2, 5, 100])
async def test_steps_of_any_size_see_every_segment_once_and_the_newest_first(log, size):
    pushed, (_, _, c) = await fill(log)
    of_hive = [segment for segment in pushed if segment[0] != c]

    assert await walk(log, queue="hive.x", segments=size) == of_hive
    assert await walk(log, segments=size) == pushed


@pytest.mark.parametrize("size", [1, 50, 100, 1000])
async def test_many_queues_are_merged_and_those_of_one_transaction_are_not_cut_apart(log, size):
    partitions = [(await log.provision(f"q{n}", "a"))[0] for n in range(70)]
    pushed = []
    for n in range(140):
        row = await log.push(partitions[n * 37 % 70], f"m{n}")
        pushed.append((row.partition_id, row.first))
    pushed.reverse()
    assert await walk(log, segments=size) == pushed

    await log.rows("update skep.segment set xid = pg_current_xact_id()")

    assert await walk(log, segments=size) == sorted(pushed, reverse=True)


@pytest.mark.parametrize("size", [1, 2, 100])
async def test_one_partition_is_walked_by_itself(log, size):
    pushed, (a, _, _) = await fill(log)

    found = await walk(log, queue="hive.x", partition="a", segments=size)

    assert found == [segment for segment in pushed if segment[0] == a]


async def test_a_step_ends_when_it_has_found_enough_messages(log):
    await fill(log)

    assert len(await step(log, queue="hive.x", messages=3)) == 2


async def test_a_step_ends_when_it_has_found_enough_bytes(log):
    await fill(log)

    assert len(await step(log, size=1)) == 1
    assert len(await step(log, size=10**6)) == 6


async def test_names_narrow_the_walk(log):
    pushed, (_, _, c) = await fill(log)

    assert await walk(log, namespace="comb") == [s for s in pushed if s[0] == c]
    assert await walk(log, task="y") == [s for s in pushed if s[0] == c]
    assert await walk(log, namespace="comb", task="x") == []
    assert await walk(log, queue="none") == []
    assert await walk(log, queue="hive.x", partition="none") == []


async def test_only_segments_of_the_time_are_wanted(log):
    pushed, _ = await fill(log)
    since, until = NOON + timedelta(seconds=1), NOON + timedelta(seconds=2)

    assert await walk(log, queue="hive.x", since=since, until=until) == pushed[3:5]


async def test_by_default_the_last_hour_is_wanted_and_what_is_older_is_not_walked(log):
    partition, _ = await log.partition()
    await log.push(partition, "old")
    await log.advance(3601)
    assert [row["is_wanted"] for row in await step(log, queue="hive")] == [False]

    await log.advance(600)

    assert await step(log, queue="hive") == []


async def test_a_key_selects_the_segments_that_hold_it(log):
    pushed, _ = await fill(log)

    assert await walk(log, queue="hive.x", key=key_of("7")) == pushed[1:2]
