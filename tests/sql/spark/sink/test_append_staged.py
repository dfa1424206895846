from datetime import timedelta

from tests.sql.support.log import Poll
from tests.sql.support.staging import names_in

APPEND = "select skep.append_staged($1, 0, $2, $3, skep.now())"


async def append(staging, *attempts):
    names = list(attempts or (1,))
    ids, *_ = await staging.partitions(*names)
    return await staging.log.value(APPEND, staging.write_id, names, ids)


async def test_segments_follow_each_other_by_task_and_number_behind_what_is_there(log, staging):
    partition, _ = await log.partition()
    await log.push(partition, "old")
    await staging.segment("c", "d", task=1)
    await staging.segment("a", task=0)
    await staging.segment("b", task=0)
    await staging.segment("other", partition="b")

    assert await append(staging) == 5

    assert await names_in(log) == ["old", "a", "b", "c", "d"]
    query = "select first, last from skep.segment where partition_id = $1 order by first"
    assert [tuple(row) for row in await log.rows(query, partition)] == [
        (1, 1),
        (2, 2),
        (3, 3),
        (4, 5),
    ]
    row = await log.row("select head, pushed_at from skep.partition where id = $1", partition)
    assert tuple(row) == (5, log.now)


async def test_time_never_goes_back_along_a_partition(log, staging):
    partition, _ = await log.partition()
    await log.push(partition, "old")
    before = log.now
    await log.set_clock(before - timedelta(hours=1))
    await staging.segment("new")

    await append(staging)

    query = "select created_at from skep.segment where partition_id = $1"
    assert {row["created_at"] for row in await log.rows(query, partition)} == {before}


async def test_idle_consumers_find_what_was_written(log, staging):
    partition, group = await log.partition()
    await log.push(partition, "old")
    first = await log.pop(group, Poll(auto_ack=True))
    assert first.offsets == [1]
    assert (await log.pop(group, Poll())).messages == []
    await staging.segment("new")

    await append(staging)

    assert (await log.pop(group, Poll())).offsets == [2]


async def test_nothing_staged_is_nothing_stored(log, staging):
    assert await append(staging) == 0


async def test_readers_by_transaction_find_a_segment_in_the_one_that_committed_it(log, staging):
    await staging.segment("x")
    staged = await log.value("select xid::text from skep.segment")

    await append(staging)

    row = await log.row(
        "select xid::text, queue_id > 0 as has_queue, (select max(xmin::text) from skep.partition)"
        " as writer from skep.segment"
    )
    assert row["xid"] != staged
    assert row["xid"].endswith(row["writer"])
    assert row["has_queue"]


async def test_what_is_stored_out_of_line_stays_where_it_is(log, staging):
    body = b'[{"transactionId":"x","data":"' + b"y" * 100_000 + b'"}]'
    await staging.segment("x", body=body)
    chunks = "select max(ctid)::text from %s"
    toast = await log.value(
        "select reltoastrelid::regclass::text from pg_class where oid = 'skep.segment'::regclass"
    )
    before = await log.value(chunks % toast)

    await append(staging)

    assert await log.value(chunks % toast) == before
    assert await log.value("select body from skep.segment where partition_id > 0") == body
