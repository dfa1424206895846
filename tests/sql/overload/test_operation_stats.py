from tests.sql.support.operating import ACK, carry_out, claim, defer

CALL = "select * from skep.operation_stats()"


async def test_operations_are_counted_by_type_and_status(log):
    a, b, c = await log.provision("hive", "a", "b", "c")
    await defer(log, a, "done")
    await carry_out(log)
    await defer(log, b, "work")
    await claim(log)
    await log.advance(5)
    for name in ("one", "three"):
        await defer(log, c, name)
    await defer(log, c, "ack", type_=ACK)

    rows = await log.rows(CALL)

    assert [tuple(row)[:4] for row in rows] == [
        (ACK, "waiting", 1, 3),
        ("push", "completed", 1, 4),
        ("push", "processing", 1, 4),
        ("push", "waiting", 2, 8),
    ]
    assert {row["oldest_at"] for row in rows} == {log.now}
    assert {row["newest_at"] for row in rows} == {log.now}


async def test_without_operations_there_is_nothing_to_say(log):
    assert await log.rows(CALL) == []
