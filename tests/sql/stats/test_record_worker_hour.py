from uuid import uuid4

import asyncpg
import pytest

RECORD = "select skep.record_worker_hour($1, $2, $3, $4, $5)"


async def test_an_hour_is_kept_once(rollups, log):
    for text in ('{"n": 1}', '{"n": 2}'):
        await log.value(RECORD, *rollups.term, log.now, [1, 2], [text, text])

    rows = await log.rows("select worker_id, sample->>'n' from skep.worker_hour order by 1")
    assert list(map(tuple, rows)) == [(1, "1"), (2, "1")]


async def test_whoever_does_not_lead_records_no_hour(rollups, log):
    with pytest.raises(asyncpg.PostgresError, match="is not held by"):
        await log.value(RECORD, "housekeeping", uuid4(), log.now, [1], ["{}"])
