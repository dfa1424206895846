"""Redriving moves a message and its letter in one transaction, once."""

import asyncio
from uuid import uuid4

import asyncpg
import pytest

from tests.sql.model.test_races import until_it_waits
from tests.sql.support.letters import bury, letter_ids, redrive, transaction_ids
from tests.sql.support.log import Poll


async def test_the_message_is_pushed_and_its_letter_leaves_a_record(log):
    first, second = await bury(log, "a", "b")
    partition, _ = await log.partition()
    await log.advance()

    moved = (await redrive(log, {second: partition}))[second]

    assert (moved.result, moved.partition_id, moved.message_offset) == ("moved", partition, 3)
    assert await letter_ids(log) == [first]
    assert await transaction_ids(log, partition) == ["a", "b", f"dlq:{second}"]
    record = await log.row("select * from skep.redriven_letter where id = $1", second)
    assert (record["id"], record["transaction_id"], record["error"]) == (second, "b", "stung")
    assert (record["to_partition_id"], record["to_offset"]) == (partition, 3)
    assert record["redriven_at"] == log.now


async def test_a_consumer_gets_what_was_redriven(log):
    [letter] = await bury(log, "a", queue="hive")
    target, group = await log.partition("spare", "z")

    await redrive(log, {letter: target})

    assert [m.transaction_id for m in (await log.pop(group)).messages] == [f"dlq:{letter}"]


async def test_redriving_again_finds_the_letter_gone_and_pushes_nothing(log):
    [letter] = await bury(log, "a")
    partition, _ = await log.partition()
    await redrive(log, {letter: partition})

    again = (await redrive(log, {letter: partition}))[letter]

    assert again.result == "gone"
    assert await transaction_ids(log, partition) == ["a", f"dlq:{letter}"]


async def test_a_duplicate_keeps_its_letter_and_the_others_of_the_batch_move(log):
    first, second, third = await bury(log, "a", "b", "c")
    partition, _ = await log.partition()
    await log.push(partition, f"dlq:{second}")

    results = await redrive(log, dict.fromkeys([first, second, third], partition))

    assert {id_: row.result for id_, row in results.items()} == {
        first: "moved",
        second: "duplicate",
        third: "moved",
    }
    assert results[second].message_offset == 4
    assert await letter_ids(log) == [second]
    assert (await transaction_ids(log, partition))[3:] == [
        f"dlq:{second}",
        f"dlq:{first}",
        f"dlq:{third}",
    ]


async def test_letters_of_many_partitions_move_in_one_call(log):
    ids = await bury(log, "a", "b", "c", "d")
    partitions = await log.provision("spare", "w", "x", "y", "z")

    results = await redrive(log, dict(zip(reversed(ids), partitions, strict=True)))

    assert {row.result for row in results.values()} == {"moved"}
    for letter, partition in zip(reversed(ids), partitions, strict=True):
        assert await transaction_ids(log, partition) == [f"dlq:{letter}"]


async def test_a_destination_that_is_gone_keeps_the_letter(log):
    [letter] = await bury(log, "a")

    assert (await redrive(log, {letter: 1 << 40}))[letter].result == "gone"
    assert await letter_ids(log) == [letter]


async def test_a_message_that_dies_again_gets_a_letter_of_its_own(log):
    [letter] = await bury(log, "a")
    partition, group = await log.partition()
    await redrive(log, {letter: partition})

    await log.execute(
        "select skep.bury_messages($1, $2, '{1}', '{again}', '{1}', skep.now())",
        partition,
        group,
    )

    assert [row["error"] for row in await log.dead_letters()] == ["again"]


async def test_two_who_redrive_one_letter_push_it_once(log, open_log):
    [letter] = await bury(log, "a")
    partition, _ = await log.partition()
    other = await open_log()
    transaction = log.connection.transaction()
    await transaction.start()
    await redrive(log, {letter: partition})

    async with asyncio.timeout(60):
        late = asyncio.create_task(redrive(other, {letter: partition}))
        await until_it_waits(log, late, other)
        await transaction.commit()
        result = (await late)[letter].result

    assert result == "gone"
    assert await transaction_ids(log, partition) == ["a", f"dlq:{letter}"]


async def test_a_letter_deleted_while_its_message_is_pushed_undoes_the_push(log, open_log):
    [letter] = await bury(log, "a")
    partition, _ = await log.partition()
    other = await open_log()
    transaction = log.connection.transaction()
    await transaction.start()
    await log.execute("delete from skep.dead_letter")

    async with asyncio.timeout(60):
        late = asyncio.create_task(redrive(other, {letter: partition}))
        await until_it_waits(log, late, other)
        await transaction.commit()
        with pytest.raises(asyncpg.SerializationError):
            await late

    assert await transaction_ids(log, partition) == ["a"]


async def test_who_deletes_a_group_and_then_its_letters_never_deadlocks_with_a_redrive(
    log, open_log
):
    [letter] = await bury(log, "a")
    partition, group = await log.partition()
    await log.pop(group, Poll(auto_ack=True))
    await log.advance()
    await log.pop(group)
    assert (await log.cursor(partition, group))["available_at"] is None, "a push must wake it"
    other = await open_log()
    transaction = log.connection.transaction()
    await transaction.start()
    await log.execute("delete from skep.cursor")

    async with asyncio.timeout(60):
        late = asyncio.create_task(redrive(other, {letter: partition}))
        await until_it_waits(log, late, other)
        await log.execute("delete from skep.dead_letter")
        await transaction.commit()
        with pytest.raises(asyncpg.SerializationError):
            await late


async def start(log, owner):
    job = uuid4()
    await log.value("select skep.start_redrive($1, '{}', '{}', null, 9, false, $2)", job, owner)
    return job


async def test_a_batch_of_a_job_counts_what_it_did(log):
    first, second = await bury(log, "a", "b")
    partition, _ = await log.partition()
    await log.push(partition, f"dlq:{second}")
    owner = uuid4()
    job = await start(log, owner)
    await log.advance()

    letters = dict.fromkeys([first, second], partition)
    await redrive(log, letters, job=job, owner=owner, position=second)

    row = await log.row("select * from skep.redrive where id = $1", job)
    assert (row["moved"], row["duplicates"], row["position"]) == (1, 1, second)
    assert row["progressed_at"] == log.now


async def test_a_batch_of_someone_elses_job_does_nothing(log):
    [letter] = await bury(log, "a")
    partition, _ = await log.partition()
    job = await start(log, uuid4())

    assert await redrive(log, {letter: partition}, job=job, owner=uuid4(), position=letter) == {}
    assert await letter_ids(log) == [letter]


async def test_a_batch_of_a_cancelled_job_does_nothing(log):
    [letter] = await bury(log, "a")
    partition, _ = await log.partition()
    owner = uuid4()
    job = await start(log, owner)
    await log.value("select skep.finish_redrive($1, null, 'cancelled', null)", job)

    assert await redrive(log, {letter: partition}, job=job, owner=owner, position=letter) == {}
    assert await letter_ids(log) == [letter]


async def two_groups(log):
    """A partition that two groups read; return it, and both."""
    partition, failed = await log.partition()
    return partition, failed, await log.subscribe("hive", "other")


async def drained(log, group):
    """What a group gets until there is nothing; acknowledged on delivery."""
    names = []
    while found := (await log.pop(group, Poll(auto_ack=True, batch=10))).messages:
        names += [message.transaction_id for message in found]
        await log.advance()
    return names


async def test_a_redriven_message_reaches_only_the_group_that_failed(log):
    letters = await bury(log, "a", "b")
    partition, failed, other = await two_groups(log)
    await drained(log, failed)
    await drained(log, other)

    await redrive(log, dict.fromkeys(letters, partition), for_all=False)

    assert (await log.cursor(partition, other))["available_at"] is None
    assert await drained(log, other) == []
    assert await drained(log, failed) == [f"dlq:{letter}" for letter in letters]


async def test_a_group_that_is_behind_gets_all_but_the_copy(log):
    [letter] = await bury(log, "a")
    partition, failed, other = await two_groups(log)
    await log.push(partition, "b")
    leased = await log.pop(other, Poll(batch=1))

    await redrive(log, {letter: partition}, for_all=False)
    await log.push(partition, "c")

    assert [message.transaction_id for message in leased.messages] == ["a"]
    await log.advance(3600)
    assert await drained(log, other) == ["a", "b", "c"]
    assert await drained(log, failed) == ["a", "b", f"dlq:{letter}", "c"]


async def test_a_target_that_the_group_does_not_read_delivers_to_all(log):
    [letter] = await bury(log, "a")
    target, stranger = await log.partition("spare", "z")

    await redrive(log, {letter: target}, for_all=False)

    assert await drained(log, stranger) == [f"dlq:{letter}"]


async def test_letters_of_two_groups_go_each_to_its_own(log):
    [one] = await bury(log, "a")
    [two] = await bury(log, "b", group="other")
    partition, failed, other = await two_groups(log)
    await drained(log, failed)
    await drained(log, other)

    await redrive(log, {one: partition, two: partition}, for_all=False)

    assert await drained(log, failed) == [f"dlq:{one}"]
    assert await drained(log, other) == [f"dlq:{two}"]


async def test_a_redrive_waits_for_a_cursor_before_it_pushes(log, open_log):
    [letter] = await bury(log, "a")
    partition, _, other = await two_groups(log)
    second = await open_log()
    transaction = log.connection.transaction()
    await transaction.start()
    await log.pop(other)

    async with asyncio.timeout(60):
        late = asyncio.create_task(redrive(second, {letter: partition}, for_all=False))
        await until_it_waits(log, late, second)
        await transaction.commit()
        assert (await late)[letter].result == "moved"

    await log.advance(3600)
    assert await drained(log, other) == ["a"]
