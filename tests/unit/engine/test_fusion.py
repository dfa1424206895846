"""The fusion core keeps its promises: order, exclusion, fairness, bounds and exact timing."""

import weakref
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from skep.engine.fusion import STALLED_AFTER_S, FusionCore
from skep.engine.limiter import StaticLimiter, VegasLimiter
from skep.engine.policy import BatchPolicy
from skep.model.errors import Overloaded


def policy_with(**changes):
    numbers = {"preferred_weight": 10, "hold_s_max": 0.5, "weight_max": 100, "concurrency_max": 4}
    return BatchPolicy(**(numbers | changes))


def core_of(*, slots=8, weight_capacity=1_000, **policies):
    operations = {name: (policy, StaticLimiter(8)) for name, policy in policies.items()}
    return FusionCore(operations, slots=slots, weight_capacity=weight_capacity)


def offer_all(core, partitions, *, operation="push", weight=1, now=0.0):
    """Offer one unit for each partition; the work is partition and running number, like `a1`."""
    seen = Counter()
    units = []
    for partition in partitions:
        seen[partition] += 1
        units.append(core.offer(operation, partition, weight, f"{partition}{seen[partition]}", now))
    return units


def take_one(core, now=0.0):
    (call,) = core.take_ready(now)
    return call


def occupy(core, partition="busy", *, operation="push", weight=1):
    """Have a call in flight, so that the operation is not idle."""
    core.offer(operation, partition, weight, None, 0.0)
    return take_one(core)


def batch(calls):
    return [" ".join(unit.work for unit in call.units) for call in calls]


# When a call leaves


def test_an_idle_operation_sends_whatever_waits_at_once():
    core = core_of(push=policy_with(preferred_weight=100))
    offer_all(core, "ab")

    assert core.next_due(0.0) == 0.0
    assert batch(core.take_ready(0.0)) == ["a1 b1"]
    assert core.next_due(0.0) is None


def test_a_call_tells_what_it_carries():
    core = core_of(push=policy_with())
    core.offer("push", "a", 3, "eggs", 1.0)
    core.offer("push", "b", 4, "milk", 1.5)

    call = take_one(core, 2.0)

    assert (call.operation, call.weight, call.started_at) == ("push", 7, 2.0)
    assert [(unit.partition, unit.weight, unit.work, unit.arrived_at) for unit in call.units] == [
        ("a", 3, "eggs", 1.0),
        ("b", 4, "milk", 1.5),
    ]


def test_another_call_waits_for_the_preferred_weight():
    core = core_of(push=policy_with(preferred_weight=3))
    occupy(core)
    offer_all(core, "ab")
    assert core.take_ready(0.0) == []

    offer_all(core, "c")

    assert core.next_due(0.0) == 0.0
    assert batch(core.take_ready(0.0)) == ["a1 b1 c1"]


def test_another_call_leaves_when_the_oldest_unit_was_held_long_enough():
    core = core_of(push=policy_with(hold_s_max=0.5))
    occupy(core)
    offer_all(core, "a", now=1.0)
    offer_all(core, "b", now=1.25)

    assert core.next_due(1.25) == 1.5
    assert core.take_ready(1.4) == []
    assert batch(core.take_ready(1.5)) == ["a1 b1"]


def test_weight_in_a_busy_partition_does_not_call_for_another_call():
    core = core_of(push=policy_with(preferred_weight=3))
    occupy(core, "a")

    offer_all(core, "aaaaa")

    assert core.take_ready(9.0) == []
    assert core.next_due(9.0) is None


def test_the_hold_of_a_released_partition_counts_from_its_arrival():
    core = core_of(push=policy_with(hold_s_max=0.5))
    holding_a = occupy(core, "a")
    occupy(core, "other", weight=10)
    offer_all(core, "a", now=1.0)
    offer_all(core, "b", now=1.2)
    assert core.next_due(1.2) == 1.7

    core.settle(holding_a, 1.3, succeeded=True)

    assert core.next_due(1.3) == 1.5


def test_a_withdrawn_unit_does_not_set_the_hold():
    core = core_of(push=policy_with(hold_s_max=0.5))
    occupy(core)
    (first,) = offer_all(core, "a", now=1.0)
    offer_all(core, "a", now=1.1)
    offer_all(core, "b", now=1.2)

    core.withdraw(first)

    assert core.next_due(1.2) == 1.6


def test_withdrawn_weight_does_not_call_for_another_call():
    core = core_of(push=policy_with(preferred_weight=3))
    occupy(core)
    first, *_ = offer_all(core, "abc")

    core.withdraw(first)

    assert core.take_ready(0.0) == []


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(200)))
def test_the_hold_stays_exact_while_many_come_and_go(arrivals):
    core = core_of(push=policy_with(hold_s_max=0.5, preferred_weight=1_000))
    occupy(core)
    waiting = [core.offer("push", at, 1, None, float(at)) for at in arrivals]

    while waiting:
        assert core.next_due(0.0) == min(unit.arrived_at for unit in waiting) + 0.5
        core.withdraw(waiting.pop())


def test_the_limiter_caps_calls_in_flight():
    limiter = StaticLimiter(2)
    policy = policy_with(preferred_weight=1, weight_max=1, concurrency_max=4)
    core = FusionCore({"push": (policy, limiter)}, slots=8, weight_capacity=100)
    offer_all(core, "abcd")

    assert batch(core.take_ready(0.0)) == ["a1", "b1"]
    assert core.take_ready(0.5) == []
    assert core.next_due(0.5) == STALLED_AFTER_S


def test_a_call_that_is_stuck_does_not_hold_up_the_others():
    limiter = VegasLimiter(3)
    policy = policy_with(preferred_weight=1, weight_max=1, concurrency_max=3)
    core = FusionCore({"push": (policy, limiter)}, slots=8, weight_capacity=100)
    occupy(core, "held")
    offer_all(core, "abcde")

    assert core.take_ready(0.5) == []
    now = STALLED_AFTER_S
    for work in ("a1", "b1", "c1"):  # one beside it at a time, until the floor is measured
        (call,) = core.take_ready(now)
        assert batch([call]) == [work]
        now += 0.01
        core.settle(call, now, succeeded=True)

    assert batch(core.take_ready(now)) == ["d1", "e1"]
    assert limiter.limit == 2


def test_calls_that_are_stuck_are_no_more_than_the_policy_allows():
    policy = policy_with(preferred_weight=1, weight_max=1, concurrency_max=2)
    core = FusionCore({"push": (policy, StaticLimiter(1))}, slots=8, weight_capacity=100)
    occupy(core, "a")
    offer_all(core, "bc")

    assert batch(core.take_ready(60.0)) == ["b1"]
    assert core.next_due(120.0) is None


def test_the_policy_caps_calls_in_flight():
    core = core_of(push=policy_with(preferred_weight=1, weight_max=1, concurrency_max=3))
    offer_all(core, "abcd")

    assert batch(core.take_ready(0.0)) == ["a1", "b1", "c1"]


def test_the_limiter_learns_how_a_call_went():
    class Recorder(StaticLimiter):
        def record(self, rtt_s, in_flight, now, succeeded, *, weight=1):
            self.seen = (rtt_s, in_flight, now, succeeded, weight)

    limiter = Recorder(8)
    core = FusionCore({"push": (policy_with(), limiter)}, slots=8, weight_capacity=100)
    call = occupy(core, "a", weight=12)
    occupy(core, "b", weight=10)

    core.settle(call, 0.25, succeeded=False)

    assert limiter.seen == (0.25, 2, 0.25, False, 12)


# Partitions


def test_a_partition_in_flight_gathers_and_leaves_in_order_when_released():
    core = core_of(push=policy_with())
    call = occupy(core, "a")
    offer_all(core, "aaa")
    assert core.take_ready(9.0) == []

    core.settle(call, 9.0, succeeded=True)

    assert batch(core.take_ready(9.0)) == ["a1 a2 a3"]


def test_as_many_calls_carry_a_partition_as_the_policy_allows():
    policy = policy_with(preferred_weight=1, weight_max=1, calls_per_partition=2)
    core = core_of(push=policy)
    offer_all(core, "aaa")

    first, second = core.take_ready(0.0)
    assert batch([first, second]) == ["a1", "a2"]

    core.settle(second, 0.0, succeeded=True)

    assert batch(core.take_ready(0.0)) == ["a3"]


def test_units_without_a_partition_leave_in_order_and_exclude_none():
    core = core_of(ack=policy_with(preferred_weight=1, weight_max=2))
    offer_all(core, [None] * 5, operation="ack")

    assert batch(core.take_ready(0.0)) == ["None1 None2", "None3 None4", "None5"]


def test_a_call_carries_no_more_partitions_than_allowed():
    core = core_of(pop=policy_with(preferred_weight=1, partitions_per_call=1))
    offer_all(core, "abab", operation="pop")

    assert batch(core.take_ready(0.0)) == ["a1 a2", "b1 b2"]


# What a call carries


def test_a_call_is_filled_up_to_its_weight():
    core = core_of(push=policy_with(weight_max=10, preferred_weight=99))
    offer_all(core, "abcd", weight=3)

    assert batch(core.take_ready(0.0)) == ["a1 b1 c1"]


def test_a_call_is_filled_up_to_its_number_of_units():
    core = core_of(push=policy_with(units_max=2, preferred_weight=99))
    offer_all(core, "aab")

    assert batch(core.take_ready(0.0)) == ["a1 a2"]


def test_a_unit_heavier_than_a_call_goes_alone():
    core = core_of(push=policy_with(weight_max=10, preferred_weight=1))
    offer_all(core, "a")
    offer_all(core, "b", weight=50)
    offer_all(core, "c")

    assert batch(core.take_ready(0.0)) == ["a1", "b1", "c1"]


def test_a_unit_that_does_not_fit_is_first_in_the_next_call():
    core = core_of(push=policy_with(weight_max=10, preferred_weight=99))
    offer_all(core, "a", weight=6)
    offer_all(core, "b", weight=6)
    offer_all(core, "c", weight=1)

    call = take_one(core)
    core.settle(call, 0.0, succeeded=True)

    assert batch([call, *core.take_ready(0.0)]) == ["a1", "b1 c1"]


def test_a_partition_too_long_for_one_call_goes_behind_the_others():
    core = core_of(push=policy_with(weight_max=2, preferred_weight=99))
    offer_all(core, "aaaabc")

    call = take_one(core)
    core.settle(call, 0.0, succeeded=True)

    assert batch([call, *core.take_ready(0.0)]) == ["a1 a2", "b1 c1"]


# Slots and capacity


def test_operations_take_turns_when_slots_are_short():
    greedy = policy_with(preferred_weight=1, weight_max=1)
    core = core_of(slots=1, push=greedy, pop=greedy, ack=greedy)
    for operation in ("push", "pop", "ack"):
        offer_all(core, "abc", operation=operation)

    order = []
    for _ in range(6):
        call = take_one(core)
        order.append(call.operation)
        core.settle(call, 0.0, succeeded=True)

    assert order == ["push", "pop", "ack"] * 2


def test_nothing_is_due_without_a_free_slot():
    core = core_of(slots=1, push=policy_with(), ack=policy_with())
    occupy(core)
    offer_all(core, "a", operation="ack")

    assert core.take_ready(9.0) == []
    assert core.next_due(9.0) is None


def test_an_offer_beyond_the_capacity_is_refused_until_a_call_settles():
    core = core_of(weight_capacity=10, push=policy_with())
    call = occupy(core, weight=6)
    core.offer("push", "a", 4, None, 0.0)

    with pytest.raises(Overloaded):
        core.offer("push", "b", 1, None, 0.0)

    core.settle(call, 0.0, succeeded=True)
    core.offer("push", "b", 1, None, 0.0)
    assert core.weight == 5


def test_a_unit_beyond_the_whole_capacity_is_accepted_when_nothing_else_is_there():
    core = core_of(weight_capacity=10, push=policy_with())

    core.offer("push", "a", 11, None, 0.0)

    assert len(core.take_ready(0.0)) == 1


def test_a_unit_without_weight_is_a_defect():
    core = core_of(push=policy_with())

    with pytest.raises(AssertionError):
        core.offer("push", "a", 0, None, 0.0)


def test_a_core_without_slots_is_refused():
    with pytest.raises(ValueError, match="slots"):
        core_of(slots=0, push=policy_with())


# Withdrawing and settling


@pytest.mark.parametrize("withdrawn", [0, 1, 2])
def test_a_withdrawn_unit_is_gone_wherever_it_stood(withdrawn):
    core = core_of(push=policy_with())
    units = offer_all(core, "aaa")

    assert core.withdraw(units[withdrawn]) is True
    assert core.withdraw(units[withdrawn]) is False
    assert take_one(core).units == [unit for unit in units if unit is not units[withdrawn]]


def test_the_last_unit_withdrawn_frees_partition_and_weight():
    core = core_of(push=policy_with())
    (unit,) = offer_all(core, "a")

    core.withdraw(unit)

    assert core.weight == 0
    assert core.next_due(0.0) is None
    assert core.take_ready(0.0) == []


def test_a_unit_in_flight_cannot_be_withdrawn():
    core = core_of(push=policy_with())
    (unit,) = offer_all(core, "a")
    core.take_ready(0.0)

    assert core.withdraw(unit) is False
    assert core.weight == 1


def test_a_call_that_failed_frees_its_partitions_too():
    core = core_of(push=policy_with())
    call = occupy(core, "a")
    offer_all(core, "a")

    core.settle(call, 0.0, succeeded=False)

    assert batch(core.take_ready(0.0)) == ["a1"]


def test_a_call_settles_once():
    core = core_of(push=policy_with())
    call = occupy(core)
    core.settle(call, 0.0, succeeded=True)

    with pytest.raises(AssertionError):
        core.settle(call, 0.0, succeeded=True)


class Work:
    """Something a weak reference can watch."""


def test_a_withdrawn_unit_does_not_keep_its_neighbours_alive():
    core = core_of(push=policy_with())
    neighbour = weakref.ref(core.offer("push", "a", 1, Work(), 0.0).work)
    withdrawn = core.offer("push", "a", 1, Work(), 0.0)

    core.withdraw(withdrawn)
    core.settle(take_one(core), 0.0, succeeded=True)

    assert neighbour() is None


def test_units_that_left_together_do_not_keep_each_other_alive():
    core = core_of(push=policy_with())
    for _ in range(3):
        core.offer("push", "a", 1, Work(), 0.0)
    call = take_one(core)
    first = weakref.ref(call.units[0].work)

    core.settle(call, 0.0, succeeded=True)
    kept = call.units.pop()
    del call

    assert first() is None
    assert kept.work is not None


def memory_of(core):
    """Count everything a core without work still remembers about partitions and units."""
    return sum(
        len(backlog._partitions)
        + len(backlog._ready)
        + len(backlog._arrivals.noted)
        + len(backlog._arrivals._sorted)
        for backlog in core._turns
    )


def test_partitions_that_are_done_are_forgotten():
    core = core_of(push=policy_with())
    for partition in range(1_000):
        core.offer("push", partition, 1, None, 0.0)
        core.settle(take_one(core), 0.0, succeeded=True)

    assert memory_of(core) == 0


def test_clients_that_come_and_go_while_nothing_can_leave_leave_nothing_behind():
    core = core_of(push=policy_with(concurrency_max=1))
    occupy(core)
    core.offer("push", "steady", 1, None, 0.0)
    for partition in range(1_000):
        core.withdraw(core.offer("push", partition, 1, None, 0.0))
        core.withdraw(core.offer("push", "steady", 1, None, 0.0))

    assert memory_of(core) < 100


def test_partitions_that_keep_changing_under_a_standing_backlog_leave_nothing_behind():
    core = core_of(push=policy_with(preferred_weight=1, weight_max=1, concurrency_max=1))
    core.offer("push", -1, 1, None, 0.0)
    for partition in range(1_000):
        core.offer("push", partition, 1, None, 0.0)
        core.settle(take_one(core), 0.0, succeeded=True)

    assert memory_of(core) < 100


# Everything at once, against a model that looks at all units every time


def test_a_waiting_unit_can_be_enlarged_up_to_a_call():
    core = core_of(push=policy_with(preferred_weight=100, weight_max=5))
    occupy(core, "a")
    unit = core.offer("push", "a", 2, "a1", 0.0)

    assert core.enlarge(unit, 3)
    assert not core.enlarge(unit, 1)
    assert (unit.weight, core.weight) == (5, 6)


def test_enlarging_can_call_for_another_call():
    core = core_of(push=policy_with(preferred_weight=5, hold_s_max=100))
    occupy(core)
    unit = core.offer("push", "a", 2, "a1", 0.0)
    assert core.take_ready(0.0) == []

    core.enlarge(unit, 3)

    assert batch(core.take_ready(0.0)) == ["a1"]


def gathering_core():
    """A core whose call with two units, a second long, came back at 1.0."""
    core = core_of(push=policy_with(gather_share=0.25))
    offer_all(core, "ab", weight=4)
    call = take_one(core)
    core.settle(call, 1.0, succeeded=True)
    return core


def test_after_a_call_the_next_waits_for_those_who_were_answered():
    core = gathering_core()

    core.offer("push", "a", 4, object(), 1.01)
    assert core.take_ready(1.01) == []
    assert core.next_due(1.01) == 1.25
    core.offer("push", "b", 2, object(), 1.02)

    assert [unit.weight for call in core.take_ready(1.02) for unit in call.units] == [4, 2]


def test_those_who_do_not_come_again_are_not_waited_for_long():
    core = gathering_core()
    core.offer("push", "a", 4, object(), 1.01)

    assert core.take_ready(1.24) == []
    assert len(core.take_ready(1.25)) == 1


def test_long_after_a_call_nobody_is_waited_for():
    core = gathering_core()
    core.offer("push", "c", 1, object(), 9.0)

    assert len(core.take_ready(9.0)) == 1


def test_what_waited_already_does_not_count_as_coming_again():
    core = core_of(push=policy_with(gather_share=0.25))
    offer_all(core, "a", weight=4)
    call = take_one(core)
    core.offer("push", "a", 4, object(), 0.5)
    core.settle(call, 1.0, succeeded=True)

    assert core.take_ready(1.0) == []
    core.offer("push", "a", 4, object(), 1.1)
    assert len(core.take_ready(1.1)) == 1


def test_a_lone_client_never_waits():
    core = core_of(push=policy_with(gather_share=1.0))
    for second in range(3):
        core.offer("push", "a", 5, object(), float(second))
        (call,) = core.take_ready(float(second))
        core.settle(call, second + 0.5, succeeded=True)


def test_a_unit_that_left_is_not_enlarged():
    core = core_of(push=policy_with())
    (unit,) = offer_all(core, "a")
    take_one(core)

    assert not core.enlarge(unit, 1)
    assert core.weight == 1


def test_what_was_admitted_before_is_accepted_beyond_the_capacity():
    core = core_of(push=policy_with(weight_max=100), weight_capacity=10)
    (unit,) = offer_all(core, "a", weight=8)

    with pytest.raises(Overloaded):
        core.admit("push", 3)
    core.offer("push", "b", 3, "b1", 0.0, is_admitted=True)

    assert core.enlarge(unit, 3)
    assert core.weight == 14


@dataclass
class Model:
    """One operation, told in lists."""

    policy: BatchPolicy
    limiter: "WaveringLimiter"
    waiting: list = field(default_factory=list)
    calls: list = field(default_factory=list)
    gathering: tuple = (0.0, 0.0)

    def eligible(self):
        flying = Counter(
            partition
            for call in self.calls
            for partition in {unit.partition for unit in call.units}
        )
        return [
            unit
            for unit in self.waiting
            if unit.partition is None or flying[unit.partition] < self.policy.calls_per_partition
        ]

    def due_at(self, now):
        eligible = self.eligible()
        if not eligible:
            return None
        if not self.calls:
            until, weight = self.gathering
            waiting = sum(unit.weight for unit in eligible)
            return now if waiting >= weight else max(now, until)
        if len(self.calls) >= self.policy.concurrency_max:
            return None
        stalls = sorted(call.started_at + STALLED_AFTER_S for call in self.calls)
        while sum(stalled_at > now for stalled_at in stalls) >= self.limiter.limit:
            now = min(stalled_at for stalled_at in stalls if stalled_at > now)
        if sum(unit.weight for unit in eligible) >= self.policy.preferred_weight:
            return now
        oldest = min(unit.arrived_at for unit in eligible)
        return max(now, oldest + self.policy.hold_s_max)

    def start(self, call, now):
        """Check that the call was allowed to leave with what it carries, and let it."""
        assert self.due_at(now) == now
        policy, eligible, units = self.policy, self.eligible(), call.units
        partitions = {unit.partition for unit in units}
        assert call.weight == sum(unit.weight for unit in units)
        assert len(units) == 1 or call.weight <= policy.weight_max
        assert 1 <= len(units) <= policy.units_max
        assert policy.partitions_per_call is None or len(partitions) <= policy.partitions_per_call
        for partition in partitions:
            carried = [unit for unit in units if unit.partition == partition]
            assert (
                carried
                == [unit for unit in eligible if unit.partition == partition][: len(carried)]
            )
        self.waiting = [unit for unit in self.waiting if unit not in units]
        self.calls.append(call)
        self.gathering = (0.0, 0.0)

    def end(self, call, now):
        """Note that a call came back, and whom the next one may wait for."""
        self.calls.remove(call)
        if not self.calls:
            took, policy = now - call.started_at, self.policy
            back = 0.75 * call.weight + sum(unit.weight for unit in self.waiting)
            until = now + min(policy.gather_share * took, policy.hold_s_max)
            self.gathering = (until, min(back, policy.weight_max) if policy.gather_share else 0.0)


class WaveringLimiter:
    """Changes its mind after every call."""

    def __init__(self):
        self.limit = 1

    def record(self, rtt_s, in_flight, now, succeeded, *, weight=1):
        self.limit = 1 + (self.limit + weight + succeeded) % 3


SMALL = st.integers(1, 4)
POLICIES = st.builds(
    BatchPolicy,
    preferred_weight=st.integers(1, 8),
    hold_s_max=st.sampled_from([0.0, 0.25, 1.0]),
    weight_max=st.integers(1, 8),
    concurrency_max=SMALL,
    calls_per_partition=st.integers(1, 2),
    partitions_per_call=st.none() | SMALL,
    units_max=st.integers(1, 5),
    gather_share=st.sampled_from([0.0, 0.25, 1.0]),
)
OPERATIONS = ("push", "pop", "ack")


class FusionMachine(RuleBasedStateMachine):
    @initialize(
        policies=st.tuples(POLICIES, POLICIES, POLICIES), slots=SMALL, capacity=st.integers(5, 40)
    )
    def build(self, policies, slots, capacity):
        self.models = {
            operation: Model(policy, WaveringLimiter())
            for operation, policy in zip(OPERATIONS, policies, strict=True)
        }
        self.core = FusionCore(
            {name: (model.policy, model.limiter) for name, model in self.models.items()},
            slots=slots,
            weight_capacity=capacity,
        )
        self.slots, self.capacity, self.now = slots, capacity, 0.0
        self.offered = []

    @rule(
        operation=st.sampled_from(OPERATIONS),
        partition=st.sampled_from([None, "a", "b", "c", "d"]),
        weight=st.integers(1, 5),
    )
    def offer(self, operation, partition, weight):
        held = self.held_weight()
        try:
            unit = self.core.offer(operation, partition, weight, object(), self.now)
        except Overloaded:
            assert held > 0
            assert held + weight > self.capacity
        else:
            assert held == 0 or held + weight <= self.capacity
            self.models[operation].waiting.append(unit)
            self.offered.append((operation, unit))

    @precondition(lambda self: self.offered)
    @rule(data=st.data())
    def withdraw(self, data):
        operation, unit = data.draw(st.sampled_from(self.offered))
        waiting = self.models[operation].waiting
        was_waiting = unit in waiting
        assert self.core.withdraw(unit) is was_waiting
        if was_waiting:
            waiting.remove(unit)

    @precondition(lambda self: self.offered)
    @rule(data=st.data(), weight=st.integers(1, 5))
    def enlarge(self, data, weight):
        operation, unit = data.draw(st.sampled_from(self.offered))
        model, held, before = self.models[operation], self.held_weight(), unit.weight
        is_waiting = unit in model.waiting
        try:
            self.core.admit(operation, weight)
        except Overloaded:
            assert held > 0
            assert held + weight > self.capacity
        else:
            is_enlarged = self.core.enlarge(unit, weight)
            fits = before + weight <= model.policy.weight_max
            assert is_enlarged is (is_waiting and fits)
            assert unit.weight == before + weight * is_enlarged

    @rule()
    def take(self):
        for call in self.core.take_ready(self.now):
            assert len(self.flying()) < self.slots
            self.models[call.operation].start(call, self.now)
        assert self.model_due_at() != self.now

    @precondition(lambda self: self.flying())
    @rule(data=st.data(), succeeded=st.booleans())
    def settle(self, data, succeeded):
        call = data.draw(st.sampled_from(self.flying()))
        self.core.settle(call, self.now, succeeded=succeeded)
        self.models[call.operation].end(call, self.now)

    @rule(seconds=st.sampled_from([0.125, 0.5]))
    def let_time_pass(self, seconds):
        self.now += seconds

    @rule()
    def sleep_until_due(self):
        self.now = self.core.next_due(self.now) or self.now

    @invariant()
    def the_next_due_time_is_exact(self):
        assert self.core.next_due(self.now) == self.model_due_at()

    @invariant()
    def the_weight_is_what_waits_and_flies(self):
        assert self.core.weight == self.held_weight()

    def teardown(self):
        """While calls come back, everything leaves."""
        if not hasattr(self, "core"):
            return
        for _ in range(2 * len(self.offered) + 1):
            self.take()
            for call in self.flying():
                self.core.settle(call, self.now, succeeded=True)
                self.models[call.operation].end(call, self.now)
            self.now += 1.0  # nobody comes again
        assert self.held_weight() == 0
        assert memory_of(self.core) == 0

    def flying(self):
        return [call for model in self.models.values() for call in model.calls]

    def held_weight(self):
        waiting = [unit for model in self.models.values() for unit in model.waiting]
        return sum(held.weight for held in (*waiting, *self.flying()))

    def model_due_at(self):
        if len(self.flying()) >= self.slots:
            return None
        due = [model.due_at(self.now) for model in self.models.values()]
        return min((at for at in due if at is not None), default=None)


TestFusionMachine = FusionMachine.TestCase
TestFusionMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
