"""Push: how items wait for partitions and gather in writes, without a database."""

import asyncio
import json
from datetime import UTC, datetime

import pytest

from skep.broker.directory import Directory, Partition
from skep.broker.failover.diversion import Diversion
from skep.broker.failover.maintenance import Maintenance
from skep.broker.failover.outage import Outage
from skep.broker.overload.fallback import Fallback, PushAttempt
from skep.broker.overload.waiting_line import Line, PartitionWatch
from skep.broker.push.accept import Push
from skep.broker.push.rules import QueueRules
from skep.broker.scheduled.accept import Schedule
from skep.engine.fusion import FusionCore
from skep.engine.limiter import StaticLimiter
from skep.engine.policy import BatchPolicy
from skep.model.encryption import KeyRing
from skep.model.errors import BadRequest, Defect, Overloaded, Refused, Unavailable
from skep.model.priorities import Priority
from skep.model.wire import PushItem
from skep.spill.log import SpillLog


class HeldEngine:
    """Lets everything wait, so that a test decides what happens next."""

    def __init__(self, weight_capacity=1 << 20):
        policy = BatchPolicy(
            preferred_weight=1, hold_s_max=1, weight_max=1 << 20, concurrency_max=1
        )
        names = ("push", "provision", "defer")
        operations = {name: (policy, StaticLimiter(1)) for name in names}
        self._core = FusionCore(operations, slots=8, weight_capacity=weight_capacity)
        self.submitted = []

    def admit(self, operation, weight):
        self._core.admit(operation, weight)

    def submit(self, operation, partition, weight, work, *, is_admitted=False):
        unit = self._core.offer(operation, partition, weight, work, 0.0, is_admitted=is_admitted)
        self.submitted.append((operation, work))
        return unit

    def enlarge(self, write, weight):
        return self._core.enlarge(write, weight)

    def when_relieved(self, callback):
        self.relieve = callback

    def is_under_way(self, operation, partition):
        return self._core.is_under_way(operation, partition)

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


def make_push(engine, directory, outage=None):
    def now():
        return datetime.now(UTC)

    # The database is never asked for its modes here, and it is never away.
    diversion = Diversion(
        directory, KeyRing(()), outage or Outage(after_s=1), Maintenance(None, None), now=now
    )
    return Push(
        engine,
        directory,
        Schedule(engine),
        fallback=None,
        diversion=diversion,
        hash_seed=7,
        now=now,
    )


def know(directory, partition="a", partition_id=1):
    directory.learn_partition(Partition("q", partition, 1, partition_id, QueueRules(1)))


def items(*transaction_ids, partition="a"):
    return [PushItem("q", partition, transaction_id=each) for each in transaction_ids]


def failing_once(step):
    failures = [RuntimeError("a bug")]

    def call(*arguments, **options):
        if failures:
            raise failures.pop()
        return step(*arguments, **options)

    return call


def ids(write):
    return [entry[4].decode().strip('"') for entry in write.entries]


def test_pushes_into_one_partition_gather_in_one_write(push, engine, directory):
    know(directory)

    push.push_messages(items("x", "y"), lambda _: None, size=100)
    push.push_messages(items("z"), lambda _: None, size=100)

    (write,) = engine.batch("push")
    assert ids(write) == ["x", "y", "z"]


def test_a_write_on_its_way_is_joined_by_none(push, engine, directory):
    know(directory)
    push.push_messages(items("x"), lambda _: None, size=100)
    (first,) = engine.batch("push")

    assert push.leaves(first)
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


def test_a_known_partition_is_used_at_once_when_none_waits_any_more(push, engine, directory):
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


def test_a_known_partition_does_not_wait_for_a_new_one(push, engine, directory):
    know(directory)

    push.push_messages([*items("x"), *items("y", partition="b")], lambda _: None, size=100)
    push.push_messages(items("z"), lambda _: None, size=100)

    (write,) = engine.batch("push")
    assert ids(write) == ["x", "z"]
    know(directory, "b", 2)
    engine.batch("provision")[0].succeed()
    assert [ids(write) for write in engine.batch("push")] == [["x", "z"], ["y"]]


def test_a_request_is_answered_although_its_queue_was_deleted_meanwhile(push, engine, directory):
    know(directory)
    answers = []
    push.push_messages([*items("x"), *items("y", partition="b")], answers.append, size=100)

    directory.forget_queue(1)
    know(directory, "b", 2)
    engine.batch("provision")[0].succeed()
    for write in engine.batch("push"):
        write.fail(Overloaded())

    assert len(answers) == 1


def test_items_whose_partition_is_gone_again_are_refused(push, engine):
    answers = []
    push.push_messages(items("x"), answers.append, size=100)

    engine.batch("provision")[0].succeed()

    (request,) = answers
    assert isinstance(request.error, Unavailable)


def test_one_partition_provisioned_for_two_requests_takes_them_in_order(push, engine, directory):
    push.push_messages([*items("x"), *items("y", partition="b")], lambda _: None, size=100)
    push.push_messages(items("z"), lambda _: None, size=100)
    know(directory)

    first, second = engine.batch("provision")
    second.succeed()  # it overtook the first, which is tried again
    first.fail(Unavailable())

    (write,) = engine.batch("push")
    assert ids(write) == ["x", "z"]


@pytest.mark.parametrize("can_answer", [True, False])
def test_a_request_that_fails_by_a_bug_strands_none_behind_it(push, engine, directory, can_answer):
    answered = []

    def answer(request):
        if not can_answer:
            raise RuntimeError("another bug")
        answered.append(type(request.error))

    push.push_messages(items("x"), answer, size=100)
    push.push_messages(items("y"), answered.append, size=100)
    know(directory)
    first, second = engine.batch("provision")
    engine.submit = failing_once(engine.submit)

    first.succeed()
    second.succeed()
    push.push_messages(items("z"), answered.append, size=100)

    assert [ids(write) for write in engine.batch("push")] == [["y", "z"]]
    assert answered == [Defect] * can_answer


def test_a_bad_time_fails_its_item_before_anything_is_provisioned_for_it(push, engine, directory):
    know(directory)
    bad = PushItem("q", "b", transaction_id="y", delay_seconds=-1)

    push.push_messages([*items("x"), bad], lambda _: None, size=100)

    (write,) = engine.batch("push")
    assert ids(write) == ["x"]
    assert engine.batch("provision") == []


def test_what_was_admitted_goes_on_although_the_engine_is_full_by_then(directory):
    engine = HeldEngine(weight_capacity=2_500)
    push = make_push(engine, directory)
    answers = []
    push.push_messages(items("x"), answers.append, size=100)
    know(directory)
    know(directory, "b", 2)
    push.push_messages(items("y", partition="b"), lambda _: None, size=1_000)

    engine.batch("provision")[0].succeed()

    assert [ids(write) for write in engine.batch("push")] == [["y"], ["x"]]
    assert answers == []


def test_a_full_engine_refuses_the_request(directory):
    push = make_push(HeldEngine(weight_capacity=1_000), directory)
    know(directory)
    push.push_messages(items("x"), lambda _: None, size=100)

    with pytest.raises(Overloaded):
        push.push_messages(items("y"), lambda _: None, size=100)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_request_that_does_not_fit_is_not_taken_in_part(directory, is_known):
    engine = HeldEngine(weight_capacity=1_500)
    push = make_push(engine, directory)
    know(directory, "a", 1)
    if is_known:
        know(directory, "b", 2)
    push.push_messages(items("w"), lambda _: None, size=100)

    with pytest.raises(Overloaded):
        push.push_messages([*items("x"), *items("y", partition="b")], lambda _: None, size=100)

    (write,) = engine.batch("push")
    assert ids(write) == ["w"]


def test_a_write_splits_into_its_requests(push, engine, directory):
    know(directory)
    push.push_messages(items("x", "y"), lambda _: None, size=100)
    push.push_messages(items("z"), lambda _: None, size=100)
    (write,) = engine.batch("push")

    parts = write.split()

    assert [ids(part) for part in parts] == [["x", "y"], ["z"]]
    assert parts[1].split() == []


def test_a_request_is_answered_once_when_its_last_write_failed(push, engine, directory):
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


class HoldingDiversion:
    """Holds a push once, and fails by a bug when it comes back."""

    is_needed = True

    def take(self, request, items, producer, retry, is_under_way):
        if retry is None:
            raise RuntimeError("a bug")
        self.retry = retry
        return []


def test_a_push_that_was_held_is_answered_whatever_becomes_of_it(push):
    push.diversion, answers = HoldingDiversion(), []
    push.push_messages(items("x"), answers.append, size=100)

    push.diversion.retry()

    (request,) = answers
    assert isinstance(request.error, Defect)


async def test_what_goes_to_disk_is_not_refused_with_the_rest_of_its_request(
    engine, directory, tmp_path
):
    outage, spill = Outage(after_s=1), SpillLog(tmp_path / "spill", bytes_max=1 << 20)
    push = make_push(engine, directory, outage)
    push.diversion.open(spill)
    answered = asyncio.Queue()
    outage.begin()
    push.push_messages(items("w"), answered.put_nowait, size=100)
    await answered.get()
    outage.hear(True)

    push.push_messages([*items("x"), *items("y", partition="b")], answered.put_nowait, size=100)
    engine.batch("provision")[0].fail(Refused("no such queue"))
    request = await answered.get()
    await push.diversion.close()
    spill.close()

    assert [json.loads(each)["status"] for each in request.results] == ["buffered", "failed"]
    assert request.errors.keys() == {1}
    assert answered.empty()


async def test_a_write_goes_to_disk_behind_one_of_its_partition_that_could_not_be_stored(
    engine, directory, tmp_path
):
    spill = SpillLog(tmp_path / "spill", bytes_max=1 << 20)
    push = make_push(engine, directory)
    push.diversion.open(spill)
    know(directory)
    answered = asyncio.Queue()
    push.push_messages(items("x"), answered.put_nowait, size=100)
    (first,) = engine.batch("push")
    assert push.leaves(first)
    push.push_messages(items("y"), answered.put_nowait, size=100)

    first.fail(Unavailable())  # its time is over, although there is no outage
    _, second = engine.batch("push")
    goes_to_database = push.leaves(second)
    requests = [await answered.get(), await answered.get()]
    await push.diversion.close()
    spill.close()

    results = [json.loads(request.results[0]) for request in requests]
    assert not goes_to_database
    assert [(each["transaction_id"], each["status"]) for each in results] == [
        ("x", "buffered"),
        ("y", "buffered"),
    ]


@pytest.mark.parametrize("cause", ["the queue was deleted", "too many are known"])
async def test_a_push_does_not_overtake_one_under_way_to_a_partition_that_is_not_known_any_more(
    engine, directory, tmp_path, monkeypatch, cause
):
    outage, spill = Outage(after_s=1), SpillLog(tmp_path / "spill", bytes_max=1 << 20)
    push = make_push(engine, directory, outage)
    push.diversion.open(spill)
    know(directory)
    answered = asyncio.Queue()
    push.push_messages(items("x"), answered.put_nowait, size=100)
    (first,) = engine.batch("push")
    assert push.leaves(first)
    if cause == "the queue was deleted":
        directory.forget_queue(1)
    else:
        monkeypatch.setattr("skep.broker.directory.ENTRIES_MAX", 10)
        for number in range(2, 12):
            know(directory, partition=f"p{number}", partition_id=number)

    outage.begin()
    push.push_messages(items("y"), answered.put_nowait, size=100)
    first.fail(Unavailable())
    engine.batch("provision")[0].fail(Unavailable())
    for _ in "xy":
        await answered.get()
    await push.diversion.close()

    portion = spill.read(0, spill.board.end, bytes_max=1 << 20)
    names = [json.loads(piece.record.envelope)["transactionId"] for piece in portion.pieces]
    spill.close()
    assert names == ["x", "y"]


class AsyncClient:
    prefers_async = True


async def test_a_push_is_not_deferred_before_one_that_waits_for_its_partition(
    push, engine, directory
):
    line = Line(engine, wait_s=60, weight_max=10_000)
    watch = PartitionWatch(None, line.free)
    fallback = Fallback(engine, line, watch, directory, deferral="asked")
    push.push_messages(items("x"), lambda _: None, size=100)

    PushAttempt(fallback, items("y"), AsyncClient(), push, 100, None).fall_back(Priority.PUSH)

    assert engine.batch("defer") == []
    engine.batch("provision")[0].fail(Refused())
    engine.relieve()
    (deferral,) = engine.batch("defer")
    assert list(deferral.entries_by_key) == [("q", "a")]
    line.stop()


def test_a_bad_item_fails_alone_though_the_others_wait_for_their_partition(push, engine, directory):
    answers = []
    bad = PushItem("q" * 256, "a", transaction_id="bad")
    push.push_messages([bad, *items("x"), bad], answers.append, size=100)
    know(directory)
    engine.batch("provision")[0].succeed()
    (write,) = engine.batch("push")

    write.fail(Unavailable())

    (request,) = answers
    assert ids(write) == ["x"]
    assert [type(request.errors[at]) for at in range(3)] == [BadRequest, Unavailable, BadRequest]
