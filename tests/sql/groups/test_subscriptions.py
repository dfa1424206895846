"""Deleting a group in portions: what a request does not get to is swept in the background."""

import pytest

from skep.broker.groups.subscriptions import PARTITIONS_PER_STEP, Subscriptions, removed_group_sweep
from skep.db.access.slots import ONE_OFF, Slots
from skep.model.errors import Unavailable

PARTITIONS = PARTITIONS_PER_STEP + 1


class Silence:
    def announce(self, queue_id, partition_count):
        pass


class Interrupted:
    """A way to the database that breaks after some calls."""

    def __init__(self, slots, calls):
        self._slots = slots
        self._calls = calls

    async def call(self, *arguments):
        self._calls -= 1
        if self._calls < 0:
            raise Unavailable("the database is away")
        return await self._slots.call(*arguments)


@pytest.fixture
def slots(arun, log_url):
    slots = Slots(log_url, size=1, server_settings=ONE_OFF, statement_timeout_s=10)
    arun(slots.open())
    yield slots
    arun(slots.close())


async def many_cursors(log):
    await log.provision("hive", *map(str, range(PARTITIONS)))
    return await log.subscribe("hive", "bees")


async def cursors_left(log, group):
    return await log.value("select count(*) from skep.cursor where group_id = $1", group)


async def test_a_request_leaves_nothing_and_says_how_much_there_was(log, slots):
    group = await many_cursors(log)

    answer = await Subscriptions(slots, Silence()).delete_group("bees", forget_subscription=True)

    assert answer.deleted_partitions == PARTITIONS
    assert await cursors_left(log, group) == 0
    assert await log.value("select count(*) from skep.removed_group") == 0


async def test_what_an_interrupted_request_left_behind_is_swept_later(log, slots):
    group = await many_cursors(log)
    find, forget, one_step = 1, 1, 1
    interrupted = Interrupted(slots, find + forget + one_step)
    with pytest.raises(Unavailable):
        await Subscriptions(interrupted, Silence()).delete_from_queue(
            "bees", "hive", forget_subscription=True
        )
    left = await cursors_left(log, group)

    await log.execute("update skep.removed_group set removed_at = 'epoch'")
    sweep = removed_group_sweep(slots)
    while await sweep.run():
        pass

    assert (left, await cursors_left(log, group)) == (1, 0)
    assert await log.value("select count(*) from skep.removed_group") == 0
