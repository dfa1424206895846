"""Reads by offset through the client that Queen publishes."""

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("version", ["2.6.0"], indirect=True)]

SCENARIOS = "read_scenarios.py"


def test_partitions_are_read_from_their_offsets_to_their_ends(play):
    assert play("fetch") == {
        "payloads": {
            "a": [{"a": 0}, {"a": 1}, {"a": 2}],
            "b": [{"b": 0}, {"b": 1}, {"b": 2}],
            "never": [],
        },
        "dense": [True, True, True],
        "next": [True, True, False],
        "rest": [{"a": 1}, {"a": 2}],
        "small": True,
        "missing": [],
    }


def test_what_has_changed_is_listed_in_the_order_of_creation(play):
    assert play("changed_since") == {
        "every": ["c", "a", "b"],
        "last": [1, 1, 1],
        "late": [],
        "since": True,
        "safe": True,
        "missing": [],
    }
