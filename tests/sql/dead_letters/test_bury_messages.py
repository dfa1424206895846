import json

import pytest
from asyncpg import Range

from tests.sql.support.log import body_of, envelope


async def bury(log, partition, group, *offsets, failures=None):
    errors = ["too late"] * len(offsets)
    query = "select skep.bury_messages($1, $2, $3, $4, $5, $6)"
    return await log.value(query, partition, group, offsets, errors, failures, log.now)


async def test_all_messages_named_become_dead_letters_of_the_group(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b", "c")
    await log.push(partition, "d", "e")
    pushed_at = log.now
    await log.advance(60)

    assert await bury(log, partition, group, 2, 3, 4) == 3

    letters = await log.dead_letters()
    assert [(row["message_offset"], row["transaction_id"]) for row in letters] == [
        (2, "b"),
        (3, "c"),
        (4, "d"),
    ]
    for letter in letters:
        assert (letter["partition_id"], letter["group_id"]) == (partition, group)
        assert (letter["error"], letter["failures"]) == ("too late", 0)
        assert (letter["created_at"], letter["failed_at"]) == (pushed_at, log.now)


async def test_the_envelope_is_kept_byte_for_byte_whatever_the_payload_holds(log):
    partition, group = await log.partition()
    data = '{"b":1, "a":"\\u0000", "transactionId":"not this"}'
    await log.push_bodies({partition: ["x"]}, {partition: body_of([envelope("x", data)])})

    assert await bury(log, partition, group, 1) == 1

    [letter] = await log.dead_letters()
    assert letter["transaction_id"] == "x"
    assert letter["envelope"] == envelope("x", data)


async def test_deleted_messages_and_those_done_out_of_order_are_not_buried(log):
    partition, group = await log.partition()
    body = body_of([envelope("a"), "null", envelope("c"), envelope("d")])
    await log.push_bodies({partition: "abcd"}, {partition: body})
    await log.execute("update skep.cursor set done = $1", [Range(3, 4)])

    assert await bury(log, partition, group, 1, 2, 3, 4) == 2
    assert [row["transaction_id"] for row in await log.dead_letters()] == ["a", "d"]


async def test_burying_twice_keeps_the_first_and_counts_nothing(log):
    partition, group = await log.partition()
    await log.push(partition, "a")
    await bury(log, partition, group, 1)

    assert await bury(log, partition, group, 1) == 0
    assert len(await log.dead_letters()) == 1


async def test_failures_on_record_are_kept_with_the_letter(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b")
    await log.execute("update skep.cursor set failed_offset = '{2}', failed_count = '{3}'")

    await bury(log, partition, group, 1, 2)

    assert [row["failures"] for row in await log.dead_letters()] == [0, 3]
    assert json.loads((await log.dead_letters())[0]["envelope"])["data"] == {}


async def test_every_group_buries_for_itself(log):
    partition, _ = await log.partition()
    await log.push(partition, "a")

    groups = [await log.subscribe("hive", name) for name in ("bees", "drones")]

    for group in groups:
        await bury(log, partition, group, 1)

    assert [letter["group_id"] for letter in await log.dead_letters()] == groups


@pytest.mark.parametrize("data", [r'"nul \u0000"', r'"lone \ud800"', '{"b":1,"a":2,"b":3}', "null"])
async def test_any_payload_can_be_buried_and_stays_as_it_was_sent(log, data):
    partition, group = await log.partition()
    await log.push_bodies({partition: "a"}, {partition: body_of([envelope("a", data)])})

    await bury(log, partition, group, 1)

    [letter] = await log.dead_letters()
    assert letter["transaction_id"] == "a"
    assert letter["envelope"] == envelope("a", data)


async def test_a_transaction_id_with_quotes_and_escapes_is_kept(log):
    name = 'with "quotes", ","data":1}, \\ backslash, \n newline, ünïcödé'
    partition, group = await log.partition()
    await log.push(partition, name)

    await bury(log, partition, group, 1)

    [letter] = await log.dead_letters()
    assert letter["transaction_id"] == name
    assert json.loads(letter["envelope"])["transactionId"] == name


async def test_a_message_whose_segment_is_gone_leaves_no_letter(log):
    partition, group = await log.partition()
    await log.push(partition, "a")
    await log.push(partition, "b")
    await log.execute("delete from skep.segment where first = 1")

    await bury(log, partition, group, 1)

    assert await log.dead_letters() == []


async def test_the_failures_given_replace_those_on_record(log):
    partition, group = await log.partition()
    await log.push(partition, "a")

    await bury(log, partition, group, 1, failures=[4])

    assert [row["failures"] for row in await log.dead_letters()] == [4]
