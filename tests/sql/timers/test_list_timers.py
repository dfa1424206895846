from tests.sql.support.scheduling import carry_out, scheduling

LIST = "select * from skep.list_timers($1, $2, $3, $4)"
COUNT = "select skep.count_timers($1, $2)"


async def page(log, after, limit, queue="hive"):
    return [row["timer_key"] for row in await log.rows(LIST, queue, None, after, limit)]


async def test_pages_follow_each_other_in_the_order_of_bytes(log):
    await carry_out(log, [scheduling(key, key) for key in ("b", "ä", "a/1", "a", "Z")])
    await carry_out(log, [scheduling("other", "other", queue="other")])

    assert await page(log, None, 2) == ["Z", "a"]
    assert await page(log, "a", 10) == ["a/1", "b", "ä"]
    assert await page(log, None, 10, queue="none") == []


async def test_one_timer_is_shown_with_its_message_and_its_times(log):
    await carry_out(log, [scheduling("k", "x", 1000)])
    await log.advance(0.5)
    await carry_out(log, [scheduling("k", "y", 1000, partition="b")])

    [row] = await log.rows(LIST, "hive", "k", None, 1)

    assert (row["partition"], row["transaction_id"]) == ("b", "y")
    assert b'"data":"y"' in row["envelope"]
    assert (row["updated_at"] - row["created_at"]).total_seconds() == 0.5
    assert (row["deliver_at"] - row["updated_at"]).total_seconds() == 1
    assert await log.rows(LIST, "hive", "none", None, 1) == []


async def test_timers_are_counted_by_the_beginning_of_their_keys(log):
    await carry_out(log, [scheduling(key, key) for key in ("a", "a%", "ab", "b")])

    assert [await log.value(COUNT, "hive", prefix) for prefix in ("a", "a%", "c")] == [3, 1, 0]
    assert await log.value(COUNT, "none", "a") == 0
