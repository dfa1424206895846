from datetime import timedelta

SCHEDULE = "select * from skep.schedule_staged($1, 0, '{1}', skep.now())"


async def test_messages_wait_in_the_order_of_their_rows(log, staging):
    await log.partition()
    due = log.now + timedelta(hours=1)
    await staging.message("b", due, task=1)
    await staging.message("a", due, task=0)

    assert tuple(await log.row(SCHEDULE, staging.write_id)) == (2, 0)

    rows = await log.rows(
        "select transaction_id, partition, deliver_at from skep.scheduled order by id"
    )
    assert [tuple(row) for row in rows] == [("a", "a", due), ("b", "a", due)]


async def test_what_waits_already_and_what_comes_twice_counts_as_duplicate(log, staging):
    await log.partition()
    await staging.message("x", log.now)
    await log.row(SCHEDULE, staging.write_id)
    await staging.message("y", log.now + timedelta(hours=1), task=2)
    await staging.message("y", log.now + timedelta(hours=2), task=3)

    assert tuple(await log.row(SCHEDULE, staging.write_id)) == (1, 2)

    rows = await log.rows("select transaction_id, deliver_at from skep.scheduled order by id")
    assert [row["transaction_id"] for row in rows] == ["x", "y"]
    assert rows[1]["deliver_at"] == log.now + timedelta(hours=1)


async def test_without_a_window_every_message_waits(log, staging):
    await log.partition()
    await log.configure("hive", dedup_window_s=0)
    await staging.message("x", log.now + timedelta(hours=1), task=0)
    await staging.message("x", log.now + timedelta(hours=1), task=1)

    assert tuple(await log.row(SCHEDULE, staging.write_id)) == (2, 0)
