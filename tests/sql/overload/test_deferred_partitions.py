from tests.sql.support.operating import ACK, PUSH, carry_out, defer

CALL = "select * from skep.deferred_partitions($1, $2)"


async def test_partitions_in_which_something_of_the_kind_waits_are_told(log):
    a, b, c = await log.provision("hive", "a", "b", "c")
    await defer(log, a, type_=PUSH)
    await defer(log, b, type_=ACK)

    pushes = await log.rows(CALL, [a, b, c, 1_000_000], PUSH)
    acks = await log.rows(CALL, [a, b, c], ACK)

    assert [row[0] for row in pushes] == [a]
    assert [row[0] for row in acks] == [b]


async def test_a_partition_is_free_when_the_last_one_is_done(log):
    [a] = await log.provision("hive", "a")
    await defer(log, a)
    await carry_out(log)

    assert await log.rows(CALL, [a], PUSH) == []
