import asyncio
import random

from skep.broker.staged.read import Position, StagedBatch, StagedMessage, position_after
from tests.sql.support.enqueued import names, read, stage, staged_ids


async def test_nothing_staged_is_one_row_that_says_what_was_seen(log):
    [row] = await read(log)

    assert row.id is None
    assert row.snapshot
    assert row.read_at == log.now


async def test_what_is_not_committed_is_not_read(log, open_log):
    other = await open_log()
    async with other.connection.transaction():
        await stage(other, "x")

        assert names(await read(log)) == [None]


async def test_what_was_moved_is_not_looked_at_again(log):
    await stage(log, "x")
    [x] = await read(log)
    await stage(log, "y")

    assert names(await read(log, x.commit_number, x.snapshot)) == ["y"]


async def test_a_late_commit_with_a_lower_number_is_found(log, open_log):
    late = await open_log()
    transaction = late.connection.transaction()
    await transaction.start()
    await stage(late, "late")
    await late.execute("set constraints all immediate")
    await stage(log, "early")
    [early] = await read(log)

    assert names(await read(log, early.commit_number, early.snapshot)) == [None]
    await transaction.commit()

    [row] = await read(log, early.commit_number, early.snapshot)
    assert row.transaction_id == "late"
    assert row.commit_number < early.commit_number


async def test_a_late_commit_is_found_also_if_no_transaction_has_ended_since_it_began(
    log, open_log
):
    # Its id is not among those under way of the snapshot then, but behind all that it knows.
    await stage(log, "early")
    late = await open_log()
    transaction = late.connection.transaction()
    await transaction.start()
    await stage(late, "late")
    await late.execute("set constraints all immediate")
    [early] = await read(log)
    await transaction.commit()

    rows = await read(log, early.commit_number + 1, early.snapshot)

    assert names(rows) == ["late"]


async def test_a_read_is_bounded_by_messages_and_goes_on_within_a_transaction(log):
    await stage(log, "a", "b", "c")
    await stage(log, "d")

    assert names(await read(log, limit=2)) == ["a", "b"]
    assert names(await read(log, limit=4)) == ["a", "b", "c", "d"]


async def test_a_read_is_bounded_by_bytes_but_one_message_always_comes(log):
    await stage(log, "a", "b", payload='"' + "x" * 100 + '"')

    assert names(await read(log, size=1)) == ["a"]
    assert names(await read(log, size=103)) == ["a", "b"]


async def test_transactions_whose_messages_an_operator_deleted_hide_nobody(log):
    for number in range(5):
        await stage(log, f"n{number}")
    ids = await staged_ids(log)
    await log.execute("delete from skep.staged where id = any($1)", ids[:4])

    assert names(await read(log, limit=2)) == ["n4"]


async def test_a_walk_with_positions_meets_every_message_once_whoever_commits_when(log, open_log):
    chance = random.Random(7)
    sessions = [await open_log() for _ in range(6)]

    async def stage_now_and_then(session, number):
        for turn in range(12):
            transaction = session.connection.transaction()
            await transaction.start()
            await stage(session, f"{number} {turn} a", f"{number} {turn} b")
            if chance.random() < 0.3:
                await session.execute("set constraints all immediate")
            await session.value("select pg_sleep($1)", chance.random() / 100)
            if turn % 5 == 4:
                await transaction.rollback()
            else:
                await transaction.commit()

    async def walk():
        position, met = Position(), []
        while len(met) < 6 * 10 * 2:
            rows = await read(log, *position, limit=7)
            found = [row for row in rows if row.id is not None]
            await log.value("select skep.drop_staged($1)", [row.id for row in found])
            met += names(found)
            position = position_after(position, portion(rows, found))
        return met

    staging = [stage_now_and_then(each, number) for number, each in enumerate(sessions)]
    async with asyncio.timeout(30):
        *_, met = await asyncio.gather(*staging, walk())

    expected = [
        f"{number} {turn} {part}"
        for number in range(6)
        for turn in range(12)
        for part in "ab"
        if turn % 5 != 4
    ]
    assert sorted(met) == sorted(expected)
    for number in range(6):
        mine = [name for name in met if name.startswith(f"{number} ")]
        assert mine == [name for name in expected if name.startswith(f"{number} ")]
    assert names(await read(log)) == [None]


def portion(rows, found):
    messages = [
        StagedMessage(
            row.commit_number, row.id, (row.queue, row.partition), row.transaction_id, b"{}",
            None, None, None, None,
        )
        for row in found
    ]  # fmt: skip
    return StagedBatch(messages, rows[0].read_at, rows[0].snapshot, len(found) >= 7)
