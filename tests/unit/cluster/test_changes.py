"""Changes: told to everybody else, read again here."""

import asyncio

from skep.broker.cluster.changes import Changes
from skep.broker.cluster.notices import Change
from skep.model.errors import Unavailable

PATIENCE_S = 30


async def settled(changes):
    async with asyncio.timeout(PATIENCE_S):
        while changes._running:
            await asyncio.sleep(0)


async def test_a_change_is_told_by_every_way_and_not_to_oneself():
    told, read = [], []
    changes = Changes([told.append])
    changes.tell_also(told.append)
    changes.listen("rules", _reader(read))

    changes.announce("rules", 7)
    await settled(changes)

    assert told == [(Change("rules", 7),)] * 2
    assert read == []


async def test_a_change_that_is_heard_is_read_again():
    read = []
    changes = Changes()
    changes.listen("rules", _reader(read))

    changes.heard([Change("rules", 7), Change("of a newer version", 1)])
    await settled(changes)

    assert read == [7]


async def test_changes_heard_while_one_is_read_cost_one_more_reading():
    read, gate = [], asyncio.Event()
    changes = Changes()

    async def listener(subject):
        read.append(subject)
        await gate.wait()

    changes.listen("rules", listener)
    for _ in range(10):
        changes.heard([Change("rules", 7)])
        await asyncio.sleep(0)
    gate.set()
    await settled(changes)

    assert read == [7, 7]


async def test_a_database_that_is_away_keeps_no_other_listener_from_reading():
    read = []
    changes = Changes()

    async def failing(subject):
        raise Unavailable

    changes.listen("rules", failing)
    changes.listen("rules", _reader(read))
    changes.heard([Change("rules", 7)])
    await settled(changes)

    assert read == [7]


async def test_after_the_stop_nothing_is_read():
    read, changes = [], Changes()

    async def never_done(subject):
        await asyncio.Event().wait()

    changes.listen("rules", never_done)
    changes.heard([Change("rules", 1)])
    await changes.stop()
    changes.listen("rules", _reader(read))

    assert changes._running == {}
    assert read == []


def _reader(read):
    async def listener(subject):
        read.append(subject)

    return listener
