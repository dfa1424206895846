import asyncio
from uuid import uuid4

import asyncpg
import pytest

from tests.sql.support.operating import (
    ACK,
    PUSH,
    Asked,
    carry_out,
    check_books,
    defer,
    defer_all,
    operation,
)
from tests.sql.support.waiting import eventually

BLOCKED = "select exists (select from pg_stat_activity where $1 = any(pg_blocking_pids(pid)))"


async def test_operations_of_a_partition_stand_one_behind_the_other(log):
    a, b = await log.provision("hive", "a", "b")

    answers = await defer_all(log, Asked(a), Asked(b), Asked(a))

    assert [each.outcome for each in answers] == ["accepted"] * 3
    assert [each.queue_position for each in answers] == [1, 1, 2]
    assert {each.waiting for each in answers} == {3}
    assert [(each.queue, each.partition) for each in answers] == [
        ("hive", "a"), ("hive", "b"), ("hive", "a"),
    ]  # fmt: skip
    await check_books(log)


async def test_pushes_and_acks_of_a_partition_are_partitions_of_their_own(log):
    [a] = await log.provision("hive", "a")

    answers = await defer_all(log, Asked(a, PUSH), Asked(a, ACK))

    assert [each.queue_position for each in answers] == [1, 1]
    found = await operation(log, answers[1].id)
    assert [found["type"], found["priority"], found["status"]] == [ACK, 3, "waiting"]
    await check_books(log)


async def test_asking_again_with_the_same_ids_changes_nothing(log):
    [a] = await log.provision("hive", "a")
    asked = [Asked(a, id=uuid4()), Asked(a, id=uuid4())]
    first = await defer_all(log, *asked)

    again = await defer_all(log, *asked, per_partition=2)

    assert [each.outcome for each in again] == ["accepted", "accepted"]
    assert await log.value("select count(*) from skep.operation") == 2
    assert first[-1].waiting == again[-1].waiting == 2
    await check_books(log)


async def test_a_partition_takes_so_many_and_not_more(log):
    a, b = await log.provision("hive", "a", "b")
    await defer(log, a)

    answers = await defer_all(log, Asked(a), Asked(a), Asked(b), per_partition=2)

    assert [each.outcome for each in answers] == ["accepted", "partition_full", "accepted"]
    await check_books(log)


async def test_all_partitions_together_take_so_many_and_not_more(log):
    a, b = await log.provision("hive", "a", "b")
    await defer(log, a)

    answers = await defer_all(log, Asked(a), Asked(b), depth=2)

    assert [each.outcome for each in answers] == ["accepted", "full"]
    await check_books(log)


async def test_payloads_may_weigh_so_much_together(log):
    [a] = await log.provision("hive", "a")
    await defer(log, a, "12345")

    [fits] = await defer_all(log, Asked(a, names=("12345",)), size=10)
    [heavy] = await defer_all(log, Asked(a, names=("1",)), size=10)

    assert [fits.outcome, heavy.outcome] == ["accepted", "full"]


async def test_a_request_is_accepted_whole_or_not_at_all(log):
    a, b, c = await log.provision("hive", "a", "b", "c")
    await defer(log, b)

    answers = await defer_all(
        log, Asked(a, request=1), Asked(b, request=1), Asked(c, request=2), per_partition=1
    )

    assert [each.outcome for each in answers] == ["partition_full", "partition_full", "accepted"]
    await check_books(log)


async def test_a_partition_that_is_gone_is_told_from_the_others_of_its_request(log):
    [a] = await log.provision("hive", "a")

    answers = await defer_all(log, Asked(a, request=1), Asked(1_000_000, request=1))

    assert [each.outcome for each in answers] == ["again", "gone"]
    assert await log.value("select count(*) from skep.operation") == 0


async def test_the_pace_of_the_last_ones_is_told(log):
    [a] = await log.provision("hive", "a")
    for number in range(3):
        await defer(log, a, str(number))
        await carry_out(log)
        await log.advance(2)

    [answer] = await defer_all(log, Asked(a))

    assert answer.pace_s == 2


async def test_a_queue_that_was_configured_anew_is_an_error(log):
    [a] = await log.provision("hive", "a")
    queue_id = await log.value("select id from skep.queue")

    with pytest.raises(asyncpg.PostgresError) as refused:
        await defer_all(log, Asked(a), rules=[(queue_id, 99)])

    assert refused.value.sqlstate == "SK409"


async def test_accepting_waits_for_a_push_under_way_and_stands_behind_it(log, open_log):
    [a] = await log.provision("hive", "a")
    other = await open_log()
    async with log.connection.transaction():
        await log.push(a, "first")
        late = asyncio.ensure_future(defer(other, a))
        await eventually(lambda: log.value(BLOCKED, log.connection.get_server_pid()))
    await late

    row = (await log.rows("select head, deferred_pushes from skep.partition"))[0]
    assert tuple(row) == (1, 1)
