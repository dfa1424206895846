"""Push: how items wait for partitions and gather in writes, without a database."""

from datetime import UTC, datetime

import pytest

from skep.broker.directory import Directory, Partition
from skep.broker.failover.diversion import Diversion
from skep.broker.failover.maintenance import Maintenance
from skep.broker.failover.outage import Outage
from skep.broker.push.accept import Push
from skep.broker.push.rules import QueueRules
from skep.broker.scheduled.accept import Schedule
from skep.engine.fusion import FusionCore
from skep.engine.limiter import StaticLimiter
from skep.engine.policy import BatchPolicy
from skep.model.encryption import KeyRing
from skep.model.errors import Overloaded, Unavailable
from skep.model.wire import PushItem


class HeldEngine:
    """Lets everything wait, so that a test decides what happens next."""

    def __init__(self, weight_capacity=1 << 20):
        policy = BatchPolicy(
            preferred_weight=1, hold_s_max=1, weight_max=1 << 20, concurrency_max=1
        )
        operations = {name: (policy, StaticLimiter(1)) for name in ("push", "provision")}
        self._core = FusionCore(operations, slots=8, weight_capacity=weight_capacity)
        self.submitted = []

    def submit(self, operation, partition, weight, work):
        write = self._core.offer(operation, partition, weight, work, 0.0)
        self.submitted.append((operation, work))
        return write

    def enlarge(self, write, weight):
        return self._core.enlarge(write, weight)

    def batch(self, operation):
        return [work for name, work in self.submitted if name == operation]


@pytest.fixture
def engine():
    return HeldEngine()


@pytest.fixture
def directory():
    return Directory()


@pytest.fixture
def push(engine, directory):
    return make_push(engine, directory)


def make_push(engine, directory):
    def now():
        return datetime.now(UTC)

    # Nobody asks the database for its modes here, and it is never away.
    diversion = Diversion(
        directory, KeyRing(()), Outage(after_s=1), Maintenance(None, None), now=now
    )
    return Push(engine, directory, Schedule(engine), diversion=diversion, hash_seed=7, now=now)


def know(directory, partition="a", partition_id=1):
    directory.learn_partition(Partition("q", partition, 1, partition_id, QueueRules(1)))


def items(*transaction_ids, partition="a"):
    return [PushItem("q", partition, transaction_id=each) for each in transaction_ids]


def ids(write):
    return [entry[4].decode().strip('"') for entry in write.entries]


def test_pushes_into_one_partition_gather_in_one_write(push, engine, directory):
    know(directory)

    push.push_messages(items("x", "y"), lambda _: None, size=100)
    push.push_messages(items("z"), lambda _: None, size=100)

    (write,) = engine.batch("push")
    assert ids(write) == ["x", "y", "z"]


def test_a_lot_on_its_way_is_joined_by_nobody(push, engine, directory):
    know(directory)
    push.push_messages(items("x"), lambda _: None, size=100)
    (first,) = engine.batch("push")

    push.close(first)
    push.push_messages(items("y"), lambda _: None, size=100)

    assert [ids(write) for write in engine.batch("push")] == [["x"], ["y"]]


def test_a_push_does_not_overtake_one_that_waits_for_its_partition(push, engine, directory):
    push.push_messages(items("x"), lambda _: None, size=100)
    know(directory)  # known by now, but x has not been told yet

    push.push_messages(items("y"), lambda _: None, size=100)

    assert engine.batch("push") == []
    first, second = engine.batch("provision")
    first.succeed()
    second.succeed()
    (write,) = engine.batch("push")
    assert ids(write) == ["x", "y"]


def test_a_known_partition_is_used_at_once_when_nobody_waits_any_more(push, engine, directory):
    push.push_messages(items("x"), lambda _: None, size=100)
    know(directory)
    engine.batch("provision")[0].succeed()

    push.push_messages(items("y"), lambda _: None, size=100)

    assert len(engine.batch("provision")) == 1


def test_a_partition_that_cannot_be_had_fails_the_request(push, engine):
    answers = []
    push.push_messages(items("x"), answers.append, size=100)

    engine.batch("provision")[0].fail(Unavailable())

    (request,) = answers
    assert isinstance(request.error, Unavailable)
    assert len(request.errors) == len(request.results)


def test_a_full_engine_refuses_the_request(directory):
    push = make_push(HeldEngine(weight_capacity=1_000), directory)
    know(directory)
    push.push_messages(items("x"), lambda _: None, size=100)

    with pytest.raises(Overloaded):
        push.push_messages(items("y"), lambda _: None, size=100)


def test_what_did_not_fit_is_reported_item_by_item(directory):
    push = make_push(HeldEngine(weight_capacity=1_000), directory)
    know(directory, "a", 1)
    know(directory, "b", 2)
    answers = []

    push.push_messages(
        items("x", partition="a") + items("y", partition="b"), answers.append, size=100
    )
    engine_write = next(iter(push._open.values()))
    engine_write.fail(Unavailable())

    (request,) = answers
    assert b"overloaded; retry" in request.results[1]
    assert b"unreachable" in request.results[0]


def test_a_lot_splits_into_its_requests(push, engine, directory):
    know(directory)
    push.push_messages(items("x", "y"), lambda _: None, size=100)
    push.push_messages(items("z"), lambda _: None, size=100)
    (write,) = engine.batch("push")

    parts = write.split()

    assert [ids(part) for part in parts] == [["x", "y"], ["z"]]
    assert parts[1].split() == []


def test_a_request_is_answered_once_when_its_last_lot_failed(push, engine, directory):
    know(directory, "a", 1)
    know(directory, "b", 2)
    answers = []
    push.push_messages(
        items("x", partition="a") + items("y", partition="b"), answers.append, size=100
    )
    first, second = engine.batch("push")

    first.fail(Unavailable())
    assert answers == []
    second.fail(Unavailable())

    (request,) = answers
    assert len(request.errors) == len(request.results)
    assert all(b'"status":"failed"' in result for result in request.results)
