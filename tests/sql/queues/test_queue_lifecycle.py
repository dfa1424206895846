"""Deleting a queue in portions: what a request does not get to is swept in the background."""

from itertools import chain, repeat

import pytest

from skep.broker.queues.lifecycle import SWEEP_S_MAX, QueueLifecycle, removed_queue_sweep
from skep.db.access.functions import Functions
from skep.db.access.slots import ONE_OFF, Slots

PARTITIONS = 1_000
"""More than one portion of the sweep."""


class Announcements(list):
    def announce(self, queue_id, partition_count):
        self.append(queue_id)


@pytest.fixture
def slots(arun, log_url):
    slots = Slots(log_url, size=1, server_settings=ONE_OFF, statement_timeout_s=10)
    arun(slots.open())
    yield slots
    arun(slots.close())


@pytest.fixture
def queue_id(arun, log):
    async def fill():
        await log.execute("delete from skep.removed_queue")
        await log.provision("hive", *map(str, range(PARTITIONS)))
        return await log.value("select id from skep.queue")

    return arun(fill())


async def partitions_left(log):
    return await log.value("select count(*) from skep.partition")


async def test_a_request_that_has_the_time_leaves_nothing(log, slots, queue_id):
    lifecycle = QueueLifecycle(Functions(slots), announced := Announcements(), now=lambda: 0.0)

    assert await lifecycle.delete("hive") is True
    assert await partitions_left(log) == 0
    assert announced == [queue_id]


async def test_what_a_request_has_no_time_for_is_swept_later(log, slots, queue_id):
    clock = chain([0.0], repeat(SWEEP_S_MAX + 1))
    lifecycle = QueueLifecycle(Functions(slots), Announcements(), now=lambda: next(clock))

    assert await lifecycle.delete("hive") is True
    left = await partitions_left(log)
    sweep = removed_queue_sweep(slots)
    while await sweep.run():
        pass

    assert 0 < left < PARTITIONS
    assert await partitions_left(log) == 0
    assert await log.value("select count(*) from skep.removed_queue") == 0


async def test_there_is_usually_nothing_to_sweep(log, slots):
    assert await removed_queue_sweep(slots).run() is False
