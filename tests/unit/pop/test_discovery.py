"""The order in which the queues of a namespace or task are tried."""

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.broker.pop.discovery import in_turn

QUEUES = [("urgent", 9), ("a", 1), ("b", 1), ("c", 1), ("late", -1)]


@pytest.mark.parametrize(
    ("turn", "equals"), [(0, ["a", "b", "c"]), (1, ["b", "c", "a"]), (5, ["c", "a", "b"])]
)
def test_equals_take_turns_and_the_more_important_go_first(turn, equals):
    assert in_turn(QUEUES, turn) == ["urgent", *equals, "late"]


@given(
    priorities=st.lists(st.integers(-2, 2), max_size=8).map(lambda found: sorted(found)[::-1]),
    turn=st.integers(0, 100),
)
def test_every_queue_is_tried_once_and_none_before_a_more_important_one(priorities, turn):
    queues = [(f"queue {number}", priority) for number, priority in enumerate(priorities)]
    priority_by_name = dict(queues)

    ordered = in_turn(queues, turn)

    assert sorted(ordered) == sorted(priority_by_name)
    assert [priority_by_name[name] for name in ordered] == priorities


@given(count=st.integers(1, 6))
def test_each_of_equal_queues_is_first_as_often_as_the_others(count):
    queues = [(f"queue {number}", 0) for number in range(count)]

    firsts = sorted(in_turn(queues, turn)[0] for turn in range(3 * count))

    assert {len(list(times)) for _, times in groupby(firsts)} == {3}
