import json

import pytest

from tests.sql.support.log import body_of, envelope


async def bury(log, partition, offset, *, group=7, error="stung", failures=4):
    queue_id = await log.value("select queue_id from skep.partition where id = $1", partition)
    await log.execute(
        "select skep.bury_message($1, $2, $3, $4, $5, $6, $7)",
        partition,
        group,
        queue_id,
        offset,
        error,
        failures,
        log.now,
    )


async def test_a_dead_letter_keeps_the_envelope_and_what_happened(log):
    partition, _ = await log.partition()
    await log.push(partition, "a", "b", "c")
    pushed_at = log.now
    await log.advance(60)

    await bury(log, partition, 2)

    [letter] = await log.dead_letters()
    assert (letter["partition_id"], letter["group_id"], letter["message_offset"]) == (
        partition,
        7,
        2,
    )
    assert letter["queue_id"] == await log.value("select id from skep.queue")
    assert letter["transaction_id"] == "b"
    assert letter["envelope"] == envelope("b")
    assert (letter["error"], letter["failures"]) == ("stung", 4)
    assert (letter["created_at"], letter["failed_at"]) == (pushed_at, log.now)


async def test_burying_twice_keeps_the_first_letter(log):
    partition, _ = await log.partition()
    await log.push(partition, "a")

    await bury(log, partition, 1, error="first")
    await bury(log, partition, 1, error="second")

    assert [letter["error"] for letter in await log.dead_letters()] == ["first"]


async def test_every_group_buries_for_itself(log):
    partition, _ = await log.partition()
    await log.push(partition, "a")

    await bury(log, partition, 1, group=7)
    await bury(log, partition, 1, group=8)

    assert [letter["group_id"] for letter in await log.dead_letters()] == [7, 8]


@pytest.mark.parametrize("data", [r'"nul \u0000"', r'"lone \ud800"', '{"b":1,"a":2,"b":3}', "null"])
async def test_any_payload_can_be_buried_and_stays_as_it_was_sent(log, data):
    partition, _ = await log.partition()
    await log.push_bodies({partition: "a"}, {partition: body_of([envelope("a", data)])})

    await bury(log, partition, 1)

    [letter] = await log.dead_letters()
    assert letter["transaction_id"] == "a"
    assert letter["envelope"] == envelope("a", data)


async def test_a_transaction_id_with_quotes_and_escapes_is_kept(log):
    name = 'with "quotes", ","data":1}, \\ backslash, \n newline, ünïcödé'
    partition, _ = await log.partition()
    await log.push(partition, name)

    await bury(log, partition, 1)

    [letter] = await log.dead_letters()
    assert letter["transaction_id"] == name
    assert json.loads(letter["envelope"])["transactionId"] == name


async def test_a_message_that_was_deleted_leaves_no_letter(log):
    partition, _ = await log.partition()
    await log.push(partition, "a", "b")
    await log.execute("update skep.segment set body = $1", body_of(["null", envelope("b")]))

    await bury(log, partition, 1)

    assert await log.dead_letters() == []


async def test_a_message_whose_segment_is_gone_leaves_no_letter(log):
    partition, _ = await log.partition()
    await log.push(partition, "a")
    await log.push(partition, "b")
    await log.execute("delete from skep.segment where first = 1")

    await bury(log, partition, 1)

    assert await log.dead_letters() == []
