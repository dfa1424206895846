"""Draining a part of a spill file: stored once, whatever is repeated and however late."""

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from tests.sql.support.log import NOON, Guarantee
from tests.sql.support.operating import carry_out, defer
from tests.sql.support.settling import names
from tests.sql.support.spilling import File
from tests.support.broker import until_blocked_by


@pytest.fixture
def file(log):
    return File(log)


async def test_a_part_is_stored_in_order_and_its_end_remembered(log, file):
    a, b = await log.provision("hive", "a", "b")

    position, rows = await file.drain(0, 3, {a: "xy", b: "q"})

    assert position == await file.position() == 3
    assert [(row["partition"], row["stored_item"], row["first"]) for row in rows] == [
        (1, [1, 2], 1),
        (2, [3], 1),
    ]
    assert [await names(log, a), await names(log, b)] == [["x", "y"], ["q"]]


@pytest.mark.parametrize("window_s", [0, 3600])
async def test_a_part_that_was_drained_is_not_drained_again_though_its_window_is_over(
    log, file, window_s
):
    [a] = await log.provision("hive", "a")
    await log.set_options("hive", dedup_window_s=window_s)
    await file.drain(0, 2, {a: "xy"})
    await log.advance(7200)

    position, rows = await file.drain(0, 2, {a: "xy"})

    assert [position, rows] == [2, []]
    assert await names(log, a) == ["x", "y"]


async def test_who_begins_at_the_wrong_place_is_told_the_right_one_and_nothing_happens(log, file):
    [a] = await log.provision("hive", "a")
    await file.drain(0, 2, {a: "xy"})

    position, rows = await file.drain(1, 3, {a: "yz"})

    assert [position, rows] == [2, []]
    assert await names(log, a) == ["x", "y"]


async def test_what_a_client_pushed_again_meanwhile_is_left_out(log, file):
    [a] = await log.provision("hive", "a")
    await log.push(a, "y")

    _, [row] = await file.drain(0, 3, {a: "xyz"})

    assert [row["stored_item"], row["duplicate_item"]] == [[1, 3], [2]]
    assert await names(log, a) == ["y", "x", "z"]


async def test_a_message_of_a_lost_call_is_recognised_though_there_is_no_window(log, file):
    [a] = await log.provision("hive", "a")
    await log.set_options("hive", dedup_window_s=0)
    await log.push(a, "x")
    await log.push(a, "y")  # by the call whose answer was lost

    _, [row] = await file.drain(0, 2, {a: "yz"}, guarantees={a: Guarantee(1, NOON)}, resolve=True)

    assert row["duplicate_item"] == [1]
    assert await names(log, a) == ["x", "y", "z"]


async def test_an_older_message_of_the_same_name_is_not_taken_for_the_lost_call(log, file):
    [a] = await log.provision("hive", "a")
    await log.set_options("hive", dedup_window_s=0)
    await log.push(a, "x")

    await file.drain(0, 1, {a: "x"}, guarantees={a: Guarantee(1, NOON)}, resolve=True)

    assert await names(log, a) == ["x", "x"]


async def test_other_rules_are_refused_and_nothing_is_remembered(log, file):
    [a] = await log.provision("hive", "a")

    with pytest.raises(asyncpg.PostgresError) as refusal:
        await file.drain(0, 1, {a: "x"}, version=77)

    assert refusal.value.sqlstate == "SK409"
    assert await file.position() is None


async def test_a_partition_that_is_gone_undoes_the_part(log, file):
    [a] = await log.provision("hive", "a")

    with pytest.raises(asyncpg.PostgresError) as refusal:
        await file.drain(0, 2, {a: "x", 1 << 50: "y"})

    assert refusal.value.sqlstate == "P0002"
    assert await file.position() is None
    assert await names(log, a) == []


async def test_messages_for_later_wait_and_are_scheduled_once(log, file):
    await log.provision("hive", "a")
    queue_id = await log.value("select id from skep.queue where name = 'hive'")
    later = [(queue_id, "x", NOON.replace(hour=20))]

    await file.drain(0, 1, {}, later=later)
    await File(log).drain(0, 1, {}, later=later)

    query = "select transaction_id, deliver_at from skep.scheduled"
    assert [tuple(row) for row in await log.rows(query)] == [("x", NOON.replace(hour=20))]


async def test_a_queue_that_is_gone_undoes_messages_for_later(log, file):
    with pytest.raises(asyncpg.PostgresError) as refusal:
        await file.drain(0, 1, {}, later=[(1 << 30, "x", NOON)])

    assert refusal.value.sqlstate == "P0002"
    assert await file.position() is None


async def test_a_part_with_nothing_to_store_moves_the_position(log, file):
    assert await file.drain(0, 5, {}) == (5, [])
    assert await file.position() == 5


async def test_two_who_drain_the_same_part_store_it_once(log, open_log, file):
    [a] = await log.provision("hive", "a")
    other = File(await open_log(), file.file_id)
    async with log.connection.transaction():
        await file.drain(0, 2, {a: "xy"})
        second = asyncio.ensure_future(other.drain(0, 2, {a: "xy"}))
        await until_blocked_by(log.connection)

    assert await second == (2, [])
    assert await names(log, a) == ["x", "y"]


async def test_messages_wait_behind_operations_that_were_accepted_before_they_were_spilled(
    log, file
):
    [a] = await log.provision("hive", "a")
    await defer(log, a, "first")

    with pytest.raises(asyncpg.PostgresError) as refusal:
        await file.drain(0, 1, {a: "x"})
    assert refusal.value.sqlstate == "55P03"
    assert await file.position() is None

    await carry_out(log)
    await file.drain(0, 1, {a: "x"})
    assert await names(log, a) == ["first", "x"]


async def test_without_a_window_twins_are_stored_and_scheduled(log, file):
    [a] = await log.provision("hive", "a")
    await log.set_options("hive", dedup_window_s=0)
    queue_id = await log.value("select queue_id from skep.partition where id = $1", a)
    later = [(queue_id, "x", NOON + timedelta(hours=1))] * 2

    _, [row] = await file.drain(0, 4, {a: "xx"}, later=later)

    assert [row["stored_item"], row["duplicate_item"]] == [[1, 2], None]
    assert await names(log, a) == ["x", "x"]
    assert await log.value("select count(*) from skep.scheduled") == 2
