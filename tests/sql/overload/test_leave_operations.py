from tests.sql.support.operating import ACK, check_books, defer, operation

CALL = "select skep.leave_operations($1, $2, $3, $4)"


async def test_who_is_behind_moves_up(log):
    [a] = await log.provision("hive", "a")
    first, second = [await defer(log, a) for _ in range(2)]

    await log.value(CALL, [first], "cancelled", None, None)

    assert [(await operation(log, id_))["is_next"] for id_ in (first, second)] == [False, True]
    await check_books(log)


async def test_one_may_leave_from_the_middle(log):
    [a] = await log.provision("hive", "a")
    _, second, _ = [await defer(log, a) for _ in range(3)]

    await log.value(CALL, [second], "cancelled", None, None)

    await check_books(log)


async def test_many_leave_together_from_partitions_of_both_kinds(log):
    a, b = await log.provision("hive", "a", "b")
    leaving = [await defer(log, a), await defer(log, a, type_=ACK), await defer(log, b)]
    await defer(log, a)

    await log.value(CALL, leaving, "completed", ["[1]", "[2]", "[3]"], None)

    assert (await operation(log, leaving[1]))["answer"] == [2]
    await check_books(log)


async def test_only_one_that_was_given_up_keeps_its_payload(log):
    [a] = await log.provision("hive", "a")
    done, given_up = [await defer(log, a, name) for name in ("x", "y")]

    await log.value(CALL, [done], "completed", ["[]"], None)
    await log.value(CALL, [given_up], "failed", None, ["no luck"])

    assert (await operation(log, done))["payload"] is None
    found = await operation(log, given_up)
    assert [found["payload"], found["error"]] == [b"y", "no luck"]


async def test_nothing_to_do_is_done(log):
    await log.value(CALL, [], "cancelled", None, None)

    await check_books(log)


async def test_one_that_moves_up_loses_its_pause_and_the_first_keeps_it(log):
    a, b = await log.provision("hive", "a", "b")
    leaving, next_ = [await defer(log, a) for _ in range(2)]
    first, behind = [await defer(log, b) for _ in range(2)]
    await log.execute("update skep.operation set available_at = 'infinity'")

    await log.value(CALL, [leaving, behind], "cancelled", None, None)

    assert (await operation(log, next_))["available_at"] == log.now
    assert (await operation(log, first))["available_at"] != log.now
