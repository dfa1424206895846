from uuid import uuid4

from tests.sql.support.rollups import HOUR, MINUTE

REMOVED = "select * from skep.removed_partitions($1, $2, 300, $3)"


async def record(log, queue_id, kind, partitions):
    await log.value(
        "select skep.record_removal($1, $2, $3, 0, 0, $4, $5)",
        uuid4(),
        queue_id,
        kind,
        partitions,
        log.now,
    )


async def test_removed_partitions_are_counted_by_bucket_and_queue(rollups, log):
    noon = log.now
    await record(log, 7, "partition", 3)
    await record(log, 8, "partition", 5)
    await record(log, 7, "retention", 9)
    await log.advance(61)
    await record(log, 7, "partition", 1)

    rows = await log.rows(REMOVED, noon, noon + HOUR, [7])

    assert list(map(tuple, rows)) == [(noon, 7, 4)]
    assert await log.rows(REMOVED, noon - HOUR, noon - MINUTE, [7]) == []
