import pytest

from tests.sql.support.housekeeping import Keeper

END_OF_TIME = str(2**64 - 1)
FIND = """
  select partition_id, first, reached::text::bigint as reached, is_done
  from skep.find_expired($1, $2, $3::bigint::text::xid8, $4::text::xid8, $5)
"""


@pytest.fixture
def keeper(arun, log):
    return arun(Keeper.appoint(log))


async def find(log, keeper, *, after=0, held_from=END_OF_TIME, limit=1000, age_s=5):
    cutoff = log.now.fromtimestamp(log.now.timestamp() - age_s, tz=log.now.tzinfo)
    return await log.row(FIND, await keeper.queue_id(), cutoff, after, held_from, limit)


async def test_partitions_with_old_segments_are_named_once_with_the_newest_old_one(log, keeper):
    a, b, young = await log.provision("hive", "a", "b", "young")
    for writes in ({b: ["1"]}, {a: ["2"], b: ["3"]}):
        await log.push_writes(writes)
    await log.advance(10)
    await log.push(young, "4")
    await log.push(a, "5")

    found = await find(log, keeper)

    assert (found["partition_id"], found["first"]) == ([a, b], [1, 2])
    assert found["is_done"]


async def test_an_empty_queue_names_nothing(log, keeper):
    await log.partition()

    found = await find(log, keeper, after=17)

    assert tuple(found) == (None, None, 17, True)


async def test_it_stops_at_the_limit_and_goes_on_from_there(log, keeper):
    partitions = await log.provision("hive", *"abc")
    for partition in partitions:
        await log.push(partition, "x")
    await log.advance(10)

    first = await find(log, keeper, limit=2)
    second = await find(log, keeper, limit=2, after=first["reached"])

    assert (first["partition_id"], first["is_done"]) == (partitions[:2], False)
    assert (second["partition_id"], second["is_done"]) == (partitions[2:], True)


async def test_some_young_segments_do_not_hide_the_old_ones_behind_them(log, keeper):
    early, late = await log.provision("hive", "early", "late")
    await log.advance(10)
    for number in range(99):
        await log.push(early, f"{number}")
    # Stamped before and written after, as by a push that waited for its partitions.
    await log.set_clock(log.now.replace(second=0))
    await log.push(late, "old")
    await log.advance(10)

    assert (await find(log, keeper))["partition_id"] == [late]


async def test_the_walk_ends_among_the_young_instead_of_reading_them_all(log, keeper):
    partition, _ = await log.partition()
    for number in range(150):
        await log.push(partition, f"{number}")

    found = await find(log, keeper)
    xids = await log.rows("select xid::text::bigint from skep.segment order by xid")

    assert found["reached"] == xids[99][0]
    assert found["is_done"]


async def test_what_is_held_is_not_walked(log, keeper):
    partition, _ = await log.partition()
    await log.push(partition, "a")
    await log.push(partition, "b")
    await log.advance(10)
    held = await log.value("select max(xid::text::bigint)::text from skep.segment")

    assert (await find(log, keeper, held_from=held))["first"] == [1]
