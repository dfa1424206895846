"""What a driver found without locks, judged when the lanes are locked."""

import json
from datetime import timedelta

CHECKED = "select * from skep.checked_lanes($1, $2, $3, $4, $5, skep.now())"
WINDOW_S = 60


async def checked(log, lane, *said, window_s=WINDOW_S):
    """Return what counts of what is said of the lane: is_checked, upto, head."""
    lanes = [{"queue": "hive", "partition": "a", **each} for each in said]
    rows = await log.rows(CHECKED, [lane], ["hive"], ["a"], [window_s], json.dumps(lanes))
    return [(row["is_checked"], row["upto"], row["head"]) for row in rows]


def said(log, lane, head, oldest=None, age_s=WINDOW_S):
    since = log.now - timedelta(seconds=age_s)
    return {"id": lane, "head": head, "since": since.isoformat(), "oldest": oldest}


async def test_a_lane_to_which_nothing_happened_since_is_compared_up_to_its_head(log, staging):
    lane, _ = await log.lane()
    await log.push(lane, "x", "y")

    assert await checked(log, lane, said(log, lane, 2)) == [(True, 2, 2)]
    assert await checked(log, lane, said(log, lane, 2, oldest=1)) == [(True, 2, 2)]


async def test_what_was_pushed_since_is_left_to_compare(log, staging):
    lane, _ = await log.lane()
    await log.push(lane, "x")
    await log.push(lane, "y")

    assert await checked(log, lane, said(log, lane, 1)) == [(True, 1, 2)]


async def test_a_lane_that_did_not_exist_is_compared_up_to_nothing(log, staging):
    lane, _ = await log.lane()
    new = {"id": None, "head": 0, "since": "-infinity", "oldest": None}

    assert await checked(log, lane, new) == [(True, 0, 0)]
    await log.push(lane, "x")
    assert await checked(log, lane, new) == [(True, 0, 1)]


async def test_of_which_nothing_is_said_the_whole_window_is_left_to_compare(log, staging):
    lane, _ = await log.lane()
    await log.push(lane, "old")
    await log.advance(WINDOW_S)
    await log.push(lane, "young")

    assert await checked(log, lane) == [(False, 1, 2)]
    rows = await log.rows(CHECKED, [lane], ["hive"], ["a"], [WINDOW_S], None)
    assert [row["is_checked"] for row in rows] == [False]


async def test_a_lane_of_the_same_name_that_was_made_anew_counts_as_not_compared(log, staging):
    lane, _ = await log.lane()

    assert await checked(log, lane, said(log, lane + 1, 0)) == [(False, 0, 0)]


async def test_a_match_that_has_left_the_window_or_the_log_counts_no_more(log, staging):
    lane, _ = await log.lane()
    await log.push(lane, "x")
    await log.push(lane, "y")
    found = said(log, lane, 2, oldest=1)
    await log.advance(WINDOW_S - 1)
    assert await checked(log, lane, found) == [(True, 2, 2)]

    await log.execute("update skep.partition set tail = 2")
    assert await checked(log, lane, found) == [(False, 1, 2)]

    await log.execute("update skep.partition set tail = 1")
    await log.advance(1)
    assert await checked(log, lane, found) == [(False, 2, 2)]


async def test_a_window_that_has_become_longer_was_not_compared_whole(log, staging):
    lane, _ = await log.lane()
    await log.push(lane, "x")

    assert await checked(log, lane, said(log, lane, 1), window_s=WINDOW_S + 1) == [(False, 0, 1)]
    assert await checked(log, lane, said(log, lane, 1), window_s=WINDOW_S - 1) == [(True, 1, 1)]


async def test_a_lane_without_a_window_is_not_worth_a_word(log, staging):
    lane, _ = await log.lane()

    assert await checked(log, lane, window_s=0) == []
