import asyncio
from uuid import uuid4

from tests.sql.support.operating import (
    carry_out,
    check_books,
    claim,
    defer,
    operation,
    process_pushes,
    statuses,
    stored,
)
from tests.sql.support.waiting import eventually

BLOCKED = "select exists (select from pg_stat_activity where $1 = any(pg_blocking_pids(pid)))"


async def test_messages_are_stored_and_the_operations_end(log):
    a, b = await log.provision("hive", "a", "b")
    first = await defer(log, a, "p", "q")
    second = await defer(log, b, "r")
    third = await defer(log, a, "s")

    assert await carry_out(log) == [first, third, second]

    assert [await stored(log, a), await stored(log, b)] == [["p", "q", "s"], ["r"]]
    done = await operation(log, first)
    assert done["answer"] == [[1, False], [2, False]]
    assert [done["status"], done["payload"], done["finished_at"]] == ["completed", None, log.now]
    assert (await operation(log, third))["answer"] == [[3, False]]
    await check_books(log)


async def test_a_message_that_is_stored_already_is_a_duplicate_in_the_answer(log):
    [a] = await log.provision("hive", "a")
    await log.push(a, "p")
    first = await defer(log, a, "p", "q")
    second = await defer(log, a, "q")

    await carry_out(log)

    assert await stored(log, a) == ["p", "q"]
    assert (await operation(log, first))["answer"] == [[1, True], [2, False]]
    assert (await operation(log, second))["answer"] == [[2, True]]


async def test_consumers_are_told(log):
    partition, group = await log.partition()
    await log.push(partition, "x")
    await log.pop(group)
    await defer(log, partition, "y")

    await carry_out(log)

    assert await log.value("select available_at is not null from skep.cursor") is True


async def test_operations_behind_that_were_not_part_of_it_have_their_turn_next(log):
    [a] = await log.provision("hive", "a")
    first, second = [await defer(log, a, name) for name in "xy"]
    claim_id, claimed = await claim(log, per_partition=1)

    await process_pushes(log, claim_id, *claimed)

    assert await statuses(log, first, second) == ["completed", "waiting"]
    await check_books(log)
    assert await carry_out(log) == [second]


async def test_a_claim_that_was_taken_over_does_nothing(log):
    [a] = await log.provision("hive", "a")
    await defer(log, a, "x")
    late_id, claimed = await claim(log, timeout_s=1)
    await log.advance(2)
    await carry_out(log)

    row = await process_pushes(log, late_id, *claimed)

    assert row["refusal"] == "claim_lost"
    assert await stored(log, a) == ["x"]
    await check_books(log)


async def test_a_claim_that_never_was_does_nothing(log):
    [a] = await log.provision("hive", "a")
    only = await defer(log, a, "x")
    _, claimed = await claim(log)

    row = await process_pushes(log, uuid4(), *claimed)

    assert row["refusal"] == "claim_lost"
    assert await statuses(log, only) == ["processing"]
    assert await stored(log, a) == []


async def test_messages_are_not_stored_in_another_partition_than_they_wait_for(log):
    a, b = await log.provision("hive", "a", "b")
    await defer(log, a, "x")
    claim_id, claimed = await claim(log)

    row = await process_pushes(log, claim_id, *claimed, partition_id=b)

    assert row["refusal"] == "claim_lost"
    assert [await stored(log, a), await stored(log, b)] == [[], []]


async def test_a_partition_that_is_gone_is_no_reason_to_raise(log):
    [a] = await log.provision("hive", "a")
    await defer(log, a, "x")
    claim_id, claimed = await claim(log)
    await log.value("select skep.remove_queue($1)", "hive")

    row = await process_pushes(log, claim_id, *claimed)

    assert row["refusal"] == "claim_lost"


async def test_a_push_meanwhile_is_stored_behind_and_never_before(log, open_log):
    [a] = await log.provision("hive", "a")
    await defer(log, a, "waited")
    claim_id, claimed = await claim(log)
    other = await open_log()
    async with log.connection.transaction():
        await process_pushes(log, claim_id, *claimed)
        late = asyncio.ensure_future(other.push_of_broker(a, "later"))
        await eventually(lambda: log.value(BLOCKED, log.connection.get_server_pid()))
    row = await late

    assert row.first == 2
    assert await stored(log, a) == ["waited", "later"]
