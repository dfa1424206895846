"""Locks through the client that Queen publishes."""

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("version", ["2.6.0"], indirect=True)]

SCENARIOS = "lock_scenarios.py"


def test_a_lock_is_held_renewed_shown_released_and_waited_for(play):
    assert play("hold") == {
        "acquired": [True, False],
        "renewed": [True, True],
        "held": [True, [True]],
        "released": True,
        "waited": True,
        "free": [True, False],
    }


def test_a_semaphore_has_as_many_permits_as_its_limit(play):
    assert play("share") == {
        "acquired": [True, True, False],
        "slots": [0, 1],
        "run": {"acquired": True, "value": True},
        "entered": True,
    }


def test_a_lock_whose_key_is_deleted_is_free(play):
    assert play("take_back") == {"acquired": True, "renewed": False, "held": False}


def test_a_guarded_bundle_is_stored_for_the_holder_alone(play):
    assert play("guard") == {
        "success": [True, False],
        "lost": ["kv_precondition", "version", False],
        "stored": [1],
    }
