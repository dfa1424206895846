"""Sequencing: when a process looks for scheduled messages that are due."""

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.broker.scheduled.sequence import (
    IDLE_S,
    PAUSE_S,
    RECOVERY_S,
    SEQUENCE_CALL,
    YIELD_S,
    ScheduledSequencer,
    SequencePlan,
)
from skep.db.access.errors import NotExecuted
from tests.support.virtual_time import VirtualTimeLoop

LATENESS_S_MAX = 0.05


@pytest.fixture
def arun():
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        yield runner.run


def now():
    return asyncio.get_running_loop().time()


class Database:
    """Holds messages by the time they are due, and moves at most `carries` in a call."""

    def __init__(self, carries=1000):
        self.due = []
        self.moved = []
        self.looks = []
        self.carries = carries
        self.is_busy = False
        self.error = None

    async def call(self, statement, *_bounds):
        assert statement == SEQUENCE_CALL
        self.looks.append(now())
        if self.error is not None:
            raise self.error
        taken = [] if self.is_busy else sorted(at for at in self.due if at <= now())
        for at in taken[: self.carries]:
            self.due.remove(at)
            self.moved.append((at, now()))
        next_s = min(self.due) - now() if self.due else None
        count = len(taken[: self.carries])
        return [
            ([7], [count], count, self.is_busy, next_s)
            if count
            else (None, None, 0, self.is_busy, next_s)
        ]


class Announcements(list):
    def announce(self, queue_id, partition_count):
        self.append((queue_id, partition_count))


async def run_for(seconds, database, *events):
    """Run a sequencer; events are (time, what to do with it)."""
    announcements = Announcements()
    sequencer = ScheduledSequencer(database, announcements)
    sequencer.start()
    for at, event in sorted(events, key=lambda event: event[0]):
        await asyncio.sleep(at - now())
        event(sequencer)
    await asyncio.sleep(seconds - now())
    await sequencer.stop()
    return announcements


def schedule(database, at):
    """Let this process schedule a message."""

    def event(sequencer):
        database.due.append(at)
        sequencer.hear_of_due(at - now())

    return event


async def test_an_idle_process_asks_rarely():
    database = Database()

    await run_for(60, database)

    assert len(database.looks) <= 60 / IDLE_S + 1


async def test_a_message_left_by_a_dead_process_is_found_at_the_start():
    database = Database()
    database.due = [-5.0]

    assert await run_for(1, database) == [(7, 1)]


async def test_a_message_is_moved_when_it_is_due_and_not_before():
    database = Database()

    await run_for(20, database, (0.5, schedule(database, 7.3)))

    [(at, moved_at)] = database.moved
    assert 0 <= moved_at - at <= LATENESS_S_MAX


async def test_an_earlier_message_is_not_missed_while_a_later_one_is_waited_for():
    database = Database()

    await run_for(20, database, (0.5, schedule(database, 15.0)), (0.6, schedule(database, 0.9)))

    assert all(moved_at - at <= LATENESS_S_MAX for at, moved_at in database.moved)
    assert len(database.moved) == 2


async def test_a_message_that_another_process_scheduled_is_moved_within_the_idle_time():
    database = Database()

    await run_for(20, database, (5.01, lambda _: database.due.append(5.02)))

    [(at, moved_at)] = database.moved
    assert moved_at - at <= IDLE_S + PAUSE_S


async def test_more_than_a_call_carries_is_moved_without_a_pause():
    database = Database(carries=10)
    database.due = [0.0] * 95

    await run_for(0.001, database)

    assert len(database.moved) == 95
    assert len(database.looks) == 10


async def test_messages_due_one_after_the_other_travel_together():
    database = Database()
    database.due = [number / 1000 for number in range(1000)]

    await run_for(2, database)

    assert len(database.moved) == 1000
    assert max(moved_at - at for at, moved_at in database.moved) <= LATENESS_S_MAX
    assert len(database.looks) <= 1 / PAUSE_S + 3


async def test_another_process_at_work_is_left_alone_but_not_for_long():
    database = Database()
    database.due = [0.0]
    database.is_busy = True

    await run_for(1, database, (0.5, lambda _: setattr(database, "is_busy", False)))

    assert len(database.looks) <= 0.5 / YIELD_S + 3
    [(_, moved_at)] = database.moved
    assert moved_at <= 0.5 + LATENESS_S_MAX


async def test_a_message_in_other_hands_does_not_make_the_process_spin():
    database = Database(carries=0)
    database.due = [0.0]

    await run_for(1, database)

    assert len(database.looks) <= 1 / YIELD_S + 2


async def test_a_database_in_trouble_is_asked_again_later(caplog):
    caplog.set_level(logging.WARNING)
    database = Database()
    database.due = [0.0]
    database.error = NotExecuted()

    await run_for(5, database, (1.5, lambda _: setattr(database, "error", None)))

    assert database.looks[:3] == [0, RECOVERY_S, 2 * RECOVERY_S]
    assert len(database.moved) == 1
    assert "could not be moved" in caplog.text


async def test_a_stopped_sequencer_asks_no_more():
    database = Database()
    sequencer = ScheduledSequencer(database, Announcements())
    await sequencer.stop()
    sequencer.start()
    await asyncio.sleep(1)
    await sequencer.stop()
    before = len(database.looks)

    await asyncio.sleep(60)

    assert len(database.looks) == before


async def test_a_call_that_does_not_end_is_given_up_when_stopping():
    class Hanging(Database):
        async def call(self, statement, *bounds):
            await asyncio.Event().wait()

    sequencer = ScheduledSequencer(Hanging(), Announcements())
    sequencer.start()
    await asyncio.sleep(1)

    await sequencer.stop()

    assert now() < 5


@given(
    times=st.lists(st.floats(0, 30), max_size=20),
    own=st.lists(st.booleans(), min_size=20, max_size=20),
    carries=st.integers(1, 3),
)
def test_whatever_is_scheduled_arrives_in_time(times, own, carries):
    async def run():
        database = Database(carries)
        events = []
        for at, is_own in zip(times, own, strict=False):
            heard_at = max(0.0, at - 3)
            event = schedule(database, at) if is_own else _append(database, at)
            events.append((heard_at, event))
        await run_for(40, database, *events)
        return database

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        database = runner.run(run())

    assert sorted(at for at, _ in database.moved) == sorted(times)
    # Heard of three seconds ahead: by its own doing, or by looking every two.
    late = [moved_at - at for at, moved_at in database.moved if at >= 3]
    assert max(late, default=0) <= LATENESS_S_MAX


def _append(database, at):
    return lambda _: database.due.append(at)


def test_hearing_of_something_later_changes_nothing():
    plan = SequencePlan(0.0)
    plan.begin()
    plan.polled(0.0, moved=0, is_busy=False, next_s=1.0)

    assert plan.hear_of_due(0.5)
    assert not plan.hear_of_due(0.7)
    assert plan.next_poll_at() == 0.5


def test_what_is_heard_of_during_a_look_is_not_forgotten():
    plan = SequencePlan(0.0)
    plan.begin()
    plan.hear_of_due(0.3)

    plan.polled(0.1, moved=0, is_busy=False, next_s=None)

    assert plan.next_poll_at() == 0.3
