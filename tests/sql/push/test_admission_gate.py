"""Admission against a real log: a queue with a limit takes no more than that."""

from skep.broker.push.size_limit import AdmissionGate, SizeLimit
from tests.sql.support.log import Poll

THREE = SizeLimit(3)


class Session:
    """A log as the broker calls it."""

    def __init__(self, log):
        self._log = log

    async def call(self, statement, *arguments):
        return await self._log.rows(statement, *arguments)


async def queue_id_of(log):
    return await log.value("select id from skep.queue")


async def test_defect_17_a_queue_takes_no_more_than_its_max_size(log):
    gate = AdmissionGate(Session(log), dropper=Session(log), now=lambda: 0.0)
    partition, group = await log.partition()
    queue_id = await queue_id_of(log)

    assert await gate.decide(queue_id, 3, THREE) is True
    await log.push(partition, *"xyz")
    assert await gate.decide(queue_id, 1, THREE) is False

    await log.pop(group, Poll(batch=1, auto_ack=True))
    later = AdmissionGate(Session(log), dropper=Session(log), now=lambda: 0.0)
    assert await later.decide(queue_id, 1, THREE) is True
    assert await later.decide(queue_id, 1, THREE) is False


async def test_a_queue_that_drops_its_oldest_keeps_the_newest(log):
    gate = AdmissionGate(Session(log), dropper=Session(log), now=lambda: 0.0)
    partition, group = await log.partition()
    limit = SizeLimit(3, "drop_oldest")
    for name in "uvwxyz":
        assert await gate.decide(await queue_id_of(log), 1, limit) is True
        await gate.settle()
        await log.push(partition, name)

    taken = await log.pop(group, Poll(batch=10))

    assert [message.transaction_id for message in taken.messages] == ["x", "y", "z"]
