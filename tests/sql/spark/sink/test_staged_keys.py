from tests.sql.support.log import keys_of
from tests.sql.support.staging import WRITE

KEYS = "select * from skep.staged_keys($1, 0, $2, $3, $4, $5)"


async def staged_keys(log, *attempts, behind=("", ""), limit=100):
    rows = await log.rows(KEYS, WRITE, list(attempts or (1,)), *behind, limit)
    return [(row["partition"], row["attempt"], row["keys"]) for row in rows]


async def test_segments_come_by_partition_and_inside_of_a_partition_in_the_order_of_their_rows(
    log, staging
):
    await staging.segment("c", task=1, attempt=2)
    await staging.segment("d", task=1, attempt=2)
    await staging.segment("z", partition="b")
    await staging.segment("a", "b", task=0)

    assert await staged_keys(log, 1, 2) == [
        ("a", 1, keys_of("ab")),
        ("a", 2, keys_of("c")),
        ("a", 2, keys_of("d")),
        ("b", 1, keys_of("z")),
    ]


async def test_a_partition_that_does_not_exist_yet_has_no_id(log, staging):
    partition, _ = await log.partition()
    await staging.segment("x")
    await staging.segment("x", partition="b")
    await staging.segment("x", queue="new")

    rows = await log.rows(KEYS, WRITE, [1], "", "", 100)

    assert [tuple(row)[:3] for row in rows] == [
        ("hive", "a", partition), ("hive", "b", None), ("new", "a", None)
    ]  # fmt: skip


async def test_what_needs_no_comparison_is_left_out(log, staging):
    await log.partition()
    await log.set_options("hive", dedup_window_s=0)
    await staging.segment("no window")
    await staging.segment("made up", queue="other", is_unique=True)
    await staging.segment("another attempt", queue="other", attempt=9)
    await staging.segment("another epoch", queue="other", epoch=1)

    assert await staged_keys(log) == []


async def test_partitions_come_whole_and_up_to_the_limit(log, staging):
    for partition, names in (("a", "12"), ("b", "3"), ("c", "4567"), ("d", "89")):
        for name in names:
            await staging.segment(name, partition=partition)

    found = await staged_keys(log, limit=3)
    assert [partition for partition, _, _ in found] == ["a", "a", "b"]
    found = await staged_keys(log, limit=3, behind=("hive", "b"))
    assert [partition for partition, _, _ in found] == ["d", "d"]  # c will never fit
    assert await staged_keys(log, limit=3, behind=("hive", "d")) == []
