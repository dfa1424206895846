"""What becomes of a claim whose messages cannot be read, or that no client waits for any more."""

import json
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from skep.broker.ack.accept import Ack
from skep.broker.directory import Directory, Group, Subscription
from skep.broker.pop.accept import Poll, PollOptions, Pop
from skep.broker.pop.batches import EnvelopeReader
from skep.broker.pop.execute import POP_CALL, UNDO_CALL, PopExecutor
from skep.broker.pop.lease_memory import LeaseMemory
from skep.engine.fusion import FusionCore
from skep.engine.limiter import StaticLimiter
from skep.engine.policy import BatchPolicy
from skep.model.errors import Refused

GROUP = Group("hive", "bees", 1, 2)
SEALED = b'[{"enc":"lost-key","transactionId":"t","data":"c2VhbGVk"}]'
EXPIRED = b'[{"expiresAt":"2026-01-01T00:00:00+00:00","transactionId":"t","data":1}]'
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
            (n, 6 + n, "partition", 0, 1, 1, 1, moment, bytes(16), body, None, False, None)
            for n, body in enumerate(self.bodies, start=1)
        ]


class Broker:
    """The other parts: hears what is given back, and who came back from an attempt."""

    def __init__(self):
        self.given_back = []
        self.unfenced = {}
        self.passing_over = []
        self.parked = []

    def give_back(self, group, lease_id, partition_ids, *, is_fenced=True):
        del is_fenced
        self.given_back.append((group, lease_id, partition_ids))

    def park(self, poll):
        self.parked.append(poll)

    def end_wait(self, poll):
        pass

    def leave(self, poll):
        pass

    def pass_over(self, group, lease_id, addresses, then):
        del group, lease_id, addresses
        self.passing_over.append(then)


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
        self.poll = Poll(options, deadline=0, answer=self._hear, refuse=self.errors.append)
        self.poll.group = GROUP

    def _hear(self, body):
        self.bodies.append(json.loads(body))
        return True


class FullEngine:
    """Holds as much as it may, and shows what it accepts nevertheless."""

    def __init__(self):
        policy = BatchPolicy(preferred_weight=1, hold_s_max=0, weight_max=1, concurrency_max=1)
        operations = ("pop", "release", "undo", "ack")
        self._core = FusionCore(
            {name: (policy, StaticLimiter(1)) for name in operations}, slots=1, weight_capacity=1
        )
        self._core.offer("pop", None, 1, None, 0.0)
        self.submitted = []

    def submit(self, operation, partition, weight, work, **options):
        self._core.offer(operation, partition, weight, work, 0.0, **options)
        self.submitted.append((operation, work))


def refuse_to_open(envelope):
    raise Refused(f"the key of {envelope[:8]!r} is not known")


def executor_of(database, broker, pop):
    return PopExecutor(
        database,
        pop,
        LeaseMemory(bytes_max=1 << 20),
        broker,
        pass_over=broker.pass_over,
        envelopes=EnvelopeReader(refuse_to_open),
        now=lambda: 0.0,
        bytes_max=1 << 20,
    )


async def test_messages_that_cannot_be_opened_are_given_back_and_fail_only_their_own_poll():
    broker, unlucky, lucky = Broker(), Client(), Client()
    executor = executor_of(Database(SEALED, PLAIN), broker, broker)

    await executor.execute([unlucky.poll, lucky.poll], is_repeated=False)

    assert [type(error) for error in unlucky.errors] == [Refused]
    assert unlucky.bodies == []
    assert broker.given_back == [(GROUP, unlucky.poll.lease_id, {7})]
    assert [message["data"] for message in lucky.bodies[0]["messages"]] == [1]
    assert lucky.errors == []
    assert broker.passing_over == []


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_claim_without_messages_is_given_back_unless_they_were_passed_over(is_done):
    broker, client = Broker(), Client()
    executor = executor_of(Database(EXPIRED), broker, broker)
    await executor.execute([client.poll], is_repeated=False)
    client.poll.end()  # its time was over meanwhile

    (then,) = broker.passing_over
    then(is_done)

    assert broker.given_back == ([] if is_done else [(GROUP, client.poll.lease_id, {7})])


async def test_a_poll_whose_messages_could_not_be_passed_over_waits_until_they_are_given_back():
    """Trying again at once it would claim them again, as often as the engine lets it."""
    broker, client = Broker(), Client()
    client.poll.deadline = 10
    executor = executor_of(Database(EXPIRED), broker, broker)
    await executor.execute([client.poll], is_repeated=False)
    lease_id = client.poll.lease_id

    (then,) = broker.passing_over
    then(False)

    assert broker.given_back == [(GROUP, lease_id, {7})]
    assert broker.parked == [client.poll]
    assert client.poll.lease_id != lease_id


def test_messages_are_passed_over_although_the_engine_is_full():
    engine, answers = FullEngine(), []
    ack = Ack(engine, LeaseMemory(bytes_max=1 << 20), None, 0)

    ack.pass_over("bees", uuid4(), [(7, 1)], answers.append)

    assert [operation for operation, _ in engine.submitted] == ["ack"]
    assert answers == []


async def test_a_poll_that_ends_while_its_claim_is_undone_claims_nothing():
    broker, client, statements, undone = Broker(), Client(), [], []

    class Undoing:
        async def call(self, statement, *arguments):
            del arguments
            statements.append(statement)
            client.poll.end()
            return []

    client.poll.undo_claim = undone.append

    await executor_of(Undoing(), broker, broker).execute([client.poll], is_repeated=False)

    assert statements == [UNDO_CALL]
    assert undone == [client.poll]


async def test_a_claim_is_given_back_although_the_engine_is_full():
    broker, engine, gone, present = Broker(), FullEngine(), Client(), Client()
    pop = Pop(engine, Directory(), broker, None, None, now=lambda: 0.0)
    executor = executor_of(Database(PLAIN, PLAIN), broker, pop)
    gone.poll.answer = lambda body: False

    await executor.execute([gone.poll, present.poll], is_repeated=False)

    ((operation, claim),) = engine.submitted
    assert (operation, claim.lease_id, claim.partition_ids) == ("release", gone.poll.lease_id, {7})
    assert len(present.bodies) == 1


def test_a_doubtful_claim_is_undone_although_the_engine_is_full():
    engine, client = FullEngine(), Client()
    pop = Pop(engine, Directory(), Broker(), None, None, now=lambda: 0.0)
    client.poll.undo_claim = pop.undo_claim_of

    client.poll.end()

    ((operation, claim),) = engine.submitted
    assert (operation, claim.lease_id) == ("undo", client.poll.lease_id)
