"""What a driver found without locks, judged when the partitions are locked."""

import json
from datetime import timedelta

CHECKED = "select * from skep.checked_partitions($1, $2, $3, $4, $5, skep.now())"
WINDOW_S = 60


async def checked(log, partition, *said, window_s=WINDOW_S):
    """Return what counts of what is said of the partition: is_checked, upto, head."""
    partitions = [{"queue": "hive", "partition": "a", **each} for each in said]
    rows = await log.rows(CHECKED, [partition], ["hive"], ["a"], [window_s], json.dumps(partitions))
    return [(row["is_checked"], row["upto"], row["head"]) for row in rows]


def said(log, partition, head, oldest=None, age_s=WINDOW_S):
    since = log.now - timedelta(seconds=age_s)
    return {"id": partition, "head": head, "since": since.isoformat(), "oldest": oldest}


async def test_a_partition_to_which_nothing_happened_since_is_compared_up_to_its_head(log, staging):
    partition, _ = await log.partition()
    await log.push(partition, "x", "y")

    assert await checked(log, partition, said(log, partition, 2)) == [(True, 2, 2)]
    assert await checked(log, partition, said(log, partition, 2, oldest=1)) == [(True, 2, 2)]


async def test_what_was_pushed_since_is_left_to_compare(log, staging):
    partition, _ = await log.partition()
    await log.push(partition, "x")
    await log.push(partition, "y")

    assert await checked(log, partition, said(log, partition, 1)) == [(True, 1, 2)]


async def test_a_partition_that_did_not_exist_is_compared_up_to_nothing(log, staging):
    partition, _ = await log.partition()
    new = {"id": None, "head": 0, "since": "-infinity", "oldest": None}

    assert await checked(log, partition, new) == [(True, 0, 0)]
    await log.push(partition, "x")
    assert await checked(log, partition, new) == [(True, 0, 1)]


async def test_of_which_nothing_is_said_the_whole_window_is_left_to_compare(log, staging):
    partition, _ = await log.partition()
    await log.push(partition, "old")
    await log.advance(WINDOW_S)
    await log.push(partition, "young")

    assert await checked(log, partition) == [(False, 1, 2)]
    rows = await log.rows(CHECKED, [partition], ["hive"], ["a"], [WINDOW_S], None)
    assert [row["is_checked"] for row in rows] == [False]


async def test_a_partition_of_the_same_name_that_was_made_anew_counts_as_not_compared(log, staging):
    partition, _ = await log.partition()

    assert await checked(log, partition, said(log, partition + 1, 0)) == [(False, 0, 0)]


async def test_a_match_that_has_left_the_window_or_the_log_counts_no_more(log, staging):
    partition, _ = await log.partition()
    await log.push(partition, "x")
    await log.push(partition, "y")
    found = said(log, partition, 2, oldest=1)
    await log.advance(WINDOW_S - 1)
    assert await checked(log, partition, found) == [(True, 2, 2)]

    await log.execute("update skep.partition set tail = 2")
    assert await checked(log, partition, found) == [(False, 1, 2)]

    await log.execute("update skep.partition set tail = 1")
    await log.advance(1)
    assert await checked(log, partition, found) == [(False, 2, 2)]


async def test_a_window_that_has_become_longer_was_not_compared_whole(log, staging):
    partition, _ = await log.partition()
    await log.push(partition, "x")

    assert await checked(log, partition, said(log, partition, 1), window_s=WINDOW_S + 1) == [
        (False, 0, 1)
    ]
    assert await checked(log, partition, said(log, partition, 1), window_s=WINDOW_S - 1) == [
        (True, 1, 1)
    ]


async def test_a_partition_without_a_window_is_not_worth_a_word(log, staging):
    partition, _ = await log.partition()

    assert await checked(log, partition, window_s=0) == []
