from datetime import timedelta

from tests.sql.support.log import MICROSECOND, NOON, keys_of

MINUTE = timedelta(minutes=1)
WINDOW = timedelta(hours=1)
MARGIN = timedelta(minutes=1)


async def read_window(log, *partitions, above=0, below=None, keys_max=100):
    return await log.rows(
        "select * from skep.read_window($1, $2, $3, $4)",
        list(partitions),
        [above] * len(partitions),
        [below] * len(partitions),
        keys_max,
    )


async def three_segments(log):
    """Push ab at noon, c a minute later, de a minute later; return the partition."""
    partition, _ = await log.partition()
    for names in ("ab", "c", "de"):
        await log.push(partition, *names)
        await log.advance(60)
    return partition


def found(row):
    return row["firsts"], row["counts"], row["keys"]


async def test_a_window_with_few_keys_is_read_in_one_step(log):
    partition = await three_segments(log)

    [row] = await read_window(log, partition)

    assert (row["partition_id"], row["head"], row["is_whole"]) == (partition, 5, True)
    assert found(row) == ([1, 3, 4], [2, 1, 2], keys_of("abcde"))
    assert row["newest"] == NOON + 2 * MINUTE
    assert row["window_start"] == log.now - WINDOW
    assert row["since"] == log.now - WINDOW - MARGIN


async def test_steps_go_back_until_the_window_is_read(log):
    partition = await three_segments(log)

    [newest] = await read_window(log, partition, keys_max=3)
    [oldest] = await read_window(log, partition, below=newest["below"], keys_max=3)

    assert found(newest) == ([3, 4], [1, 2], keys_of("cde"))
    # A segment that was not read may have been created at the same time.
    assert (newest["is_whole"], newest["since"]) == (False, NOON + MINUTE + MICROSECOND)
    assert found(oldest) == ([1], [2], keys_of("ab"))
    assert oldest["is_whole"]


async def test_a_segment_with_more_keys_than_wanted_is_read_alone(log):
    partition = await three_segments(log)

    [row] = await read_window(log, partition, keys_max=1)

    assert found(row) == ([4], [2], keys_of("de"))
    assert not row["is_whole"]


async def test_what_left_the_window_is_not_read(log):
    partition = await three_segments(log)
    await log.set_clock(NOON + WINDOW + MARGIN + MINUTE)

    [row] = await read_window(log, partition)
    [step] = await read_window(log, partition, keys_max=2)

    assert found(row) == found(step) == ([4], [2], keys_of("de"))
    assert row["is_whole"]
    assert step["is_whole"], "what is before it need not be looked at"


async def test_only_what_lies_above_an_offset_is_read(log):
    partition = await three_segments(log)

    [row] = await read_window(log, partition, above=2)

    assert found(row) == ([3, 4], [1, 2], keys_of("cde"))
    assert row["is_whole"]


async def test_there_may_be_nothing_to_read(log):
    partition, _ = await log.partition()

    [row] = await read_window(log, partition)

    assert (row["head"], row["is_whole"], row["keys"]) == (0, True, None)
    assert await read_window(log, 1_000_000) == []


async def test_partitions_are_read_together(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push(a, "x")
    await log.push(b, "y", "z")

    rows = await read_window(log, b, a)

    assert {row["partition_id"]: row["keys"] for row in rows} == {
        a: keys_of("x"),
        b: keys_of("yz"),
    }
