"""Long polls: parked polls try again, are swept, and are answered in the end."""

import asyncio
import logging

import pytest

from skep.broker.directory import Group, Partition, Subscription
from skep.broker.pop.accept import Poll, PollOptions
from skep.broker.pop.long_poll import ALARM_MARGIN_S, SWEEP_CALL, LongPolls
from skep.broker.pop.parking import SweepPolicy
from skep.broker.push.rules import QueueRules
from skep.db.access.errors import NotExecuted
from skep.model.errors import Overloaded
from tests.support.virtual_time import VirtualTimeLoop

POLICY = SweepPolicy(interval_s_min=0.1, interval_s_max=1.0, slack_s=0.2)
QUEUE_ID = 1
OPTIONS = PollOptions(
    queue="hive",
    group="bees",
    partition=None,
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


def now():
    return asyncio.get_running_loop().time()


class Database:
    """Says how long each scope will take to be ready; one it does not know is idle."""

    def __init__(self):
        self.ready_at = {}
        self.sweeps = []
        self.answer = asyncio.Event()
        self.answer.set()
        self.error = None

    async def call(self, statement, group_ids, partition_ids):
        assert statement == SWEEP_CALL
        scopes = list(zip(group_ids, partition_ids, strict=True))
        self.sweeps.append((now(), scopes))
        await self.answer.wait()
        if self.error is not None:
            raise self.error
        numbered = enumerate(scopes, start=1)
        ready_at = [(item, self.ready_at.get(scope)) for item, scope in numbered]
        return [(item, at - now()) for item, at in ready_at if at is not None]


class Engine:
    """Hears the attempts; the test says how they end."""

    def __init__(self):
        self.attempts = []
        self.is_full = False

    @property
    def polls(self):
        return [poll for _, poll in self.attempts]

    def attempt(self, poll):
        if self.is_full:
            raise Overloaded
        poll.tried_at = now()
        self.attempts.append((now(), poll))


class Room:
    """Long polls with what is around them."""

    def __init__(self):
        self.database = Database()
        self.engine = Engine()
        self.long_polls = LongPolls(self.database, POLICY)
        self.long_polls.start(self.engine.attempt)

    def park(self, **options):
        """Let a new poll wait."""
        poll = make_poll(**options)
        self.long_polls.park(poll)
        return poll

    def serve(self, poll):
        poll.deliver(b"messages")
        self.long_polls.end_wait(poll)


class ObservedPoll(Poll):
    """A poll that shows what its client got, and when."""

    def __init__(self, group, partition, deadline):
        self.answers = []
        super().__init__(OPTIONS, deadline=deadline, answer=self._note, refuse=lambda error: None)
        self.group = group
        self.partition = partition
        self.tried_at = now()

    def _note(self, body):
        self.answers.append((now(), body))
        return True


def make_poll(*, group_id=1, partition_id=None, queue_id=QUEUE_ID, wait_s=30.0):
    """Return a poll that has just tried in vain."""
    group = Group("hive", f"group {group_id}", queue_id, group_id)
    partition = (
        None
        if partition_id is None
        else Partition(
            "hive", f"partition {partition_id}", queue_id, partition_id, QueueRules(queue_id)
        )
    )
    return ObservedPoll(group, partition, deadline=now() + wait_s)


async def turns(count=5):
    """Let everything happen that is due at this moment."""
    for _ in range(count):
        await asyncio.sleep(0)


# Waiting


async def test_a_poll_whose_deadline_comes_is_answered_with_nothing():
    room = Room()

    poll = room.park(wait_s=2.5)
    await asyncio.sleep(10)

    assert poll.answers == [(pytest.approx(2.5), None)]
    assert len(room.long_polls) == 0


async def test_a_poll_that_cannot_be_answered_does_not_keep_the_others_waiting(caplog):
    room = Room()
    broken, other, later = room.park(wait_s=2), room.park(wait_s=2), room.park(wait_s=3)

    def fail(body):
        raise RuntimeError("the connection is in a state that should not exist")

    broken.answer = fail
    await asyncio.sleep(10)

    assert [len(poll.answers) for poll in (other, later)] == [1, 1]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_a_poll_that_cannot_try_does_not_keep_the_others_from_trying(caplog):
    room = Room()
    broken, other = room.park(group_id=1), room.park(group_id=2)

    def fail(poll):
        if poll is broken:
            raise RuntimeError("a defect")
        room.engine.attempt(poll)

    room.long_polls.start(fail)
    room.long_polls.wake(QUEUE_ID, 1)
    await turns()

    assert room.engine.polls == [other]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_a_poll_that_was_served_at_its_first_try_does_not_wait():
    room = Room()

    room.serve(make_poll())

    assert len(room.long_polls) == 0


async def test_without_parked_polls_the_database_is_not_asked():
    room = Room()
    room.park(wait_s=0.05)

    await asyncio.sleep(100)

    assert room.database.sweeps == []


# Wake-ups


async def test_a_wake_up_lets_the_oldest_polls_try_at_once():
    room = Room()
    polls = [room.park() for _ in range(3)]
    await asyncio.sleep(0.05)

    room.long_polls.wake(QUEUE_ID, 2)
    await turns()

    assert room.engine.attempts == [(pytest.approx(0.05), poll) for poll in polls[:2]]


async def test_a_wake_up_of_another_queue_concerns_nobody_here():
    room = Room()
    room.park()

    room.long_polls.wake(QUEUE_ID + 1, 1)
    await turns()

    assert room.engine.attempts == []


async def test_a_poll_served_after_a_wake_up_is_gone():
    room = Room()
    poll = room.park()
    room.long_polls.wake(QUEUE_ID, 1)
    await turns()

    room.serve(poll)
    await asyncio.sleep(100)

    assert len(poll.answers) == 1
    assert len(room.long_polls) == 0
    assert room.database.sweeps == []


async def test_a_poll_that_tried_in_vain_waits_again_before_the_others():
    room = Room()
    first, second = room.park(), room.park()
    room.long_polls.wake(QUEUE_ID, 1)
    await turns()

    room.long_polls.park(first)
    room.long_polls.wake(QUEUE_ID, 1)
    await turns()

    assert room.engine.polls == [first, first]
    assert second.answers == []


async def test_a_wake_up_while_a_poll_is_out_leads_to_another_attempt():
    room = Room()
    poll = room.park()
    room.long_polls.wake(QUEUE_ID, 1)
    await turns()

    room.long_polls.wake(QUEUE_ID, 1)
    await turns()
    tried_once = room.engine.polls == [poll]
    room.long_polls.park(poll)
    await turns()

    assert tried_once
    assert room.engine.polls == [poll, poll]


async def test_a_wake_up_between_an_empty_try_and_the_parking_leads_to_an_attempt():
    room = Room()
    poll = make_poll()
    await asyncio.sleep(0.01)

    room.long_polls.wake(QUEUE_ID, 1)
    room.long_polls.park(poll)
    await turns()

    assert room.engine.polls == [poll]


async def test_while_all_polls_come_back_served_more_follow():
    room = Room()
    polls = [room.park() for _ in range(4)]
    room.long_polls.wake(QUEUE_ID, 1)
    await turns()

    room.serve(polls[0])
    await turns()

    assert room.engine.polls == polls[:3]


async def test_polls_that_find_the_engine_full_wait_on():
    room = Room()
    poll = room.park()
    room.engine.is_full = True
    room.long_polls.wake(QUEUE_ID, 1)
    await turns()
    still_waiting = len(room.long_polls)

    room.engine.is_full = False
    room.long_polls.wake(QUEUE_ID, 1)
    await turns()

    assert still_waiting == 1
    assert room.engine.polls == [poll]


# Polls that could not try


async def test_a_poll_that_could_not_try_waits_on():
    room = Room()
    poll = room.park()
    room.long_polls.wake(QUEUE_ID, 1)
    await turns()

    is_kept = room.long_polls.keep_waiting(poll)
    room.long_polls.wake(QUEUE_ID, 1)
    await turns()

    assert is_kept
    assert room.engine.polls == [poll, poll]
    assert poll.answers == []


async def test_a_poll_that_could_not_even_try_once_waits_too():
    room = Room()

    assert room.long_polls.keep_waiting(make_poll())
    assert len(room.long_polls) == 1


async def test_a_poll_whose_time_is_over_does_not_wait_on():
    room = Room()
    poll = make_poll(wait_s=1)

    await asyncio.sleep(1)

    assert not room.long_polls.keep_waiting(poll)


async def test_after_the_stop_no_poll_waits_on():
    room = Room()
    room.long_polls.stop()

    assert not room.long_polls.keep_waiting(make_poll())


async def test_a_poll_that_may_hold_a_claim_tries_again_without_being_woken():
    room = Room()
    poll = room.park()
    room.long_polls.wake(QUEUE_ID, 1)
    await turns()

    poll.undo_claim = lambda poll: None
    room.long_polls.keep_waiting(poll)
    await turns()

    assert room.engine.polls == [poll, poll]


# Sweeps


async def test_one_question_asks_about_all_scopes():
    room = Room()
    for group_id in range(1, 51):
        room.park(group_id=group_id, queue_id=group_id)
        room.park(group_id=group_id, queue_id=group_id)

    await asyncio.sleep(0.15)

    ((asked_at, scopes),) = room.database.sweeps
    assert asked_at == pytest.approx(0.1)
    assert scopes == [(group_id, 0) for group_id in range(1, 51)]


async def test_a_poll_of_one_partition_asks_about_that_partition():
    room = Room()
    room.park(partition_id=77)

    await asyncio.sleep(0.15)

    assert room.database.sweeps[0][1] == [(1, 77)]


async def test_an_idle_scope_is_asked_about_less_and_less_often():
    room = Room()
    room.park(wait_s=1_000)

    await asyncio.sleep(100)

    times = [asked_at for asked_at, _ in room.database.sweeps]
    assert times[:3] == pytest.approx([0.1, 0.2, 0.3])
    assert 100 <= len(times) <= 130


async def test_a_scope_that_is_ready_is_let_try():
    room = Room()
    poll = room.park()
    room.database.ready_at[1, 0] = 0.0

    await asyncio.sleep(0.15)

    assert room.engine.attempts == [(pytest.approx(0.1), poll)]


async def test_the_end_of_a_lease_is_not_missed():
    room = Room()
    poll = room.park()
    room.database.ready_at[1, 0] = 2.34

    await asyncio.sleep(5)

    assert room.engine.attempts == [(pytest.approx(2.34 + ALARM_MARGIN_S, abs=0.001), poll)]


async def test_a_question_that_fails_is_logged_and_asked_again(caplog):
    room = Room()
    poll = room.park()
    room.database.error = NotExecuted("away")
    await asyncio.sleep(0.15)

    room.database.error = None
    room.database.ready_at[1, 0] = 0.0
    await asyncio.sleep(1)

    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert room.engine.polls == [poll]


async def test_while_a_question_is_unanswered_no_second_one_is_asked():
    room = Room()
    room.park(wait_s=100)
    room.database.answer.clear()

    await asyncio.sleep(20)
    asked_meanwhile = len(room.database.sweeps)
    room.database.answer.set()
    await asyncio.sleep(1)

    assert asked_meanwhile == 1
    assert len(room.database.sweeps) > 1


async def test_while_a_question_is_unanswered_deadlines_and_wake_ups_still_count():
    room = Room()
    hasty, patient = room.park(wait_s=5), room.park(group_id=2, wait_s=100)
    room.database.answer.clear()
    await asyncio.sleep(7)

    room.long_polls.wake(QUEUE_ID, 1)
    await turns()

    assert hasty.answers == [(pytest.approx(5), None)]
    assert room.engine.polls == [patient]


# Leaving


async def test_a_parked_poll_that_leaves_is_neither_tried_nor_answered():
    room = Room()
    poll = room.park()

    room.long_polls.leave(poll)
    room.long_polls.wake(QUEUE_ID, 1)
    await asyncio.sleep(100)

    assert room.engine.attempts == []
    assert poll.answers == []


async def test_a_poll_that_leaves_while_it_is_out_does_not_keep_the_others_waiting():
    room = Room()
    gone, other = room.park(), room.park()
    room.long_polls.wake(QUEUE_ID, 1)
    await turns()

    room.long_polls.leave(gone)
    room.long_polls.wake(QUEUE_ID, 1)
    await turns()

    assert room.engine.polls == [gone, other]
    assert gone.answers == []


async def test_a_poll_that_left_while_out_may_still_come_back():
    # Its claim cannot be stopped: the executor reports it although the client is gone.
    room = Room()
    gone, other = room.park(), room.park()
    room.long_polls.wake(QUEUE_ID, 2)
    await turns()

    room.long_polls.leave(gone)
    room.long_polls.end_wait(gone)
    room.long_polls.park(other)
    room.long_polls.wake(QUEUE_ID, 1)
    await turns()

    assert room.engine.polls == [gone, other, other]
    assert len(room.long_polls) == 0


async def test_leaving_without_having_waited_does_nothing():
    room = Room()

    room.long_polls.leave(make_poll())

    assert len(room.long_polls) == 0


# Stopping


async def test_the_stop_answers_all_that_wait_and_all_that_are_out():
    room = Room()
    out, parked = room.park(), room.park()
    room.long_polls.wake(QUEUE_ID, 1)
    await turns()

    room.long_polls.stop()

    assert [poll.answers for poll in (out, parked)] == [[(0.0, None)]] * 2
    assert len(room.long_polls) == 0


async def test_after_the_stop_a_poll_that_finds_nothing_is_answered_at_once():
    room = Room()
    room.long_polls.stop()

    poll = room.park()

    assert poll.answers == [(0.0, None)]


async def test_a_poll_answered_by_the_stop_may_come_back_from_its_attempt():
    room = Room()
    poll = room.park()
    room.long_polls.wake(QUEUE_ID, 1)
    await turns()
    room.long_polls.stop()

    room.long_polls.end_wait(poll)

    assert len(poll.answers) == 1


async def test_after_the_stop_nobody_is_asked_and_nobody_tries():
    room = Room()
    room.park()
    room.database.answer.clear()
    await asyncio.sleep(0.15)

    room.long_polls.stop()
    room.long_polls.wake(QUEUE_ID, 1)
    await asyncio.sleep(100)

    assert len(room.database.sweeps) == 1
    assert room.engine.attempts == []
