from hypothesis import given
from hypothesis import strategies as st

from skep.server.edge.placement import FRESH_S, FULL, LIGHT, Load, Move, Placement

NOW = 100.0


def worker(index, **loads):
    """A worker that has just heard how busy others are, as `w0=0.3`."""
    placement = Placement(index)
    for name, busy in loads.items():
        placement.hear(int(name[1:]), Load(busy, room=1_000), NOW)
    return placement


def decide(placement, busy, *, idle_cores=2.0, active=64, now=NOW):
    return placement.decide(busy, idle_cores=idle_cores, active=active, now=now)


def test_what_one_worker_can_do_goes_to_the_first():
    assert decide(worker(2, w0=0.2, w1=0.1), 0.3) == Move(0, 64)
    assert decide(worker(1, w0=0.2, w2=0.1), 0.3) == Move(0, 64)


def test_what_takes_two_workers_goes_to_the_first_two():
    assert decide(worker(2, w0=0.7, w1=0.4), 0.3) == Move(1, 64)
    assert decide(worker(1, w0=0.7, w2=0.3), 0.4) is None


def test_a_worker_that_is_gone_is_not_counted_among_the_first():
    assert decide(worker(3, w1=0.2, w2=0.1), 0.3) == Move(1, 64)


def test_the_first_worker_keeps_what_it_has():
    assert decide(worker(0, w1=0.0), 0.5) is None


def test_what_is_hardly_used_stays_where_it_is():
    assert decide(worker(1, w0=0.0), LIGHT / 2) is None


def test_where_no_core_is_idle_two_half_busy_workers_become_one():
    assert decide(worker(1, w0=0.6), 0.6, idle_cores=0.1) == Move(0, 64)
    assert decide(worker(1, w0=0.6), 0.6) is None


def test_a_worker_that_uses_up_a_core_hands_half_to_an_idle_one_if_a_core_is_idle():
    assert decide(worker(0, w1=0.5, w2=0.0), 1.0) == Move(2, 32)
    assert decide(worker(0, w1=0.0), 1.0, idle_cores=0.5) is None


def test_between_workers_that_are_all_busy_nothing_moves():
    assert decide(worker(0, w1=FULL, w2=0.9), 1.0) is None


def test_a_worker_that_fell_silent_gets_nothing():
    assert decide(worker(1, w0=0.0), 0.3, now=NOW + FRESH_S) is None
    assert decide(worker(0, w1=0.0), 1.0, now=NOW + FRESH_S) is None


def test_a_worker_without_room_gets_nothing_and_one_with_little_gets_little():
    placement = Placement(1)
    placement.hear(0, Load(0.1, room=0), NOW)
    assert decide(placement, 0.3) is None
    placement.hear(0, Load(0.1, room=10), NOW)
    assert decide(placement, 0.3) == Move(0, 10)


def test_workers_that_leave_at_the_same_time_share_the_room():
    placement = worker(3, w1=0.1, w2=0.1)
    placement.hear(0, Load(0.1, room=90), NOW)
    assert decide(placement, 0.2) == Move(0, 30)
    placement.hear(0, Load(0.1, room=2), NOW)
    assert decide(placement, 0.2) is None


def test_full_workers_that_spread_at_the_same_time_share_the_room():
    placement = worker(0, w1=0.95, w2=0.95)
    placement.hear(3, Load(0.0, room=60), NOW)

    assert decide(placement, 1.0, active=1_000) == Move(3, 20)


@given(busy=st.floats(FULL, 1), other=st.floats(0, 1))
def test_what_was_spread_does_not_come_back_at_the_next_look(busy, other):
    move = decide(worker(0, w1=other), busy, active=1_000)
    if move is None:
        return

    moved = busy * move.connections / 1_000

    # In two workers the same work takes no less than in one.
    assert decide(worker(1, w0=busy - moved), other + moved) is None
