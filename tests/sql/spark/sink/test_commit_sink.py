"""An epoch is committed once, whole or not at all, whoever else writes at the same time."""

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from tests.sql.support.staging import Committed, Staging, names_in
from tests.sql.support.waiting import eventually


async def test_everything_staged_gets_to_its_place_in_one_go(log, staging):
    await staging.segment("x", "y")
    await staging.segment("z", partition="b")
    await staging.message("later", log.now + timedelta(hours=1))
    await staging.reject("bad")

    assert await staging.commit() == Committed(False, 3, 1, 0, 1)

    assert await names_in(log) == ["x", "y"]
    assert await names_in(log, partition="b") == ["z"]
    assert await log.value("select count(*) from skep.scheduled") == 1
    assert await log.value("select count(*) from skep.dead_letter") == 1
    assert await staging.count() == 0


async def test_a_repeated_epoch_is_recognised_and_skipped(log, staging):
    await staging.segment("x", epoch=3)
    await staging.commit(epoch=3)
    await staging.segment("other", epoch=3, attempt=2)
    await staging.segment("older", epoch=2, attempt=2)

    assert await staging.commit(2, epoch=3) == Committed(True, 0, 0, 0, 0)
    assert (await staging.commit(2, epoch=2)).is_repeated

    assert await names_in(log) == ["x"]
    assert await staging.count() == 0


async def test_an_epoch_is_on_record_for_each_target(log, staging):
    bees, wasps = (Staging(log, target=f"queue:{queue}") for queue in ("bees", "wasps"))
    await bees.segment("x", queue="bees", attempt=1)
    await wasps.segment("x", queue="wasps", attempt=2)

    assert (await bees.commit(1)).messages == 1
    assert await wasps.count() == 1
    assert (await wasps.commit(2)).messages == 1

    assert (await bees.commit(1)).is_repeated
    assert (await wasps.commit(2)).is_repeated


async def test_a_record_without_a_target_covers_every_target(log, staging):
    await staging.segment("x")
    await staging.commit()
    bees = Staging(log, target="queue:bees")
    await bees.segment("y", queue="bees", attempt=2)
    await bees.segment("z", queue="bees", attempt=3, epoch=1)

    assert (await bees.commit(2)).is_repeated
    assert (await bees.commit(3, epoch=1)).messages == 1


async def test_epochs_add_up_in_the_record(log, staging):
    await staging.segment("x", "y")
    await staging.commit()
    await staging.segment("y", "z", epoch=1)

    assert await staging.commit(epoch=1) == Committed(False, 1, 0, 1, 0)

    row = await log.row("select epoch, messages, duplicates, committed_at from skep.sink")
    assert tuple(row) == (1, 3, 1, log.now)


async def test_only_the_attempts_that_succeeded_count_and_the_others_are_discarded(log, staging):
    await staging.segment("x", attempt=7)
    await staging.segment("x", attempt=8)
    await staging.segment("y", task=1, attempt=9)

    assert (await staging.commit(8, 9)).messages == 2

    assert await names_in(log) == ["x", "y"]
    assert await staging.count() == await staging.segments() == 0


async def test_an_epoch_of_which_something_is_gone_changes_nothing(log, staging):
    await staging.segment("x")

    with pytest.raises(asyncpg.PostgresError, match="1 of 2 staged rows are gone") as raised:
        await staging.commit(staged=2)

    assert raised.value.sqlstate == "SK404"
    assert await log.value("select count(*) from skep.sink") == 0
    assert await log.value("select count(*) from skep.queue") == 0
    assert await staging.count() == 1


async def test_an_epoch_without_rows_is_on_record_too(log, staging):
    assert await staging.commit(epoch=7, staged=0) == Committed(False, 0, 0, 0, 0)
    assert (await staging.commit(epoch=7, staged=0)).is_repeated


async def test_two_commits_of_the_same_epoch_at_once_store_it_once(staging, log, open_log):
    await staging.segment("x")
    other = await open_log()
    transaction = log.connection.transaction()
    await transaction.start()
    await staging.commit()
    second = asyncio.create_task(Staging(other).commit(staged=1))
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    watcher = await open_log()
    await eventually(lambda: watcher.value(waiting))

    await transaction.commit()

    assert (await second).is_repeated
    assert await names_in(log) == ["x"]


async def test_a_sweep_does_not_take_what_is_being_committed(staging, log, open_log):
    await staging.segment("x")
    other = await open_log()
    transaction = log.connection.transaction()
    await transaction.start()
    await log.value("select skep.hold_staging($1, 0, '{1}')", staging.write_id)

    swept = await other.value("select skep.sweep_staging($1, 10)", log.now + timedelta(days=1))

    assert swept == 0
    await staging.commit()
    await transaction.commit()
    assert await names_in(log) == ["x"]


@pytest.mark.slow
async def test_writes_into_the_same_new_queues_wait_for_each_other_and_never_in_a_circle(
    staging, open_log
):
    partitions = [(queue, partition) for queue in ("ant", "bee", "cat") for partition in "abcdef"]

    async def write(number):
        log = await open_log()
        own = Staging(log, f"write-{number}")
        attempt = 100 + number
        for epoch in range(3):
            # Half of the writers name the partitions backwards.
            for queue, partition in partitions if number % 2 else partitions[::-1]:
                name = f"{number}-{epoch}-{queue}-{partition}"
                address = {"queue": queue, "partition": partition}
                await own.segment(name, epoch=epoch, attempt=attempt, **address)
            await own.commit(attempt, epoch=epoch)

    await asyncio.gather(*(write(number) for number in range(4)))

    for queue, partition in partitions:
        assert len(await names_in(staging.log, queue, partition)) == 12
