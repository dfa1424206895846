from datetime import timedelta

from tests.sql.support.log import NOON, keys_of

MINUTE = timedelta(minutes=1)
WINDOW = timedelta(hours=1)


async def search(log, partition, names, *, to, since):
    return await log.rows(
        "select * from skep.search_windows($1, $2, $3, $4)",
        [partition],
        [keys_of(names)],
        [to],
        [since],
    )


async def test_keys_are_found_in_what_the_guarantee_leaves_out(log):
    partition, _ = await log.partition()
    for names in ("ab", "c", "de"):
        await log.push(partition, *names)
        await log.advance(60)

    [row] = await search(log, partition, "xbd", to=5, since=NOON + MINUTE)

    assert (row["partition_id"], row["window_start"]) == (partition, log.now - WINDOW)
    assert (row["duplicate_index"], row["duplicate_offset"]) == ([1], [2])


async def test_new_keys_are_not_found(log):
    partition, _ = await log.partition()
    await log.push(partition, "a")

    [row] = await search(log, partition, "x", to=1, since=NOON + MINUTE)

    assert row["duplicate_index"] is None


async def test_a_partition_that_does_not_exist_gets_no_row(log):
    assert await search(log, 1_000_000, "x", to=1, since=NOON) == []
