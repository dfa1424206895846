from uuid import uuid4

import pytest

from tests.sql.support.housekeeping import Keeper

RECORD = "select skep.record_removal($1, $2, $3, $4, $5, $6, $7)"


@pytest.fixture
def keeper(arun, log):
    return arun(Keeper.appoint(log))


async def test_the_steps_of_a_run_add_up_to_one_row(log, keeper):
    run, began = uuid4(), log.now
    await log.value(RECORD, run, 7, "retention", 10, 2, 1, began)
    await log.advance(3)
    await log.value(RECORD, run, 7, "retention", 5, 1, 1, log.now)

    [row] = await keeper.history()

    assert (row["messages"], row["segments"], row["partitions"]) == (15, 3, 2)
    assert (row["started_at"], row["duration_ms"]) == (began, 3000)


async def test_runs_queues_and_kinds_have_rows_of_their_own(log, keeper):
    run = uuid4()
    for of_run, queue, kind in [
        (run, 7, "retention"),
        (run, 8, "retention"),
        (run, 7, "completed"),
        (uuid4(), 7, "retention"),
    ]:
        await log.value(RECORD, of_run, queue, kind, 1, 1, 1, log.now)

    assert len(await keeper.history()) == 4
