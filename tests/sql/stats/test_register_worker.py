async def test_every_process_is_a_worker_of_its_own(rollups):
    first = await rollups.worker("host", 0)
    second = await rollups.worker("host", 0)

    assert first != second


async def test_the_answer_has_the_time_of_the_database(rollups, log):
    row = await log.row("select * from skep.register_worker('host', 6632, 1, 42)")

    assert row["registered_at"] == log.now
    kept = await log.row("select * from skep.metric_worker where id = $1", row["worker_id"])
    assert [kept[name] for name in ("hostname", "port", "number", "pid")] == ["host", 6632, 1, 42]
