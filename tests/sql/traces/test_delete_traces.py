import random

import pytest

from tests.sql.model.test_races import waiting
from tests.sql.support.trace_log import TraceLog


def delete(log, *ids):
    return log.value("select skep.delete_traces($1)", list(ids))


@pytest.fixture
def partition(arun, log):
    async def fill():
        partition, _ = await log.partition()
        await log.push(partition, *"abcdef")
        return partition

    return arun(fill())


async def test_the_traces_named_are_gone_and_the_others_are_not(log, traces, partition):
    first = await traces.record(partition, "a", "order")
    second = await traces.record(partition, "a", "order")

    assert await delete(log, first, 0) == 1

    assert [trace.id for trace in await traces.of_message(partition, "a")] == [second]
    assert await traces.totals() == {"order": (1, 1)}


async def test_a_message_leaves_a_name_with_its_last_trace(log, traces, partition):
    first = await traces.record(partition, "a", "order")
    second = await traces.record(partition, "a", "order")
    await traces.record(partition, "b", "order")

    assert await delete(log, first, second) == 2

    assert await traces.totals() == {"order": (1, 1)}


async def test_a_name_is_gone_with_its_last_trace(log, traces, partition):
    only = await traces.record(partition, "a", "order", "bill")
    await traces.record(partition, "a", "bill")

    await delete(log, only)

    assert await traces.totals() == {"bill": (1, 1)}
    assert await traces.counted() == await traces.totals()


async def test_deleting_again_or_nothing_changes_nothing(log, traces, partition):
    kept = await traces.record(partition, "a", "order")
    gone = await traces.record(partition, "a", "order")
    await delete(log, gone)

    assert await delete(log, gone) == 0
    assert await delete(log) == 0
    assert [trace.id for trace in await traces.of_message(partition, "a")] == [kept]
    assert await traces.totals() == {"order": (1, 1)}


async def test_the_totals_agree_with_a_count_after_any_history(log, traces, partition):
    chance = random.Random(7)
    ids = []
    for _ in range(120):
        names = chance.sample(["order", "bill", "mail"], chance.randint(0, 3))
        ids.append(await traces.record(partition, chance.choice("abcdef"), *names))
        if chance.random() < 0.3:
            gone = chance.sample(ids, min(len(ids), 8))
            ids = [each for each in ids if each not in gone]
            assert await delete(log, *gone) == len(gone)

    assert ids
    assert await traces.totals() == await traces.counted()


async def test_a_trace_that_arrives_during_the_deletion_is_counted(
    log, traces, partition, open_log
):
    other, observer = await open_log(), await open_log()
    first = await traces.record(partition, "a", "order")
    await log.execute("begin")
    await delete(log, first)

    async with waiting(observer, other, TraceLog(other).record(partition, "a", "order")):
        await log.execute("commit")

    assert await traces.totals() == {"order": (1, 1)}
    assert await traces.counted() == await traces.totals()


async def test_deleting_the_same_trace_at_once_counts_it_once(log, traces, partition, open_log):
    other, observer = await open_log(), await open_log()
    first = await traces.record(partition, "a", "order")
    await traces.record(partition, "a", "order")
    await log.execute("begin")
    await delete(log, first)

    async with waiting(observer, other, delete(other, first)) as second_try:
        await log.execute("commit")

    assert second_try.result() == 0
    assert await traces.totals() == {"order": (1, 1)}
