from tests.sql.support.operating import ACK, PUSH, check_books, defer, operation

CALL = "select skep.advance_operations($1, $2)"


async def test_the_oldest_of_a_partition_has_its_turn(log):
    a, b = await log.provision("hive", "a", "b")
    first, _ = [await defer(log, a) for _ in range(2)]
    elsewhere = await defer(log, b, type_=ACK)
    await log.execute("update skep.operation set is_next = false, available_at = 'infinity'")

    await log.value(CALL, [a, b], [PUSH, ACK])

    for id_ in (first, elsewhere):
        found = await operation(log, id_)
        assert [found["is_next"], found["available_at"]] == [True, log.now]
    await check_books(log)


async def test_whose_turn_it_is_already_keeps_its_pause(log):
    [a] = await log.provision("hive", "a")
    only = await defer(log, a)
    await log.execute("update skep.operation set available_at = 'infinity'")

    await log.value(CALL, [a], [PUSH])

    assert (await operation(log, only))["available_at"] != log.now
