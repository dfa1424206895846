"""The condition of groups and queues, in one word."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.broker.groups.condition import (
    ABSENT_S,
    KEEPS_UP_S,
    STALLED_S,
    WORST_FIRST,
    GroupFacts,
    group_condition,
    queue_condition,
)

LATE = KEEPS_UP_S + STALLED_S + 1
FACTS = {
    "is_paused": False,
    "backlog": 1,
    "lag_s": LATE,
    "is_held": False,
    "polled_s": 0,
    "progressed_s": 0,
    "is_failing": False,
}


@pytest.mark.parametrize(
    ("facts", "condition"),
    [
        ({}, "lagging"),
        ({"lag_s": KEEPS_UP_S}, "consuming"),
        ({"lag_s": LATE, "delay_s": LATE}, "consuming"),
        ({"backlog": 0}, "consuming"),
        ({"backlog": 0, "polled_s": ABSENT_S + 1}, "empty"),
        ({"backlog": 0, "polled_s": None}, "empty"),
        ({"backlog": 0, "polled_s": None, "is_held": True}, "consuming"),
        ({"polled_s": ABSENT_S + 1}, "no-consumers"),
        ({"polled_s": None, "lag_s": 0}, "no-consumers"),
        ({"polled_s": None, "is_held": True}, "lagging"),
        ({"progressed_s": STALLED_S}, "lagging"),
        ({"progressed_s": STALLED_S + 1}, "stalled"),
        ({"progressed_s": None}, "stalled"),
        ({"progressed_s": STALLED_S + 1, "is_held": True, "lease_s": 300}, "lagging"),
        ({"progressed_s": 301, "lag_s": 400, "is_held": True, "lease_s": 300}, "stalled"),
        ({"progressed_s": 301, "lag_s": 250, "is_held": True, "lease_s": 300}, "lagging"),
        (
            {"progressed_s": 121, "is_held": True, "lease_s": 300, "is_failing": True},
            "stalled",
        ),
        ({"progressed_s": 9, "is_failing": True}, "lagging"),
        ({"is_paused": True}, "paused"),
        ({"is_paused": True, "backlog": 0}, "paused"),
    ],
    ids=str,
)
def test_a_group_has_one_condition(facts, condition):
    assert group_condition(GroupFacts(**{**FACTS, **facts})) == condition


AGES = st.none() | st.floats(0, 1000)


@given(
    st.builds(
        GroupFacts,
        is_paused=st.just(False),
        backlog=st.integers(1, 5),
        lag_s=st.floats(0, 1000),
        is_held=st.booleans(),
        polled_s=AGES,
        progressed_s=AGES,
        is_failing=st.booleans(),
        delay_s=st.floats(0, 100),
        lease_s=st.floats(0, 600),
    ),
    st.floats(0, 1000),
)
def test_a_longer_wait_never_makes_a_condition_better(facts, further_s):
    def later(age):
        return None if age is None else age + further_s

    changes = {name: later(getattr(facts, name)) for name in ("lag_s", "polled_s", "progressed_s")}
    members = {name: getattr(facts, name) for name in facts.__struct_fields__} | changes
    before, after = group_condition(facts), group_condition(GroupFacts(**members))

    severity = {"consuming": 0, "lagging": 1, "stalled": 2, "no-consumers": 3}
    assert severity[after] >= severity[before]
    assert {before, after} <= set(WORST_FIRST)


@pytest.mark.parametrize(
    ("figures", "condition"),
    [
        ((True, 5, 1, 1), "paused"),
        ((False, 5, 1, 0), "waiting"),
        ((False, 5, 0, 1), "draining"),
        ((False, 5, 1, 1), "active"),
        ((False, 0, 0, 1), "active"),
        ((False, 0, 1, 0), "active"),
        ((False, 0, 0, 0), "idle"),
    ],
    ids=str,
)
def test_a_queue_has_one_condition(figures, condition):
    is_paused, pending, pushed, popped = figures
    assert (
        queue_condition(
            is_paused=is_paused,
            is_waiting=bool(pending),
            in_per_second=pushed,
            out_per_second=popped,
        )
        == condition
    )
