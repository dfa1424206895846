"""Admission: who may push into a queue with a limit, and when that is found out."""

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.broker.directory import Partition
from skep.broker.push.rules import QueueRules
from skep.broker.push.size_limit import (
    BACKLOG_CALL,
    DROP_CALL,
    QUEUES_MAX,
    REFUSE_S,
    RENEW_S,
    TRUST_S,
    AdmissionGate,
    SizeBook,
    SizeLimit,
    queue_full,
)
from skep.db.access.errors import NotExecuted
from skep.model.errors import Overloaded, QueueFull
from skep.server.problems import problem_of
from tests.support.virtual_time import VirtualTimeLoop

TEN = SizeLimit(10)
TEN_NEWEST = SizeLimit(10, "drop_oldest")


@pytest.fixture
def arun():
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        yield runner.run


def measured(book, waiting, *, now=0.0, duration_s=0.0, queue_id=1):
    book.begin_measurement(queue_id)
    book.end_measurement(queue_id, waiting, began_at=now - duration_s, now=now)


@pytest.fixture
def book():
    return SizeBook()


def test_nothing_is_known_of_a_queue_before_it_was_measured(book):
    assert book.admit(1, 1, TEN, 0.0) is None


def test_what_fits_is_admitted_and_counted(book):
    measured(book, 7)

    assert book.admit(1, 2, TEN, 0.0) is True
    assert book.admit(1, 1, TEN, 0.0) is True
    assert book.admit(1, 1, TEN, 0.0) is False


def test_a_refused_batch_leaves_room_for_a_smaller_one(book):
    measured(book, 7)

    assert book.admit(1, 4, TEN, 0.0) is False
    assert book.admit(1, 3, TEN, 0.0) is True


def test_a_batch_larger_than_the_limit_is_admitted_by_an_empty_queue_only(book):
    measured(book, 0)
    assert book.admit(1, 11, TEN, 0.0) is True

    measured(book, 1)
    assert book.admit(1, 11, TEN, 0.0) is False


def test_a_queue_with_room_is_trusted_for_a_second_and_a_full_one_for_a_moment(book):
    measured(book, 5)
    assert book.admit(1, 1, TEN, TRUST_S) is True
    assert book.admit(1, 1, TEN, TRUST_S + 0.01) is None

    measured(book, 10)
    assert book.admit(1, 1, TEN, REFUSE_S) is False
    assert book.admit(1, 1, TEN, REFUSE_S + 0.01) is None


def test_what_is_admitted_during_a_measurement_is_counted_on_top_of_it(book):
    measured(book, 0)
    book.admit(1, 3, TEN, 0.0)
    book.begin_measurement(1)
    book.admit(1, 4, TEN, 0.0)

    book.end_measurement(1, 3, began_at=0.0, now=0.0)

    assert book.admit(1, 3, TEN, 0.0) is True
    assert book.admit(1, 1, TEN, 0.0) is False


def test_a_measurement_that_failed_leaves_what_was_known(book):
    measured(book, 9)
    book.begin_measurement(1)
    book.end_measurement(1, None, began_at=0.0, now=0.5)

    assert book.admit(1, 1, TEN, 0.5) is True
    assert book.is_renewal_due(1, 0.5)


def test_a_measurement_is_renewed_when_it_is_old_and_none_is_under_way(book):
    measured(book, 0)

    assert not book.is_renewal_due(1, RENEW_S - 0.01)
    assert book.is_renewal_due(1, RENEW_S)
    book.begin_measurement(1)
    assert not book.is_renewal_due(1, RENEW_S)


def test_a_queue_that_takes_long_to_measure_is_measured_rarely(book):
    measured(book, 10, now=0.0, duration_s=0.5)

    assert not book.is_renewal_due(1, 4.9)
    assert book.is_renewal_due(1, 5.0)
    assert book.admit(1, 1, TEN, 4.9) is False


def test_a_queue_that_drops_its_oldest_is_never_full(book):
    measured(book, 10)

    assert book.admit(1, 4, TEN_NEWEST, 0.0) is True
    assert book.excess(1, TEN_NEWEST) == 4
    book.note_dropped(1, 3)
    assert book.excess(1, TEN_NEWEST) == 1
    book.note_dropped(1, 3)
    assert book.excess(1, TEN_NEWEST) == 0


def test_queues_do_not_count_for_each_other(book):
    measured(book, 10)
    measured(book, 0, queue_id=2)

    assert book.admit(2, 1, TEN, 0.0) is True


def test_the_book_does_not_grow_for_ever(book):
    measured(book, 0)
    for queue_id in range(2, QUEUES_MAX + 2):
        measured(book, 0, queue_id=queue_id)

    assert book.admit(1, 1, TEN, 0.0) is None
    assert book.admit(QUEUES_MAX, 1, TEN, 0.0) is True


class Database:
    """Queues by the number of messages in them; measuring takes a moment."""

    def __init__(self, **options):
        self.waiting = 0
        self.calls = []
        self.duration_s = 0.001
        self.error = None
        self.droppable = 1_000_000
        vars(self).update(options)

    async def call(self, statement, queue_id, bound):
        self.calls.append((statement, bound))
        if self.error is not None:
            raise self.error
        if statement == BACKLOG_CALL:
            waiting = self.waiting
            await asyncio.sleep(self.duration_s)
            return [(min(waiting, bound),)]
        assert statement == DROP_CALL
        dropped = min(bound, self.droppable)
        self.waiting -= dropped
        self.droppable -= dropped
        await asyncio.sleep(self.duration_s)
        return [(dropped, dropped)]

    def count(self, statement):
        return sum(made == statement for made, _ in self.calls)


def open_gate(database):
    return AdmissionGate(database, dropper=database, now=asyncio.get_running_loop().time)


async def test_the_first_push_waits_for_a_measurement_that_all_share():
    database = Database(waiting=8)
    gate = open_gate(database)

    assert gate.admit(1, 1, TEN) is None
    verdicts = await asyncio.gather(*(gate.decide(1, 1, TEN) for _ in range(5)))

    assert verdicts == [True] * 2 + [False] * 3
    assert database.calls == [(BACKLOG_CALL, 10)]


async def test_pushes_that_come_all_the_time_are_measured_five_times_a_second():
    database = Database()
    gate = open_gate(database)
    limit = SizeLimit(1_000_000)
    await gate.decide(1, 1, limit)

    for _ in range(1000):
        await asyncio.sleep(0.002)
        assert gate.admit(1, 1, limit) is True

    assert 9 <= database.count(BACKLOG_CALL) <= 11


async def test_consumers_that_make_room_are_noticed_at_once():
    database = Database(waiting=10)
    gate = open_gate(database)
    assert await gate.decide(1, 1, TEN) is False

    database.waiting = 3
    await asyncio.sleep(REFUSE_S * 1.5)

    assert await gate.decide(1, 1, TEN) is True


async def test_a_measurement_that_fails_fails_those_who_wait_for_it(caplog):
    caplog.set_level(logging.WARNING)
    gate = open_gate(Database(error=NotExecuted()))

    with pytest.raises(NotExecuted):
        await gate.decide(1, 1, TEN)

    assert "cannot measure queue" in caplog.text


async def test_a_queue_that_drops_its_oldest_makes_room_for_exactly_what_came():
    database = Database(waiting=10)
    gate = open_gate(database)
    for _ in range(4):
        assert await gate.decide(1, 3, TEN_NEWEST) is True
        database.waiting += 3

    await gate.settle()

    assert database.waiting == 10


async def test_dropping_ends_when_there_is_nothing_to_drop():
    database = Database(waiting=10, droppable=1)
    gate = open_gate(database)
    await gate.decide(1, 5, TEN_NEWEST)

    await gate.settle()

    assert database.count(DROP_CALL) == 2


async def test_a_drop_that_fails_is_logged_and_tried_with_the_next_push(caplog):
    caplog.set_level(logging.WARNING)
    database = Database(waiting=10)
    gate = open_gate(database)
    await gate.decide(1, 1, TEN_NEWEST)
    database.error = NotExecuted()
    await gate.settle()
    database.error = None

    gate.admit(1, 1, TEN_NEWEST)
    await gate.settle()

    assert "cannot drop the oldest" in caplog.text
    assert database.waiting == 8


def partition_of(queue_id, limit, name="p"):
    rules = QueueRules(queue_id, size_limit=limit)
    return Partition(f"hive {queue_id}", name, queue_id, queue_id, rules)


async def test_a_request_that_one_queue_refuses_is_counted_for_none():
    gate = open_gate(Database(waiting=8))
    sizes = {partition_of(1, TEN): 2, partition_of(2, SizeLimit(8)): 1}

    with pytest.raises(QueueFull, match="hive 2"):
        await gate.require_room(sizes)

    assert gate.admit(1, 2, TEN) is True


async def test_the_partitions_of_a_request_share_the_room_of_their_queue():
    gate = open_gate(Database(waiting=8))
    sizes = {partition_of(1, TEN, "a"): 1, partition_of(1, TEN, "b"): 1}

    await gate.require_room(sizes)

    with pytest.raises(QueueFull):
        await gate.require_room(sizes)


async def test_a_queue_that_was_found_full_stays_so_while_others_are_measured():
    database = Database(waiting=8)
    gate = open_gate(database)
    await gate.decide(1, 1, SizeLimit(8))
    database.duration_s = 5 * REFUSE_S

    with pytest.raises(QueueFull, match="hive 1"):
        await gate.require_room({partition_of(1, SizeLimit(8)): 1, partition_of(2, TEN): 1})


async def test_room_that_another_request_took_meanwhile_is_not_given_twice():
    gate = open_gate(Database(waiting=8))
    one, other = partition_of(1, TEN), partition_of(2, TEN)

    outcomes = await asyncio.gather(
        gate.require_room({one: 2, other: 2}), gate.decide(1, 2, TEN), return_exceptions=True
    )

    assert sum(outcome is None or outcome is True for outcome in outcomes) == 1


def test_a_full_queue_is_answered_429_with_the_time_to_wait():
    error = queue_full("hive", 7)

    answer = problem_of(error)

    assert isinstance(error, QueueFull)
    assert isinstance(error, Overloaded)
    assert answer.status == 429
    assert answer.headers == b"retry-after: 1\r\n"
    assert b'"queue hive is full"' in answer.body
    assert b'"queueDepth":7' in answer.body


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["push", "push", "consume", "pause"]), st.integers(1, 10), st.booleans()
        ),
        max_size=60,
    )
)
def test_one_process_alone_never_exceeds_the_limit(steps):
    async def run():
        database = Database()
        gate = open_gate(database)
        for step, amount, is_hasty in steps:
            if step == "pause":
                await asyncio.sleep(amount / 20)
            elif step == "consume":
                database.waiting = max(0, database.waiting - amount)
            else:
                decide = gate.admit if is_hasty else gate.decide
                verdict = decide(1, amount, TEN)
                if not is_hasty:
                    verdict = await verdict
                if verdict is True:
                    database.waiting += amount
            assert database.waiting <= TEN.max_size
        await asyncio.sleep(1)
        is_full = await gate.decide(1, 1, TEN) is False
        assert is_full == (database.waiting == TEN.max_size)
        await gate.settle()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run())
