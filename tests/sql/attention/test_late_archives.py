LATE = "select * from skep.late_archives(30, 10)"


async def test_a_queue_is_late_when_the_grace_is_over_too(log):
    await log.partition("hive")
    await log.partition("nest")
    await log.set_options("hive", archive_after_s=60, created_at=log.now)
    await log.advance(90)
    assert await log.rows(LATE) == []
    await log.advance(5)

    assert [tuple(row) for row in await log.rows(LATE)] == [("hive", None, 5)]

    archived_at = log.now
    await log.execute(
        "insert into skep.archive (queue_id, system, archived_at)"
        " select id, 'here', skep.now() from skep.queue where name = 'hive'"
    )
    assert await log.rows(LATE) == []
    await log.advance(100)
    assert [tuple(row) for row in await log.rows(LATE)] == [("hive", archived_at, 10)]
