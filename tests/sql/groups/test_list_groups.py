from tests.sql.support.log import NOON, QUEUE_MODE

LIST = "select * from skep.list_groups($1, $2, $3, $4)"


async def names(log, group=None, queue=None, limit=100, offset=0):
    rows = await log.rows(LIST, group, queue, limit, offset)
    return [(row["group_name"], row["queue_name"]) for row in rows]


async def three_groups(log):
    await log.subscribe("wax", "bees")
    await log.subscribe("hive", "bees")
    await log.subscribe("hive", "ants", "timestamp", NOON)


async def test_groups_come_by_group_and_then_by_queue(log):
    await three_groups(log)

    assert await names(log) == [("ants", "hive"), ("bees", "hive"), ("bees", "wax")]


async def test_queue_mode_is_listed_where_it_counts_or_is_asked_for(log):
    await three_groups(log)
    await log.subscribe("wax", QUEUE_MODE)

    assert await names(log, queue="wax") == [(QUEUE_MODE, "wax"), ("bees", "wax")]
    assert await names(log, group=QUEUE_MODE) == [(QUEUE_MODE, "hive"), (QUEUE_MODE, "wax")]


async def test_a_list_can_be_narrowed_to_a_group_or_a_queue(log):
    await three_groups(log)

    assert await names(log, group="bees") == [("bees", "hive"), ("bees", "wax")]
    assert await names(log, group="bees", queue="wax") == [("bees", "wax")]


async def test_a_page_knows_how_many_there_are_in_all(log):
    await three_groups(log)

    rows = await log.rows(LIST, None, None, 2, 1)

    assert [row["total"] for row in rows] == [3, 3]
    assert [row["queue_name"] for row in rows] == ["hive", "wax"]


async def test_an_empty_page_still_tells_the_total(log):
    await three_groups(log)

    [row] = await log.rows(LIST, None, None, 10, 50)

    assert (row["total"], row["group_id"]) == (3, None)


async def test_a_row_tells_how_the_group_subscribed(log):
    await three_groups(log)
    await log.execute("update skep.consumer_group set is_paused = true where name = 'ants'")

    [row] = await log.rows(LIST, "ants", None, 10, 0)

    assert (row["subscription_mode"], row["subscribed_from"]) == ("timestamp", NOON)
    assert row["is_paused"] is True


async def test_a_group_of_mode_new_started_when_it_subscribed(log):
    await log.subscribe("hive", "bees", "new")

    [row] = await log.rows(LIST, "bees", None, 10, 0)

    assert row["subscribed_from"] == row["created_at"]


async def test_a_row_tells_when_consumers_were_there_and_made_progress(log):
    group = await log.subscribe("hive", "bees")
    subscribed_at = log.now
    await log.execute("update skep.queue set delayed_processing_s = 5, lease_time_s = 30")
    [row] = await log.rows(LIST, "bees", None, 10, 0)
    assert [row["polled_at"], row["progressed_at"], row["is_failing"]] == [
        *(subscribed_at, subscribed_at),
        None,
    ]
    assert [row["is_held_back"], row["delay_s"], row["lease_s"]] == [False, 5, 30]

    await log.advance(60)
    await log.execute(
        "insert into skep.group_activity values ($1, $2, $3, null, $2)", group, log.now, NOON
    )

    [row] = await log.rows(LIST, "bees", None, 10, 0)
    assert [row["polled_at"], row["progressed_at"], row["is_failing"], row["listed_at"]] == [
        *(log.now, subscribed_at),
        *(True, log.now),
    ]
