"""How polls are accepted, and what they do when what they named is gone."""

import asyncio
from contextlib import suppress

import msgspec
import pytest

from skep.broker.directory import Directory, Group, Partition, Subscription
from skep.broker.overload.fallback import Fallback
from skep.broker.overload.waiting_line import Line, PartitionWatch
from skep.broker.pop.accept import Poll, PollOptions, Pop
from skep.broker.pop.deadlines import AWAY_S, LATE_S, LOOK_S, Deadlines
from skep.broker.pop.discovery import DISCOVER_CALL, Discovery, Search
from skep.broker.pop.long_poll import LongPolls
from skep.broker.pop.parking import SweepPolicy
from skep.broker.push.rules import QueueRules
from skep.model.errors import Overloaded, Unavailable
from tests.support.virtual_time import VirtualTimeLoop

GROUP = Group("hive", "bees", 1, 2)
OLD = Partition("hive", "a", 1, 7, QueueRules(1))
OPTIONS = PollOptions(
    queue="hive",
    group="bees",
    partition="a",
    batch=1,
    partitions=1,
    auto_ack=False,
    lease_s=0,
    subscription=Subscription(),
)


@pytest.fixture
def arun():
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        yield runner.run


class Engine:
    """Hears what is submitted; the test says how it ends."""

    def __init__(self):
        self.submitted = []
        self.is_full = False
        self.relieve = None

    def when_relieved(self, callback):
        self.relieve = callback

    def submit(self, operation, partition, weight, work, *, is_admitted=False):
        if self.is_full and not is_admitted:
            raise Overloaded
        self.submitted.append((operation, work))


class Database:
    """Says of every scope that it is ready to be tried, as it does of those that are gone."""

    async def call(self, statement, *arguments):
        if statement == DISCOVER_CALL:
            return [("hive", 0)]
        return [(item, 0.0) for item in range(1, len(arguments[0]) + 1)]


class Setting:
    def __init__(self):
        self.engine, self.directory = Engine(), Directory()
        self.directory.learn_group(GROUP)
        self.directory.learn_partition(OLD)
        policy = SweepPolicy(interval_s_min=0.1, interval_s_max=1.0, slack_s=0.2)
        self.long_polls = LongPolls(Database(), policy)
        now = asyncio.get_running_loop().time
        line = Line(self.engine, wait_s=3, weight_max=1_000_000)
        watch = PartitionWatch(Database(), line.free)
        fallback = Fallback(self.engine, line, watch, self.directory, "never")
        self.is_away = False
        deadlines = Deadlines(lambda: self.is_away)
        self.pop = Pop(self.engine, self.directory, self.long_polls, fallback, deadlines, now=now)
        self.discovery = Discovery(Database(), self.pop, now=now)
        self.long_polls.start(self.pop.attempt)
        self.bodies, self.errors = [], []

    def poll(self, options=OPTIONS, *, wait_s=30.0):
        deadline = asyncio.get_running_loop().time() + wait_s
        return Poll(options, deadline, self._answer, self.errors.append)

    def search(self, *, wait_s):
        options = msgspec.structs.replace(OPTIONS, partition=None)
        deadline = asyncio.get_running_loop().time() + wait_s
        search = Search(options, "hives", "", deadline, self._answer, self.errors.append)
        search.waits = wait_s > 0
        self.discovery.pop_discovered(search)

    def _answer(self, body):
        self.bodies.append(body)
        return True

    def operations(self):
        return [operation for operation, _ in self.engine.submitted]


async def test_a_poll_never_takes_from_other_partitions_although_its_own_cannot_be_created():
    setting = Setting()
    poll = setting.poll()
    setting.pop.pop_messages(poll)

    setting.pop.find_partition_again(poll)
    setting.engine.submitted[-1][1].fail(Unavailable())
    await asyncio.sleep(5)

    assert setting.operations() == ["pop_partition", "provision", "pop_partition"]
    assert setting.errors == []


async def test_a_poll_that_starts_over_finds_room_in_a_full_engine():
    setting = Setting()
    poll = setting.poll()
    setting.pop.pop_messages(poll)

    setting.engine.is_full = True
    setting.pop.find_partition_again(poll)
    setting.directory.learn_partition(Partition("hive", "a", 1, 8, QueueRules(1)))
    setting.engine.submitted[-1][1].succeed()

    assert setting.operations() == ["pop_partition", "provision", "pop_partition"]
    assert poll.partition.partition_id == 8


async def test_a_search_that_waits_for_messages_also_waits_for_room():
    setting = Setting()
    setting.engine.is_full = True
    setting.search(wait_s=30)
    await asyncio.sleep(5)

    setting.engine.is_full = False
    setting.engine.relieve()

    assert (setting.operations(), setting.bodies, setting.errors) == (["pop"], [], [])


async def test_a_search_that_finds_no_room_is_told_that_there_is_nothing_if_it_waits():
    setting = Setting()
    setting.engine.is_full = True
    setting.search(wait_s=3)
    setting.search(wait_s=0)
    await asyncio.sleep(4)

    assert (setting.operations(), setting.bodies) == ([], [None])
    assert list(map(type, setting.errors)) == [Overloaded]


async def test_a_new_group_is_not_turned_away_after_it_was_admitted():
    setting = Setting()
    setting.directory.forget_group(GROUP)
    setting.pop.pop_messages(setting.poll())

    setting.engine.is_full = True
    setting.directory.learn_group(GROUP)
    setting.engine.submitted[-1][1].succeed()

    assert setting.operations() == ["subscribe", "pop_partition"]
    assert setting.errors == []


async def test_a_poll_that_waits_for_its_group_asks_again_while_the_database_is_away():
    setting = Setting()
    setting.directory.forget_group(GROUP)
    poll = setting.poll(wait_s=1.2)
    poll.waits = True
    setting.pop.pop_messages(poll)

    for _ in range(3):
        setting.engine.submitted[-1][1].fail(Unavailable())
        await asyncio.sleep(0.6)

    assert setting.operations() == ["subscribe"] * 3
    assert (setting.bodies, setting.errors) == ([None], [])  # its time was over


async def test_a_poll_that_waits_for_its_group_is_answered_when_the_broker_stops():
    setting = Setting()
    setting.directory.forget_group(GROUP)
    poll = setting.poll()
    poll.waits = True
    setting.pop.pop_messages(poll)

    setting.long_polls.stop()
    setting.engine.submitted[-1][1].fail(Unavailable())

    assert (setting.bodies, setting.errors) == ([None], [])


class Trying:
    def __init__(self, run_out, *, wait_s=0.0):
        self.deadline = asyncio.get_running_loop().time() + wait_s
        self.run_out = run_out


@pytest.mark.parametrize(
    ("is_away", "wait_s", "has_own_end", "answered_after_s"),
    [
        (True, 0, False, AWAY_S),
        (True, 0, True, AWAY_S),
        (True, 3, False, 3),
        (False, 0, False, AWAY_S + LATE_S),
        (False, 3, False, 3 + LATE_S),
        (False, 0, True, None),
    ],
)
async def test_a_poll_that_tries_is_answered_in_its_own_time(
    is_away, wait_s, has_own_end, answered_after_s
):
    deadlines, answered = Deadlines(lambda: is_away), asyncio.Event()
    loop = asyncio.get_running_loop()
    began_at = loop.time()

    deadlines.begin(Trying(answered.set, wait_s=wait_s), has_own_end=has_own_end)
    with suppress(TimeoutError):
        await asyncio.wait_for(answered.wait(), 60)

    took_s = loop.time() - began_at if answered.is_set() else None
    assert took_s == pytest.approx(answered_after_s, abs=2 * LOOK_S)


async def test_a_poll_that_waits_for_room_is_refused_in_time_by_a_silent_database():
    setting = Setting()
    setting.is_away = setting.engine.is_full = True
    setting.pop.pop(setting.poll(wait_s=0), waits=False)
    setting.pop.pop(setting.poll(wait_s=0.3), waits=True)
    await asyncio.sleep(AWAY_S + 2 * LOOK_S)

    assert (setting.bodies, list(map(type, setting.errors))) == ([None], [Unavailable])


async def test_a_poll_that_cannot_be_answered_keeps_no_other_from_its_answer():
    deadlines, answered = Deadlines(lambda: True), []

    def fail():
        raise RuntimeError("a bug")

    deadlines.begin(Trying(fail))
    deadlines.begin(Trying(lambda: answered.append("late")))
    await asyncio.sleep(2)

    assert answered == ["late"]
