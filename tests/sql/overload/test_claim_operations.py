from tests.sql.support.operating import (
    ACK,
    PUSH,
    TIMEOUT_S,
    check_books,
    claim,
    defer,
    ids,
    operation,
)


async def test_the_oldest_of_a_partition_is_taken_and_what_is_behind_comes_with_it(log):
    a, b = await log.provision("hive", "a", "b")
    first, second, third = [
        await defer(log, partition, name) for partition, name in zip((a, b, a), "xyz", strict=True)
    ]

    claim_id, claimed = await claim(log)

    assert ids(claimed) == [first, third, second]
    assert [each.payload for each in claimed] == [b"x", b"z", b"y"]
    assert {(each.queue, each.retries, each.is_gone) for each in claimed} == {("hive", 0, False)}
    head = await operation(log, first)
    assert [head["status"], head["claim_id"]] == ["processing", claim_id]
    assert (await operation(log, third))["status"] == "waiting"
    await check_books(log)


async def test_what_is_claimed_is_not_claimed_again_nor_what_is_behind_it(log):
    [a] = await log.provision("hive", "a")
    await defer(log, a)
    await claim(log, per_partition=1)
    await defer(log, a)

    assert (await claim(log))[1] == []


async def test_the_more_important_go_first(log):
    a, b = await log.provision("hive", "a", "b")
    await defer(log, a, type_=PUSH)
    await defer(log, b, type_=ACK)

    _, claimed = await claim(log)

    assert [each.type for each in claimed] == [ACK, PUSH]


async def test_a_claim_takes_so_many_partitions_and_so_many_of_each(log):
    a, b, c = await log.provision("hive", "a", "b", "c")
    for partition in (a, a, a, b, c):
        await defer(log, partition)

    _, claimed = await claim(log, partitions=2, per_partition=2)
    _, rest = await claim(log)

    assert [each.partition_id for each in claimed] == [a, a, b]
    assert [each.partition_id for each in rest] == [c]


async def test_a_claim_takes_so_many_bytes_but_at_least_one_operation(log):
    a, b = await log.provision("hive", "a", "b")
    for partition in (a, a, b):
        await defer(log, partition, "12345678")

    _, claimed = await claim(log, size=1)
    _, others = await claim(log, size=9)

    assert [each.partition_id for each in claimed] == [a]
    assert [each.partition_id for each in others] == [b]


async def test_what_was_not_finished_in_time_comes_again_and_counts_as_a_failure(log):
    [a] = await log.provision("hive", "a")
    only = await defer(log, a)
    await claim(log)

    await log.advance(TIMEOUT_S - 1)
    assert (await claim(log))[1] == []
    await log.advance(1)
    _, [again] = await claim(log)

    assert (again.id, again.retries) == (only, 1)


async def test_an_operation_in_other_hands_is_passed_over_without_waiting(log, open_log):
    a, b = await log.provision("hive", "a", "b")
    first, second = [await defer(log, partition) for partition in (a, b)]
    other = await open_log()
    async with other.connection.transaction():
        await other.rows("select from skep.operation where id = $1 for update", first)

        assert ids((await claim(log))[1]) == [second]


async def test_an_operation_whose_queue_was_deleted_says_so(log):
    [a] = await log.provision("hive", "a")
    await defer(log, a)
    await log.value("select skep.remove_queue($1)", "hive")

    _, [claimed] = await claim(log)

    assert claimed.is_gone


async def test_a_claim_costs_what_it_takes_however_much_waits_or_backs_off(log):
    partitions = await log.provision("hive", *(f"partition-{number:03}" for number in range(50)))
    for partition in partitions:
        for type_ in (ACK, *[PUSH] * 10):
            await defer(log, partition, type_=type_)
    await log.execute("update skep.operation set available_at = 'infinity' where type = $1", ACK)
    await claim(
        log, partitions=1
    )  # passes over what the update left behind, which is then marked dead
    before = await entries_read(log)

    _, claimed = await claim(log, partitions=2, per_partition=3)

    assert len(claimed) == 6
    assert await entries_read(log) - before < 40


async def entries_read(log):
    """Return how many entries of the indexes of operations this session has read."""
    return await log.value(
        """
        select sum(pg_stat_get_xact_tuples_returned(i.indexrelid)
                   + pg_stat_get_tuples_returned(i.indexrelid))
        from pg_index i where i.indrelid = 'skep.operation'::regclass
        """
    )
