"""What an acquirer may do, whatever is held and whoever waits."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from skep.broker.kv.accept import KeyState
from skep.broker.locks.decide import (
    Busy,
    Line,
    Mine,
    Permit,
    Pulse,
    Pulses,
    Take,
    View,
    choose,
    line_of,
    permit_of,
)
from skep.broker.locks.wait import pause_s

NOON = datetime(2026, 11, 19, 12, tzinfo=UTC)
names = st.sampled_from(["a", "b", "c"])


def permit(slot, owner, token=7):
    return Permit(slot, token, owner, "then", NOON, NOON)


views = st.builds(
    lambda held, waiting: View(
        {slot: permit(slot, owner) for slot, owner in held.items()},
        Line([(ticket, "p") for ticket in waiting]),
        len(waiting),
    ),
    st.dictionaries(st.integers(0, 4), st.none() | names, max_size=5),
    st.lists(names, unique=True, max_size=3),
)


@given(view=views, owner=st.none() | names, limit=st.integers(1, 4), ticket=st.none() | names)
def test_only_the_first_in_line_take_what_is_free_and_owners_keep_what_they_hold(
    view, owner, limit, ticket
):
    free = {slot for slot in range(limit) if slot not in view.permits}
    waiting = [each for each, _ in view.line.tickets]
    before = waiting.index(ticket) if ticket in waiting else len(waiting)
    owned = {s for s, each in view.permits.items() if s < limit and owner and each.owner == owner}

    choice = choose(view, owner=owner, limit=limit, ticket=ticket)

    match choice:
        case Mine(found):
            assert found.slot == min(owned)
        case Take(slot):
            assert not owned
            assert slot in free
            assert before < len(free)
        case Busy(is_in_line):
            assert not owned
            assert before >= len(free)
            assert is_in_line == (ticket in waiting)


def test_a_process_is_silent_when_its_beats_stand_still():
    pulse = Pulse(3.0)
    line = Line().with_ticket("1", "lives", 1).with_ticket("2", "died", 1)

    assert pulse.silent(line, 0.0) == set()
    assert pulse.silent(line.beaten("lives", 2), 3.5) == {"died"}
    assert line.without_processes({"died"}).tickets == [("1", "lives")]
    assert line.without_processes({"died"}).beats == {"lives": 1}


def test_pulses_are_remembered_by_lock_until_no_one_looks_at_them_for_long():
    pulses = Pulses(3.0)
    line = Line().with_ticket("1", "died", 1)

    assert [pulses.silent(name, line, 0.0) for name in "ab"] == [set(), set()]
    assert pulses.silent("b", line, 50.0) == {"died"}
    assert len(pulses) == 2
    assert pulses.silent("b", line, 70.0) == {"died"}
    assert len(pulses) == 1
    assert pulses.silent("a", line, 70.0) == set()


def test_the_first_waiter_looks_when_a_permit_expires_by_whichever_clock():
    view = View({0: permit(0, "a")}, Line(), 0)
    pauses = [pause_s(view, NOON + timedelta(seconds=late)) for late in (-9, -0.5, 0, 0.5, 9)]

    assert pauses == [1.0, 0.5, 0.02, 0.5, 1.0]
    assert pause_s(View({}, Line(), 0), NOON) == 1.0


def test_a_key_of_any_other_value_holds_its_slot_and_is_no_line():
    state = KeyState(True, None, "7", 9, None, NOON)

    assert (permit_of(3, state).owner, permit_of(3, state).token) == (None, 9)
    assert line_of(state) == Line()
    assert permit_of(0, KeyState(False, "absent", None, 0, None, None)) is None
