import asyncio

from tests.sql.support.scheduling import schedule, sequence, stored, waiting
from tests.support.broker import until_blocked_by

CANCEL = "select skep.cancel_scheduled($1)"


async def test_a_cancelled_message_never_arrives(log):
    [answer] = await schedule(log, "x", delay_s=0)

    assert await log.value(CANCEL, answer.scheduled_id) is True
    assert await waiting(log) == []
    assert (await sequence(log)).moved == 0


async def test_what_does_not_wait_cannot_be_cancelled(log):
    [answer] = await schedule(log, "x", delay_s=0)
    await sequence(log)

    assert await log.value(CANCEL, answer.scheduled_id) is False
    assert await stored(log) == ["x"]


async def test_a_message_that_is_just_being_delivered_is_not_cancelled(log, open_log):
    [answer] = await schedule(log, "x", delay_s=0)
    sequencer = await open_log()
    transaction = sequencer.connection.transaction()
    await transaction.start()
    await sequence(sequencer)

    cancelling = asyncio.create_task(log.value(CANCEL, answer.scheduled_id))
    await until_blocked_by(sequencer.connection)
    await transaction.commit()

    assert await cancelling is False
    assert await stored(log) == ["x"]
