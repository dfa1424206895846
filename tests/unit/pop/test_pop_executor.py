"""What becomes of a claim whose messages cannot be read."""

import json
from datetime import UTC, datetime

import pytest

from skep.broker.directory import Group, Subscription
from skep.broker.pop.accept import Poll, PollOptions
from skep.broker.pop.batches import EnvelopeReader
from skep.broker.pop.execute import POP_CALL, PopExecutor
from skep.broker.pop.lease_memory import LeaseMemory
from skep.model.errors import Refused

GROUP = Group("hive", "bees", 1, 2)
SEALED = b'[{"enc":"lost-key","transactionId":"t","data":"c2VhbGVk"}]'
PLAIN = b'[{"transactionId":"t","data":1}]'


class Database:
    """Answers every claim with one segment for each poll, from a partition of its own."""

    def __init__(self, *bodies):
        self.bodies = bodies

    async def call(self, statement, *arguments):
        assert statement == POP_CALL
        del arguments
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        return [
            (n, 6 + n, "partition", 0, 1, 1, 1, moment, bytes(16), body, None, False)
            for n, body in enumerate(self.bodies, start=1)
        ]


class Broker:
    """The other parts: hears what is given back, and who came back from an attempt."""

    def __init__(self):
        self.given_back = []

    def give_back(self, group, lease_id, partition_ids):
        self.given_back.append((group, lease_id, partition_ids))

    def attempt_ended(self, poll, *, is_served):
        pass

    def leave(self, poll):
        pass

    def pass_over(self, group, lease_id, addresses, then):
        pytest.fail("nothing is to be passed over")


class Client:
    def __init__(self):
        self.bodies = []
        self.errors = []
        options = PollOptions(
            queue="hive",
            group="bees",
            partition=None,
            batch=1,
            partitions=1,
            auto_ack=False,
            lease_s=0,
            subscription=Subscription(),
        )
        self.poll = Poll(options, deadline=0, deliver=self._hear, refuse=self.errors.append)
        self.poll.group = GROUP

    def _hear(self, body):
        self.bodies.append(json.loads(body))
        return True


def refuse_to_open(envelope):
    raise Refused(f"the key of {envelope[:8]!r} is not known")


async def test_messages_that_cannot_be_opened_are_given_back_and_fail_only_their_own_poll():
    broker, unlucky, lucky = Broker(), Client(), Client()
    executor = PopExecutor(
        Database(SEALED, PLAIN),
        broker,
        LeaseMemory(bytes_max=1 << 20),
        broker,
        pass_over=broker.pass_over,
        envelopes=EnvelopeReader(refuse_to_open),
        now=lambda: 0.0,
    )

    await executor.execute([unlucky.poll, lucky.poll], is_repeated=False)

    assert [type(error) for error in unlucky.errors] == [Refused]
    assert unlucky.bodies == []
    assert broker.given_back == [(GROUP, unlucky.poll.lease_id, {7})]
    assert [message["data"] for message in lucky.bodies[0]["messages"]] == [1]
    assert lucky.errors == []
