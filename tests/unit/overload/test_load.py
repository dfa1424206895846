"""Who gives way when there is not room for all: shares, estimates and the line, against a model."""

from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from skep.app.parts.engine import policies
from skep.broker.overload.shares import (
    CEILINGS,
    RETRY_AFTER_S_MAX,
    PartitionOrder,
    WaitingLine,
    engine_shares,
    estimated_wait_s,
    retry_after_s,
)
from skep.engine.fusion import FusionCore
from skep.engine.limiter import StaticLimiter
from skep.engine.policy import BatchPolicy
from skep.model.errors import Overloaded
from skep.model.priorities import Priority

CAPACITY = 1_000


def test_the_priorities_are_those_of_the_contract():
    assert {each.name.lower(): int(each) for each in Priority} == {
        "system_event": 1,
        "batch_ack": 3,
        "ack": 4,
        "push": 5,
        "pop": 6,
        "background": 8,
        "analytics": 10,
    }


def test_what_matters_less_has_the_lower_ceiling():
    assert list(CEILINGS) == sorted(Priority)
    assert all(more >= less for more, less in pairwise(CEILINGS.values()))
    assert CEILINGS[Priority.ACK] > CEILINGS[Priority.PUSH] > CEILINGS[Priority.POP]


def test_every_operation_of_the_engine_has_a_share():
    shares = engine_shares(push=0.5, pop=0.25, ack=0.5)

    assert shares.keys() == policies(4).keys()
    assert (shares["push"].own, shares["pop"].own, shares["ack"].own) == (0.5, 0.25, 0.5)


def core_with(**shares):
    policy = {"preferred_weight": 1, "hold_s_max": 0, "weight_max": CAPACITY, "concurrency_max": 1}
    operations = {
        name: (BatchPolicy(own_share=own, ceiling=ceiling, **policy), StaticLimiter(1))
        for name, (own, ceiling) in shares.items()
    }
    return FusionCore(operations, slots=1, weight_capacity=CAPACITY)


def fill(core, operation, weight):
    return core.offer(operation, None, weight, None, 0.0)


def test_a_kind_does_not_crowd_out_the_others():
    core = core_with(push=(0.5, 0.9), pop=(0.25, 0.8))
    fill(core, "push", 500)

    with pytest.raises(Overloaded):
        fill(core, "push", 1)
    fill(core, "pop", 250)
    with pytest.raises(Overloaded):
        fill(core, "pop", 1)

    assert core.load == 0.75


def test_what_matters_less_is_turned_away_first():
    core = core_with(push=(1.0, 0.9), pop=(1.0, 0.8), ack=(1.0, 1.0))
    fill(core, "ack", 800)

    with pytest.raises(Overloaded):
        fill(core, "pop", 1)
    fill(core, "push", 100)
    with pytest.raises(Overloaded):
        fill(core, "push", 1)
    fill(core, "ack", 100)


def test_a_unit_heavier_than_its_share_is_let_in_alone():
    core = core_with(push=(0.1, 0.9), ack=(1.0, 1.0))
    fill(core, "ack", 10)

    heavy = fill(core, "push", 800)
    with pytest.raises(Overloaded):
        fill(core, "push", 1)
    core.withdraw(heavy)

    fill(core, "push", 100)


def test_room_comes_back_with_the_calls():
    core = core_with(push=(0.5, 0.9))
    fill(core, "push", 500)
    (call,) = core.take_ready(0.0)
    with pytest.raises(Overloaded):
        fill(core, "push", 1)

    core.settle(call, 1.0, succeeded=True)

    fill(core, "push", 500)


@given(waiting=st.integers(0, 10**7), pace_s=st.none() | st.floats(0, 1e6))
def test_retry_after_is_a_whole_number_of_seconds_within_bounds(waiting, pace_s):
    assert 1 <= retry_after_s(waiting, pace_s) <= RETRY_AFTER_S_MAX
    assert estimated_wait_s(waiting, pace_s) >= 0


class LineMachine(RuleBasedStateMachine):
    """A line beside a plain list that says the same."""

    WEIGHT_MAX = 20
    KEYS = ("a", "b", Priority.PUSH)

    def __init__(self):
        super().__init__()
        self.line = WaitingLine(self.WEIGHT_MAX)
        self.names = count()
        self.model = []
        self.now = 0.0

    @rule(key=st.sampled_from(KEYS), weight=st.integers(1, 12), wait_s=st.integers(0, 10))
    def join(self, key, weight, wait_s):
        name = next(self.names)
        place = self.line.join(key, name, weight=weight, deadline=self.now + wait_s)
        total = sum(other.weight for other in self.model)
        assert (place is None) == bool(self.model and total + weight > self.WEIGHT_MAX)
        if place is not None:
            assert (place.entry, place.key) == (name, key)
            self.model.append(place)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def leave(self, data):
        place = data.draw(st.sampled_from(self.model))
        self.line.leave(place)
        self.model.remove(place)

    @rule(seconds=st.integers(0, 5))
    def let_time_pass(self, seconds):
        self.now += seconds
        expired = self.line.take_expired(self.now)
        late = [place for place in self.model if place.deadline <= self.now]
        assert sorted(expired, key=id) == sorted(late, key=id)
        assert [each.deadline for each in expired] == sorted(each.deadline for each in late)
        self.model = [place for place in self.model if place not in late]

    @invariant()
    def says_the_same(self):
        assert len(self.line) == len(self.model)
        assert self.line.weight == sum(place.weight for place in self.model)
        deadlines = [place.deadline for place in self.model]
        assert self.line.next_deadline() == (min(deadlines) if deadlines else None)
        for key in self.KEYS:
            waiting = [place for place in self.model if place.key == key]
            assert self.line.has(key) == bool(waiting)
            assert self.line.places(key) == waiting
        assert set(self.line.waited_for()) == {place.key for place in self.model}


TestLine = LineMachine.TestCase


class PartitionOrderMachine(RuleBasedStateMachine):
    """Requests on their way to partitions of operations; each must get them as they came."""

    PARTITIONS = ("x", "y", "z")

    def __init__(self):
        super().__init__()
        self.order = PartitionOrder()
        self.names = count()
        self.partitions = {}
        self.arrived = []
        self.queued = []
        self.sent = []
        self.unanswered = []
        self.under_way = set()

    @rule(partitions=st.lists(st.sampled_from(PARTITIONS), min_size=1, unique=True))
    def arrive(self, partitions):
        request = f"request {next(self.names)}"
        self.partitions[request] = partitions
        self.arrived.append(request)
        if not self.try_to_send(request):
            self.order.queue(request, partitions)
            self.queued.append(request)

    @rule(partition=st.sampled_from(PARTITIONS))
    def push_begins_or_ends(self, partition):
        self.under_way ^= {partition}

    @precondition(lambda self: self.queued)
    @rule(data=st.data())
    def try_again(self, data):
        request = data.draw(st.sampled_from(self.queued))
        if self.try_to_send(request):
            self.queued.remove(request)

    def try_to_send(self, request):
        partitions = self.partitions[request]
        if self.under_way & set(partitions) or not self.order.is_first(request, partitions):
            return False
        if request in self.queued:
            self.order.leave(request, partitions)
        self.order.send(partitions)
        self.sent.append(request)
        self.unanswered.append(request)
        return True

    @precondition(lambda self: self.queued)
    @rule(data=st.data())
    def give_up(self, data):
        request = data.draw(st.sampled_from(self.queued))
        self.order.leave(request, self.partitions[request])
        self.queued.remove(request)
        self.arrived.remove(request)

    @precondition(lambda self: self.unanswered)
    @rule(data=st.data())
    def answer(self, data):
        request = data.draw(st.sampled_from(self.unanswered))
        self.unanswered.remove(request)
        self.order.answered(self.partitions[request])

    @invariant()
    def partitions_get_requests_in_the_order_they_came(self):
        for partition in self.PARTITIONS:
            came = [each for each in self.arrived if partition in self.partitions[each]]
            sent = [each for each in self.sent if partition in self.partitions[each]]
            assert sent == came[: len(sent)]

    @invariant()
    def partitions_are_held_while_somebody_is_on_the_way_into_them(self):
        pending = self.queued + self.unanswered
        for partition in self.PARTITIONS:
            assert self.order.holds([partition]) == any(
                partition in self.partitions[each] for each in pending
            )
        assert bool(self.order) == bool(pending)


TestPartitionOrder = PartitionOrderMachine.TestCase


def test_nobody_leaves_twice():
    line = WaitingLine(10)
    place = line.join("a", "x", weight=1, deadline=1.0)
    line.leave(place)

    with pytest.raises(AssertionError):
        line.leave(place)


def test_places_that_were_left_do_not_pile_up():
    line = WaitingLine(10)
    for number in range(1_000):
        line.leave(line.join("a", number, weight=1, deadline=1_000.0 + number))

    assert len(line._deadlines) < 100
