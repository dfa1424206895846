from tests.sql.support.log import NOON, envelope
from tests.sql.support.trace_log import FiledTrace


async def test_a_trace_comes_with_its_message_and_where_that_lies(log, traces):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "x")
    recorded = await traces.record(partition, "x", "order", "bill", data="[1]", group="g")

    assert await traces.by_name("order") == [
        FiledTrace(
            1, recorded, "info", "[1]", "g", None, NOON, ["bill", "order"], "x", partition,
            "hive", "a", envelope("x"),
        )
    ]  # fmt: skip


async def test_pages_are_cut_by_limit_and_offset_and_tell_the_total(log, traces):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "x", "y")
    recorded = [await traces.record(partition, name, "order") for name in "xyxyx"]
    await traces.record(partition, "x", "another")

    page = await traces.by_name("order", limit=2, skip=1)

    assert [trace.id for trace in page] == recorded[1:3]
    assert {trace.total for trace in page} == {5}


async def test_a_page_beyond_the_end_still_tells_the_total(log, traces):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "x")
    await traces.record(partition, "x", "order")

    [row] = await traces.by_name("order", skip=1)

    assert (row.total, row.id) == (1, None)


async def test_an_unknown_name_has_no_row(traces):
    assert await traces.by_name("nobody") == []


async def test_a_trace_stays_when_its_message_and_its_queue_are_gone(log, traces):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "x")
    await traces.record(partition, "x", "order")
    await log.clear()

    [row] = await traces.by_name("order")

    assert (row.transaction_id, row.queue_name, row.partition_name) == ("x", None, None)
    assert row.envelope is None
