"""Keys and values through the clients that Queen publishes."""

import pytest

pytestmark = pytest.mark.slow
both = pytest.mark.parametrize("version", ["1.3.0", "2.6.0"], indirect=True)

SCENARIOS = "kv_scenarios.py"


@both
def test_keys_are_read_written_and_listed(play):
    assert play("read_and_write") == {
        "missing": False,
        "put": True,
        "got": [{"n": 1}, True, True],
        "refused": [False, "version", {"n": 1}],
        "changed": [True, True],
        "many": [["a/2"], ["none"]],
        "page": [["a/1"], True],
        "listed": ["a/1", "a/2"],
        "deleted": [True, False],
    }


@both
def test_a_counter_admits_up_to_its_limit(play):
    assert play("count") == {"admitted": [1, 2, 3], "refused": ["limit", "limit"]}


@both
def test_one_of_many_claims_a_key(play):
    assert play("claim_once") == {
        "won": [False, False, False, False, True],
        "absent": [False, "exists"],
    }


@both
def test_a_batch_is_one_commit(play):
    assert play("batch") == {"kept": [True, True], "undone": [False, False], "x": 1}


@both
def test_keys_ride_in_a_transaction(play):
    assert play("ride") == {
        "won": True,
        "lost": [False, "kv_precondition", "exists", True, 1],
        "put": ["push", "kv"],
        "read": [2, ["none"]],
        "alone": True,
        "deleted": True,
        "pushed": ["won", "put", "incr", "read", "delete"],
    }


@pytest.mark.parametrize("version", ["2.6.0"], indirect=True)
def test_a_check_says_whether_a_key_is_as_expected(play):
    assert play("check") == {"held": True, "lost": [False, "exists", 1]}


@both
def test_what_is_refused_has_the_codes_that_the_client_knows(play):
    seen = play("refusals")

    assert seen == {
        "namespace": ["kv_bad_request", "kv_bad_namespace"],
        "key": ["payload_too_large", "kv_key_too_large"],
        "value": ["payload_too_large", "kv_value_too_large"],
    }
