import pytest

from tests.sql.model.test_races import waiting
from tests.sql.support.log import NOON, body_of, envelope
from tests.sql.support.trace_log import Trace, TraceLog

NUL = r'{"a":"\u0000","a":1}'


@pytest.fixture
def partition(arun, log):
    async def fill():
        partition, _ = await log.partition()
        await log.push(partition, *"abc")
        return partition

    return arun(fill())


async def test_a_trace_is_kept_with_everything_it_says(log, traces, partition):
    first = await traces.record(
        partition, "b", "order", "bill", event_type="step", data=NUL, group="g", worker="w"
    )

    assert await traces.of_message(partition, "b") == [
        Trace(first, "step", NUL, "g", "w", NOON, ["bill", "order"])
    ]


async def test_the_message_may_be_named_by_its_offset(traces, partition):
    recorded = await traces.record(partition, "", offset=3)

    assert [trace.id for trace in await traces.of_message(partition, "c")] == [recorded]


async def test_the_transaction_id_is_read_whatever_stands_around_it(log, traces):
    [partition] = await log.provision("hive", "odd")
    name = r'x","traceId":"y","data":\ {"enc":"k"'
    marked = envelope(name, NUL).replace("{", '{"enc":"k",', 1)
    await log.push_bodies({partition: [name]}, {partition: body_of([marked])})

    await traces.record(partition, "", offset=1)

    assert len(await traces.of_message(partition, name)) == 1


@pytest.mark.parametrize(("name", "offset"), [("nobody", None), ("a", 4), ("a", 0)])
async def test_a_message_that_does_not_exist_is_not_traced(traces, partition, name, offset):
    assert await traces.record(partition, name, "order", offset=offset) is None
    assert await traces.totals() == {}


async def test_names_count_their_traces_and_their_messages(traces, partition):
    await traces.record(partition, "a", "order", "bill")
    await traces.record(partition, "a", "order")
    await traces.record(partition, "b", "order")

    assert await traces.totals() == {"order": (3, 2), "bill": (1, 1)}
    assert await traces.counted() == await traces.totals()


async def test_a_name_is_last_seen_at_its_newest_trace_even_when_the_clock_goes_back(
    log, traces, partition
):
    await traces.record(partition, "a", "order")
    await log.advance(-60)
    await traces.record(partition, "a", "order")

    assert await log.value("select last_seen from skep.trace_name_total") == NOON


async def test_two_traces_of_one_message_at_once_count_it_once(
    log, traces, partition, arun, open_log
):
    other, observer = await open_log(), await open_log()
    await log.execute("begin")
    await traces.record(partition, "a", "order")

    async with waiting(observer, other, TraceLog(other).record(partition, "a", "order")):
        await log.execute("commit")

    assert await traces.totals() == {"order": (2, 1)}
    assert await traces.counted() == await traces.totals()
