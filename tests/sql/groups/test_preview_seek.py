import pytest

from tests.sql.support.log import Poll
from tests.sql.support.partitions import many_partitions

PREVIEW = "select * from skep.preview_seek($1, $2, $3, $4)"


async def test_the_partitions_of_a_queue_are_added_up_and_nothing_moves(log):
    partitions = await log.provision("hive", "a", "b")
    group = await log.subscribe("hive", "bees")
    await log.push_writes({partitions[0]: ("x", "y", "z"), partitions[1]: ("v", "w")})
    await log.pop(group, Poll(batch=1, auto_ack=True))

    to_end = await log.row(PREVIEW, group, "end", None, 100)
    to_start = await log.row(PREVIEW, group, "start", None, 100)

    assert tuple(to_end) == (2, 4, 0, False)
    assert tuple(to_start) == (2, 0, 1, False)


async def test_a_queue_without_partitions_has_nothing_to_skip(log):
    group = await log.subscribe("hive", "bees")

    assert tuple(await log.row(PREVIEW, group, "end", None, 100)) == (0, 0, 0, False)


async def test_very_many_partitions_are_estimated_from_a_sample(log):
    group = await many_partitions(log, 5000, unread=3)

    found = await log.row(PREVIEW, group, "end", None, 1000)

    assert found["is_estimated"] is True
    assert found["partitions"] == pytest.approx(5000, rel=0.2)
    assert found["skipped"] == pytest.approx(3 * found["partitions"], abs=3)
    assert found["replayed"] == 0
