"""Timers through the clients that Queen publishes."""

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("version", ["1.3.0", "2.6.0"], indirect=True),
]

SCENARIOS = "timer_scenarios.py"


def test_a_timer_is_delivered_with_the_transaction_id_that_was_promised(play):
    assert play("fire") == {
        "scheduled": [True, "scheduled", "k"],
        "payload": {"n": 1},
        "is_same": True,
    }


def test_timers_are_replaced_shown_listed_and_cancelled(play):
    assert play("change") == {
        "statuses": ["scheduled", "rescheduled", "scheduled", "cancelled", "absent"],
        "truths": [True, True, True, True, False, True, False],
        "txn": ["t-1", True, "t-1"],
        "page": [["a/1"], True, "a/1"],
        "every": [["a/1", "Default"], ["a/2", "p"]],
        "later": True,
    }


def test_a_batch_has_a_result_for_each_operation(play):
    assert play("batch") == ["scheduled", "cancelled"]


def test_what_is_refused_has_the_codes_that_the_client_knows(play):
    assert play("refusals") == {
        "horizon": ["timer_horizon_exceeded", "timer_horizon_exceeded"],
        "payload": ["payload_too_large", "timers_payload_too_large"],
        "key": ["payload_too_large", "timers_key_too_large"],
        "bytes": ["timers_bad_request", "timers_payload_not_json"],
    }
