"""Requests in line: who is tried when, and who is refused."""

import asyncio

import pytest

from skep.broker.directory import Directory
from skep.broker.overload.fallback import Fallback, is_passing, push_kind, renumber
from skep.broker.overload.waiting_line import (
    DEFERRAL,
    Line,
    OutOfTurn,
    PartitionKey,
    PartitionWatch,
    Turn,
)
from skep.broker.pop.accept import Pop
from skep.broker.pop.deadlines import Deadlines
from skep.model.errors import (
    BadRequest,
    Congested,
    Defect,
    Overloaded,
    PartitionDeferred,
    QueueFull,
    Unavailable,
)
from skep.model.priorities import Priority

PARTITION = PartitionKey("push", 7)


class FakeEngine:
    """An engine that only says when a call came back."""

    load = 0.0

    def __init__(self):
        self.submitted = []
        self.is_full = False

    def when_relieved(self, callback):
        self.relieve = callback

    def submit(self, operation, partition, weight, work):
        if self.is_full:
            raise Overloaded
        self.submitted.append((operation, partition, weight, work))


class Requests:
    """Requests that are served while there is room, and what became of them."""

    def __init__(self):
        self.has_room = False
        self.served = []
        self.refused = {}

    def turn(self, name):
        def attempt():
            if not self.has_room:
                raise Overloaded
            self.served.append(name)

        return Turn(attempt, lambda error: self.refused.update({name: error}))


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def requests():
    return Requests()


def fail(*_):
    raise RuntimeError("a bug")


async def line_of(engine, **options):
    return Line(engine, **{"wait_s": 60, "weight_max": 100, **options})


def stand(line, requests, name, kind=Priority.PUSH, *, weight=1, deadline=None):
    deadline = line.deadline() if deadline is None else deadline
    line.stand(kind, requests.turn(name), weight=weight, deadline=deadline)


async def test_those_in_line_are_served_in_order_when_a_call_came_back(engine, requests):
    line = await line_of(engine)
    for name in "abc":
        stand(line, requests, name)
    engine.relieve()
    assert (requests.served, len(line)) == ([], 3)

    requests.has_room = True
    engine.relieve()

    assert (requests.served, len(line), requests.refused) == (["a", "b", "c"], 0, {})


async def test_the_more_important_are_served_first(engine, requests):
    line = await line_of(engine)
    for name, kind in (("pop", Priority.POP), ("push", Priority.PUSH), ("ack", Priority.ACK)):
        stand(line, requests, name, kind)
    requests.has_room = True

    engine.relieve()

    assert requests.served == ["ack", "push", "pop"]


async def test_who_is_not_first_in_its_own_partition_does_not_keep_others_from_trying(
    engine, requests
):
    line = await line_of(engine)

    def attempt():
        raise OutOfTurn

    turn = Turn(attempt, lambda error: requests.refused.update(early=error))
    line.stand(Priority.PUSH, turn, weight=1, deadline=line.deadline())
    stand(line, requests, "late")
    requests.has_room = True

    engine.relieve()

    assert (requests.served, len(line)) == (["late"], 1)


async def test_a_defect_is_answered_and_keeps_no_other_from_trying(engine, requests):
    line = await line_of(engine)

    def attempt():
        raise RuntimeError("a bug")

    turn = Turn(attempt, lambda error: requests.refused.update(broken=error))
    line.stand(Priority.PUSH, turn, weight=1, deadline=line.deadline())
    stand(line, requests, "late")
    requests.has_room = True

    engine.relieve()

    assert (requests.served, len(line)) == (["late"], 0)
    assert isinstance(requests.refused["broken"], Defect)


async def test_who_waits_to_be_deferred_is_tried_like_those_who_wait_for_room(engine, requests):
    line = await line_of(engine)
    stand(line, requests, "x", PartitionKey(DEFERRAL, 7))
    requests.has_room = True

    engine.relieve()

    assert requests.served == ["x"]


async def test_a_partition_is_tried_when_it_is_free_and_not_before(engine, requests):
    line = await line_of(engine)
    stand(line, requests, "x", PARTITION)
    requests.has_room = True

    engine.relieve()
    assert requests.served == []
    line.free(PARTITION)

    assert requests.served == ["x"]


async def test_a_partition_that_is_free_is_tried_until_there_is_room(engine, requests):
    line = await line_of(engine)
    database = Partitions()
    watch = PartitionWatch(database, line.free)
    stand(line, requests, "x", PARTITION)
    watch.note(PARTITION)

    async with asyncio.timeout(30):
        while len(database.asked) < 2:
            await asyncio.sleep(0)
        requests.has_room = True
        while watch:
            await asyncio.sleep(0)

    assert requests.served == ["x"]
    await watch.stop()


@pytest.mark.parametrize(("is_congestion", "kind"), [(False, Overloaded), (True, Congested)])
async def test_who_waited_too_long_is_refused(engine, requests, is_congestion, kind):
    line = await line_of(engine, wait_s=0.01, is_congestion=is_congestion)
    stand(line, requests, "x")

    async with asyncio.timeout(30):
        while not requests.refused:
            await asyncio.sleep(0)

    assert type(requests.refused["x"]) is kind
    assert (len(line), line.refused_count) == (0, 1)


async def test_who_waited_too_long_is_deferred_if_that_is_asked_for(engine, requests):
    line = await line_of(engine, wait_s=0.01)
    deferred = asyncio.get_running_loop().create_future()
    turn = requests.turn("x")._replace(defer=lambda: deferred.set_result(line.refused_count))
    line.stand(PARTITION, turn, weight=1, deadline=line.deadline())

    assert await deferred == 0
    assert [len(line), requests.refused] == [0, {}]


async def test_who_cannot_be_deferred_is_refused_with_the_reason(engine, requests):
    line = await line_of(engine, wait_s=0)
    turn = requests.turn("x")._replace(defer=fail)

    line.stand(PARTITION, turn, weight=1, deadline=line.deadline())

    assert isinstance(requests.refused["x"], Defect)


async def test_who_cannot_be_refused_does_not_keep_the_others_waiting(engine, requests):
    line = await line_of(engine, wait_s=0.01)

    turn = requests.turn("broken")._replace(refuse=fail)
    line.stand(Priority.PUSH, turn, weight=1, deadline=line.deadline())
    stand(line, requests, "x")

    async with asyncio.timeout(30):
        while not requests.refused:
            await asyncio.sleep(0)

    assert list(requests.refused) == ["x"]
    assert len(line) == 0


async def test_the_line_is_tried_although_no_call_came_back(engine, requests):
    line = await line_of(engine)
    stand(line, requests, "x")
    requests.has_room = True

    async with asyncio.timeout(30):
        while not requests.served:
            await asyncio.sleep(0)


async def test_a_line_that_is_full_refuses_at_once(engine, requests):
    line = await line_of(engine)
    stand(line, requests, "heavy", weight=90)

    stand(line, requests, "late", weight=11)

    assert list(requests.refused) == ["late"]
    assert len(line) == 1


async def test_who_comes_after_its_time_is_refused_at_once(engine, requests):
    line = await line_of(engine)

    stand(line, requests, "late", deadline=asyncio.get_running_loop().time())

    assert list(requests.refused) == ["late"]


async def test_an_attempt_that_fails_for_another_reason_is_refused_with_it(engine, requests):
    line = await line_of(engine)

    def attempt():
        raise BadRequest("no")

    line.stand(
        Priority.PUSH,
        Turn(attempt, lambda error: requests.refused.update(x=error)),
        weight=1,
        deadline=line.deadline(),
    )
    engine.relieve()

    assert isinstance(requests.refused["x"], BadRequest)
    assert len(line) == 0


async def test_who_cannot_be_told_of_its_failure_does_not_keep_others_from_trying(engine, requests):
    line = await line_of(engine)
    line.stand(Priority.PUSH, Turn(fail, fail), weight=1, deadline=line.deadline())
    stand(line, requests, "late")
    requests.has_room = True

    engine.relieve()

    assert (requests.served, len(line)) == (["late"], 0)


async def test_who_cannot_be_refused_at_the_end_does_not_keep_others_unanswered(engine, requests):
    line = await line_of(engine)
    line.stand(Priority.PUSH, Turn(fail, fail), weight=1, deadline=line.deadline())
    stand(line, requests, "x")

    line.stop()

    assert list(requests.refused) == ["x"]


async def test_everybody_is_refused_at_the_end(engine, requests):
    line = await line_of(engine)
    for name, kind in (("a", Priority.PUSH), ("b", PARTITION)):
        stand(line, requests, name, kind)

    line.stop()

    assert sorted(requests.refused) == ["a", "b"]
    assert len(line) == 0


class Partitions:
    """A database that knows in which partitions operations wait."""

    def __init__(self, *waiting):
        self.waiting = set(waiting)
        self.asked = []
        self.error = None

    async def call(self, _statement, partition_ids, type_):
        self.asked.append((sorted(partition_ids), type_))
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return [(each,) for each in partition_ids if (type_, each) in self.waiting]


async def test_partitions_are_watched_until_they_are_free():
    partitions = Partitions(("push", 1), ("ack_batch", 2))
    partitions.error = Unavailable()
    freed = []
    watch = PartitionWatch(partitions, lambda partition: not freed.append(partition))
    for partition in (
        PartitionKey("push", 1),
        PartitionKey("ack_batch", 2),
        PartitionKey("push", 3),
    ):
        watch.note(partition)
    assert watch.is_deferred(PartitionKey("push", 3))

    async with asyncio.timeout(30):
        while PartitionKey("push", 3) not in freed:
            await asyncio.sleep(0)
        assert watch.is_deferred(PartitionKey("push", 1))
        partitions.waiting.clear()
        while watch:
            await asyncio.sleep(0)

    assert sorted(freed) == sorted(
        [PartitionKey("push", 3), PartitionKey("push", 1), PartitionKey("ack_batch", 2)]
    )
    await watch.stop()


class FakePoll:
    is_settled = False

    def __init__(self, deadline):
        self.deadline = deadline
        self.answers = []

    def deliver(self, body):
        self.answers.append(body)

    def fail(self, error):
        self.answers.append(error)


class FullPop(Pop):
    def pop_messages(self, poll):
        raise Overloaded


def fallback_of(engine, line, *, deferral):
    watch = PartitionWatch(Partitions(), lambda _: True)
    return Fallback(engine, line, watch, Directory(), deferral=deferral)


def pop_of(engine, line):
    fallback = fallback_of(engine, line, deferral="asked")
    return FullPop(engine, Directory(), None, fallback, Deadlines(lambda: False), now=None)


async def test_a_poll_that_waits_hears_of_nothing_when_its_time_is_over(engine):
    line = await line_of(engine, wait_s=60)
    poll = FakePoll(asyncio.get_running_loop().time() + 0.01)

    pop_of(engine, line).pop(poll, waits=True)
    async with asyncio.timeout(30):
        while not poll.answers:
            await asyncio.sleep(0)

    assert poll.answers == [None]


async def test_a_poll_that_does_not_wait_is_held_back_and_refused(engine):
    line = await line_of(engine, wait_s=0.01)
    poll = FakePoll(asyncio.get_running_loop().time())

    pop_of(engine, line).pop(poll, waits=False)
    assert poll.answers == []
    async with asyncio.timeout(30):
        while not poll.answers:
            await asyncio.sleep(0)

    assert isinstance(poll.answers[0], Overloaded)


async def test_a_poll_whose_client_is_gone_is_forgotten(engine):
    line = await line_of(engine, wait_s=0.01)
    poll = FakePoll(asyncio.get_running_loop().time())
    pop_of(engine, line).pop(poll, waits=False)
    poll.is_settled = True

    engine.relieve()

    assert (poll.answers, len(line)) == ([], 0)


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (Overloaded(), True),
        (PartitionDeferred(partition_id=1), True),
        (QueueFull(), False),
        (Unavailable(), False),
        (None, False),
    ],
)
def test_only_a_lack_of_room_in_the_broker_passes(error, passes):
    assert is_passing(error) is passes


def test_what_to_wait_for_follows_from_the_error():
    assert push_kind(PartitionDeferred(partition_id=7)) == PARTITION
    assert push_kind(Overloaded()) is Priority.PUSH


def test_a_result_is_renumbered():
    assert renumber(b'{"index":0,"a":"x,y"}', 12) == b'{"index":12,"a":"x,y"}'


class FakeClient:
    def __init__(self, *, prefers_async):
        self.prefers_async = prefers_async


@pytest.mark.parametrize(
    ("server", "wishes", "asks", "is_deferred"),
    [
        ("asked", {"asked"}, True, True),
        ("asked", {"asked"}, False, False),
        ("asked", {"always"}, False, True),
        ("asked", {"always", "asked"}, False, False),
        ("asked", {"never"}, True, False),
        ("always", {"asked"}, False, True),
        ("always", {"always", "never"}, True, False),
        ("never", {"always"}, True, False),
    ],
)
async def test_server_queue_and_client_decide_who_is_deferred(
    engine, server, wishes, asks, is_deferred
):
    line = await line_of(engine)
    fallback = fallback_of(engine, line, deferral=server)

    assert fallback.may_defer(FakeClient(prefers_async=asks), wishes) is is_deferred
