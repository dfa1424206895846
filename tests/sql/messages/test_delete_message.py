import asyncio
import json

from tests.sql.model.test_races import until_it_waits
from tests.sql.support.letters import bury, letter_ids, transaction_ids
from tests.sql.support.log import Poll, body_of, envelope

QUERY = "select skep.delete_message($1, $2)"


async def test_a_message_becomes_a_null_and_the_others_stay_byte_for_byte(log):
    partition, _ = await log.partition()
    odd = [envelope("a", r'{"b": 1.0, "b":"\u0000"}'), envelope("x"), envelope("c", "  [1 ]")]
    await log.push_bodies({partition: "axc"}, {partition: body_of(odd)})

    assert await log.value(QUERY, partition, 2) == "deleted"

    body = await log.value("select body from skep.segment")
    assert body == body_of([odd[0], "null", odd[2]])
    query = "select array_agg(message_offset) from skep.deleted_message where partition_id = $1"
    assert await log.value(query, partition) == [2]


async def test_deleting_again_changes_nothing(log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b")
    await log.value(QUERY, partition, 1)
    before = await log.cursor(partition, group)

    assert await log.value(QUERY, partition, 1) == "already"
    assert await log.cursor(partition, group) == before


async def test_what_never_was_is_unknown(log):
    partition, _ = await log.partition()
    await log.push(partition, "a")

    assert await log.value(QUERY, partition, 2) == "unknown"
    assert await log.value(QUERY, partition, 0) == "unknown"
    assert await log.value(QUERY, 1 << 40, 1) == "unknown"


async def test_no_group_gets_a_deleted_message_and_none_waits_for_it(log):
    partition, group = await log.partition()
    late = await log.subscribe(group="late")
    await log.push(partition, "a", "b", "c")
    await log.pop(group, Poll(batch=1, auto_ack=True))

    await log.value(QUERY, partition, 2)
    await log.value(QUERY, partition, 1)

    assert (await log.cursor(partition, group))["acked"] == 2
    assert (await log.cursor(partition, late))["acked"] == 2
    assert (await log.pop(group)).offsets == [3]


async def test_defect_09_a_partition_whose_last_message_is_deleted_is_idle(log):
    partition, group = await log.partition()
    await log.push(partition, "a")

    await log.value(QUERY, partition, 1)

    assert (await log.cursor(partition, group))["available_at"] is None
    await log.push(partition, "b")
    assert (await log.pop(group)).offsets == [2]


async def test_the_copies_in_dead_letters_go_as_well(log):
    await bury(log, "a")
    partition, _ = await log.partition()

    await log.value(QUERY, partition, 1)

    assert await letter_ids(log) == []


async def test_a_copy_that_outlived_the_log_can_be_deleted(log):
    await bury(log, "a")
    partition, _ = await log.partition()
    await log.execute("delete from skep.segment")

    assert await log.value(QUERY, partition, 1) == "deleted"
    assert await letter_ids(log) == []


async def test_two_who_delete_from_one_segment_lose_nothing(log, open_log):
    partition, group = await log.partition()
    await log.push(partition, "a", "b", "c")
    other = await open_log()
    transaction = log.connection.transaction()
    await transaction.start()
    await log.value(QUERY, partition, 1)

    async with asyncio.timeout(60):
        second = asyncio.create_task(other.value(QUERY, partition, 2))
        await until_it_waits(log, second, other)
        await transaction.commit()
        assert await second == "deleted"

    assert await transaction_ids(log, partition) == ["c"]
    assert (await log.cursor(partition, group))["acked"] == 2


async def test_a_push_that_comes_meanwhile_waits_and_its_message_is_not_lost(log, open_log):
    partition, group = await log.partition()
    await log.push(partition, "a")
    other = await open_log()
    transaction = log.connection.transaction()
    await transaction.start()
    await log.value(QUERY, partition, 1)

    async with asyncio.timeout(60):
        push = asyncio.create_task(other.push(partition, "b"))
        await until_it_waits(log, push, other)
        await transaction.commit()
        await push

    assert (await log.pop(group)).offsets == [2]


async def test_a_producer_that_repeats_itself_does_not_bring_it_back(log):
    partition, _ = await log.partition()
    await log.push(partition, "a")
    await log.value(QUERY, partition, 1)

    assert (await log.push(partition, "a")).duplicates == {0: 1}


async def test_the_body_stays_valid_when_all_messages_are_deleted(log):
    partition, _ = await log.partition()
    await log.push(partition, "a", "b")

    await log.value(QUERY, partition, 2)
    await log.value(QUERY, partition, 1)

    assert json.loads(await log.value("select body from skep.segment")) == [None, None]
