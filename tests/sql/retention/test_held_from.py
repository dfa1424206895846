import pytest

from tests.sql.support.archiving import Archivist
from tests.sql.support.housekeeping import Keeper

HELD_FROM = "select skep.held_from($1)::text"
NOTHING = str(2**64 - 1)


@pytest.fixture
def keeper(arun, log):
    return arun(Keeper.appoint(log))


async def place(log, name, position, keep_s=60, queue="hive"):
    await log.row(f"select * from skep.place_hold($1, $2, '{position}', $3)", queue, name, keep_s)


async def test_without_a_hold_nothing_is_held(log, keeper):
    await log.partition()

    assert await log.value(HELD_FROM, await keeper.queue_id()) == NOTHING


async def test_the_hindmost_reader_decides(log, keeper):
    await log.partition()
    await place(log, "fast", "1000:1000:")
    await place(log, "slow", "999:1200:999")

    assert await log.value(HELD_FROM, await keeper.queue_id()) == "999"


async def test_a_hold_on_another_queue_does_not_count(log, keeper):
    await log.partition()
    await log.partition("comb")
    await place(log, "spark", "10:10:", queue="comb")

    assert await log.value(HELD_FROM, await keeper.queue_id()) == NOTHING


async def test_a_hold_counts_for_as_long_as_its_reader_said(log, keeper):
    await log.partition()
    await place(log, "spark", "10:10:", keep_s=60)
    queue = await keeper.queue_id()

    await log.advance(59)
    assert await log.value(HELD_FROM, queue) == "10"
    await log.advance(1)
    assert await log.value(HELD_FROM, queue) == NOTHING


async def test_retention_deletes_up_to_the_hold_and_the_rest_when_it_is_released(log, keeper):
    partition, _ = await log.partition()
    await log.configure("hive", retention_enabled=True, retention_s=1)
    await log.push(partition, "seen")
    await keeper.hold()
    await log.push(partition, "unseen")
    await log.advance(10)

    assert (await keeper.retain()).messages == 1
    assert await keeper.kept(partition) == (2, 2)
    await log.value("select skep.release_hold('hive', 'spark')")
    assert (await keeper.retain()).messages == 1


async def test_a_hold_protects_completed_messages_as_well(log, keeper):
    partition, group = await log.partition()
    await log.configure("hive", retention_enabled=True, completed_retention_s=1)
    await keeper.hold()
    await log.push(partition, "unseen")
    await log.value("update skep.cursor set acked = 1 where group_id = $1", group)
    await log.advance(10)

    assert (await keeper.retain("completed")).messages == 0


async def test_a_queue_that_wants_its_archive_first_holds_what_is_not_there_yet(log, keeper):
    partition, _ = await log.partition()
    await log.push(partition, "a")
    queue = await keeper.queue_id()
    await log.set_options("hive", archive_before_delete=True)
    assert await log.value(HELD_FROM, queue) == NOTHING
    await log.set_options("hive", archive_after_s=60)
    assert await log.value(HELD_FROM, queue) == "1"
    await log.advance(61)
    archivist = Archivist(log)
    run = await archivist.archive()

    assert await log.value(HELD_FROM, queue) == str(run.upto)
    await archivist.become_foreign()
    assert await log.value(HELD_FROM, queue) == "1"


async def test_retention_deletes_only_what_is_archived_when_the_queue_asks_for_it(log, keeper):
    partition, _ = await log.partition()
    await log.configure(
        "hive", retention_enabled=True, retention_s=60, archive_after_s=60,
        archive_before_delete=True,
    )  # fmt: skip
    await log.push(partition, "a")
    await log.push(partition, "b")
    await log.advance(61)
    assert (await keeper.retain()).messages == 0

    await Archivist(log).archive(segments=1)

    assert (await keeper.retain()).messages == 1
    assert await keeper.kept(partition) == (2, 2)
