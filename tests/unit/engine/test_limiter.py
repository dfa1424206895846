"""The limiters stay within their bounds, and Vegas finds the knee of a server by itself."""

from heapq import heappop, heappush
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.engine.limiter import RttFloors, StaticLimiter, VegasLimiter


class Server:
    """Serves up to `knee` calls at full speed; more of them share what there is.

    It is kept busy: whatever the limiter allows is in flight.
    """

    def __init__(self, limiter, *, knee, call_s=0.005, jitter=0.0):
        self.limiter = limiter
        self.knee = knee
        self.call_s = call_s
        self.jitter = jitter
        self.weights = [1]
        self.s_per_weight = 0.0
        self.now = 100.0
        self.in_flight = []
        self.random = Random(7)

    def run(self, seconds):
        """Let time pass, and return the limits that were seen."""
        limits = []
        until = self.now + seconds
        while self.now < until:
            while len(self.in_flight) < self.limiter.limit:
                self.start_call()
            limits.append(self.finish_call())
        return limits

    def start_call(self):
        weight = self.random.choice(self.weights)
        slowdown = max(1.0, (len(self.in_flight) + 1) / self.knee)
        luck = 1 + self.jitter * self.random.expovariate(1)
        rtt_s = (self.call_s + self.s_per_weight * weight) * slowdown * luck
        heappush(self.in_flight, (self.now + rtt_s, self.now, weight))

    def finish_call(self, *, succeeded=True):
        in_flight = len(self.in_flight)
        self.now, started_at, weight = heappop(self.in_flight)
        self.limiter.record(self.now - started_at, in_flight, self.now, succeeded, weight=weight)
        return self.limiter.limit


def operating_points(limits):
    """Leave out the moments in which the limit drops to one on purpose."""
    return [limit for limit in limits if limit > 1]


def test_a_static_limit_does_not_move():
    limiter = StaticLimiter(3)

    limiter.record(9.0, 3, 0.0, False)

    assert limiter.limit == 3


@pytest.mark.parametrize("make", [StaticLimiter, VegasLimiter])
def test_a_cap_below_one_is_refused(make):
    with pytest.raises(ValueError, match="at least 1"):
        make(0)


CALLS = st.tuples(
    st.just(0.0) | st.floats(0, 10),
    st.integers(1, 50),
    st.floats(0, 1),
    st.booleans(),
    st.integers(1, 10_000),
)


@settings(max_examples=60, deadline=None)
@given(cap=st.integers(1, 20), start=st.integers(1, 30), calls=st.lists(CALLS, max_size=200))
def test_the_limit_stays_between_one_and_the_cap_whatever_happens(cap, start, calls):
    limiter = VegasLimiter(cap, start=start, interval_s=0.01, floor_s=1.0)
    now = 0.0

    for rtt_s, in_flight, pause_s, succeeded, weight in calls:
        now += pause_s
        limiter.record(rtt_s, in_flight, now, succeeded, weight=weight)

        assert 1 <= limiter.limit <= cap


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.001, 0.01), min_size=50, max_size=100))
def test_the_limit_moves_by_one_and_no_faster_than_the_interval(rtts):
    limiter = VegasLimiter(50, interval_s=0.1, floor_s=1e9)
    server = Server(limiter, knee=4)
    server.run(0.5)
    moves, before = [], limiter.limit

    for server.call_s in rtts:
        server.start_call()
        after = server.finish_call()
        assert abs(after - before) <= 1
        if after != before:
            moves.append(server.now)
        before = after

    assert all(later - earlier >= 0.1 for earlier, later in pairwise(moves))


def test_the_first_calls_are_made_alone_to_measure_the_floor():
    limiter = VegasLimiter(16)

    assert limiter.limit == 1
    Server(limiter, knee=4).run(0.016)
    assert limiter.limit == 2


@pytest.mark.parametrize("knee", [1, 2, 4, 8, 16])
def test_the_limit_settles_a_little_above_the_knee_and_stays(knee):
    limiter = VegasLimiter(64, spread=1.0)
    server = Server(limiter, knee=knee)
    server.run(5)

    settled = operating_points(server.run(35))

    assert knee + 2 <= min(settled)
    assert max(settled) <= knee + 5


@pytest.mark.parametrize("knee", [2, 4, 8, 16])
def test_calls_that_differ_by_chance_do_not_cost_throughput(knee):
    server = Server(VegasLimiter(64), knee=knee, jitter=0.3)
    server.run(5)

    settled = operating_points(server.run(20))

    assert knee <= min(settled)
    assert max(settled) <= 2 * knee + 4


def test_calls_that_differ_in_weight_do_not_look_like_queueing():
    server = Server(VegasLimiter(64), knee=8)
    server.weights, server.s_per_weight = [1, 10, 100, 1_000], 0.000_05
    server.run(5)

    settled = operating_points(server.run(20))

    assert min(settled) >= 8
    assert max(settled) <= 20


def test_the_cap_is_kept_where_the_server_could_take_more():
    server = Server(VegasLimiter(6), knee=100)
    server.run(5)

    assert set(operating_points(server.run(5))) == {6}


def test_the_limit_does_not_grow_beyond_what_is_used():
    limiter = VegasLimiter(64)

    for call in range(1, 1_000):
        limiter.record(0.005, 2, call * 0.01, succeeded=True)
        limiter.record(0.005, 1, call * 0.01 + 0.009, succeeded=True)

    assert limiter.limit <= 3


def test_a_slow_start_is_forgotten():
    server = Server(VegasLimiter(64), knee=8, call_s=0.05)
    server.run(3)

    server.call_s = 0.005
    server.run(5)

    assert min(operating_points(server.run(5))) >= 8


def test_a_server_that_became_slower_for_good_is_used_again():
    server = Server(VegasLimiter(64, floor_s=10.0), knee=8)
    server.run(5)

    server.call_s = 0.05
    server.run(20)

    assert min(operating_points(server.run(10))) >= 8


def test_a_knee_that_moved_down_is_followed():
    server = Server(VegasLimiter(64), knee=16)
    server.run(5)

    server.knee = 2
    server.run(10)

    assert max(server.run(30)) <= 8


def test_measuring_the_floor_costs_little_time():
    server = Server(VegasLimiter(64), knee=8)
    server.run(5)

    limits = server.run(20)

    assert limits.count(1) < len(limits) / 100


def test_slow_calls_are_waited_for_before_the_limit_moves_again():
    server = Server(VegasLimiter(64, floor_s=1e9), knee=4, call_s=1.0)

    limits = server.run(300)

    assert limits[-1] >= 4
    assert max(limits) <= 12


def test_a_call_that_flew_beside_another_is_no_probe():
    limiter = VegasLimiter(16)

    for second in range(10):
        limiter.record(1.5, 2, second + 0.5, succeeded=True)
        limiter.record(1.4, 1, second + 1.0, succeeded=True)

    assert limiter.limit == 1


def test_a_call_that_failed_is_no_probe():
    limiter = VegasLimiter(16)

    for second in range(3):
        limiter.record(0.1, 1, float(second), succeeded=False)

    assert limiter.limit == 1


def test_while_nothing_succeeds_the_limit_shrinks_and_then_recovers():
    limiter = VegasLimiter(64, floor_s=1e9)
    server = Server(limiter, knee=8)
    server.run(5)

    for _ in range(4_000):
        server.start_call()
        server.finish_call(succeeded=False)
    assert limiter.limit == 1

    server.run(5)
    assert limiter.limit >= 8


def test_refused_calls_among_others_change_nothing():
    limiter = VegasLimiter(64)
    server = Server(limiter, knee=8)
    server.run(5)

    for _ in range(100):
        limiter.record(0.000_01, limiter.limit, server.now, succeeded=False)
        server.run(0.05)

    assert min(operating_points(server.run(1))) >= 8


# The floors


def floors_of(*calls):
    floors = RttFloors(10.0)
    for rtt_s, weight, now in calls:
        floors.note(rtt_s, weight, now, was_alone=False)
    return floors


def test_the_floor_is_the_least_of_similar_calls():
    floors = floors_of((0.3, 4, 0.0), (0.2, 5, 0.0), (0.4, 7, 0.0))

    assert floors.of(6) == 0.2


def test_a_heavier_call_guarantees_for_lighter_ones_but_not_the_reverse():
    floors = floors_of((0.1, 1, 0.0), (0.5, 10, 0.0), (0.3, 1_000, 0.0))

    assert (floors.of(1), floors.of(10), floors.of(1_000)) == (0.1, 0.3, 0.3)


def test_a_floor_is_remembered_for_at_least_half_of_the_window():
    floors = floors_of((0.4, 1, 0.0), (0.1, 1, 4.9), (0.4, 1, 5.0), (0.4, 1, 9.8))

    assert floors.of(1) == 0.1


def test_a_floor_is_forgotten_after_the_window():
    assert floors_of((0.1, 1, 0.0), (0.2, 1, 5.0), (0.4, 1, 10.0)).of(1) == 0.2


def test_a_floor_does_not_outlive_a_long_silence():
    assert floors_of((0.1, 1, 0.0), (0.4, 1, 60.0)).of(1) == 0.4


def test_a_probe_is_due_when_no_call_was_alone_for_half_of_the_window():
    floors = RttFloors(10.0)
    floors.note(0.1, 1, 1.0, was_alone=True)
    floors.note(0.1, 1, 5.5, was_alone=False)

    assert not floors.is_probe_due(5.9)
    assert floors.is_probe_due(6.0)
