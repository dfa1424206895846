from datetime import timedelta

from tests.sql.support.scheduling import schedule, sequence, stored

DELIVER = "select skep.deliver_scheduled($1)"


async def test_a_message_put_forward_is_due(log):
    [answer] = await schedule(log, "x", delay_s=600)

    assert await log.value(DELIVER, answer.scheduled_id) == log.now
    await sequence(log)
    assert await stored(log) == ["x"]


async def test_a_time_that_has_passed_stays(log):
    [answer] = await schedule(log, "x", delay_s=0)
    await log.advance(5)

    assert await log.value(DELIVER, answer.scheduled_id) == log.now - timedelta(seconds=5)


async def test_what_does_not_wait_cannot_be_put_forward(log):
    assert await log.value(DELIVER, 1) is None
