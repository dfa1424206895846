import pytest

from tests.sql.support.spans import EVERYTHING, SpanReader


@pytest.fixture
def measured(log):
    reader = SpanReader(log)

    async def measured(segments, seen=EVERYTHING):
        (row,) = await reader.call("measure_span", seen, None, segments)
        return tuple(row)

    return measured


async def test_a_span_is_measured_in_messages_and_by_the_age_of_the_oldest(log, measured):
    partition, _ = await log.partition()
    await log.push(partition, "a", "b")
    await log.advance(7)
    await log.push(partition, "c")

    assert await measured(3) == (3, 7, True)
    assert await measured(2) == (3, 7, False)
    assert await measured(1) == (2, 7, False)


async def test_an_empty_span_is_not_old(log, measured):
    await log.partition()

    assert await measured(1) == (0, 0, True)
