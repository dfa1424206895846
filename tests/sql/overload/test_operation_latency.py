import pytest

from tests.sql.support.operating import carry_out, defer

CALL = "select * from skep.operation_latency()"


async def test_it_is_the_time_from_the_acceptance_to_the_end(log):
    (a,) = await log.provision("hive", "a")
    for seconds in (1, 2, 3):
        await defer(log, a)
        await log.advance(seconds)
        await carry_out(log)

    (row,) = await log.rows(CALL)

    assert row["samples"] == 3
    assert [row["average_s"], row["p50_s"], row["max_s"]] == pytest.approx([2, 2, 3])
    assert 2 <= row["p95_s"] <= 3


async def test_what_was_done_long_ago_does_not_count(log):
    (a,) = await log.provision("hive", "a")
    await defer(log, a)
    await carry_out(log)
    await log.advance(301)

    (row,) = await log.rows(CALL)

    assert [row["samples"], row["p50_s"]] == [0, None]
