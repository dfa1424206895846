"""The Python clients that Queen publishes, unmodified, against this broker.

A scenario runs in a process of its own, on one version of the client, and reports what it saw.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCENARIOS = Path(__file__).with_name("scenarios.py")
SCENARIO_S = 60
OLD, NEW = "0.15.0", "1.3.0"


@pytest.fixture(params=[OLD, NEW])
def version(request):
    return request.param


@pytest.fixture
def play(version, install_client, broker, queue):
    """Play a scenario and return what it saw."""

    def play(scenario):
        directory = install_client(version)
        run = subprocess.run(
            [sys.executable, str(SCENARIOS), scenario, broker.url, queue],
            env={**os.environ, "PYTHONPATH": str(directory)},
            capture_output=True,
            text=True,
            timeout=SCENARIO_S,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        *said_by_client, seen = run.stdout.splitlines()
        # The client turns every failure of a pop into "nothing there" and mentions it here only.
        assert not [line for line in said_by_client if "fail" in line.lower()]
        return json.loads(seen)

    return play


only_new = pytest.mark.parametrize("version", [NEW], indirect=True)


def test_a_message_goes_through_the_broker_and_is_done(play, queue):
    seen = play("push_and_pop")

    (message,) = seen["messages"]
    assert seen["pushed"][0]["status"] == "queued"
    assert seen["pushed"][0]["message_id"] == message["id"]
    assert [message["data"], message["partition"]] == [{"n": 1, "s": "ü🐝"}, "Default"]
    assert [seen["acked"]["success"], seen["acked"]["queueName"]] == [True, queue]
    assert seen["left"] == []


def test_partitions_are_popped_one_by_name_or_several_under_one_lease(play):
    assert play("push_to_partitions") == {
        "b": ["b1", "b2"],
        "others": ["a1", "a2", "c1", "c2"],
        "leases": 1,
    }


def test_a_repeated_transaction_id_is_reported_as_a_duplicate(play):
    assert play("push_duplicates") == {
        "stored": ["t1", "t2", "t3"],
        "duplicate": ["t2"],
        "messages": ["t1", "t2", "t3"],
    }


def test_groups_start_where_they_say(play):
    assert play("subscribe") == {"started": [], "new": ["new"], "all": ["old", "new"]}


def test_a_consumer_of_single_messages_stops_at_its_limit(play):
    assert play("consume_each") == {"seen": [0, 1, 2, 3, 4], "left": []}


def test_consumers_of_batches_stop_when_idle(play):
    halves = [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]

    seen = play("consume_batches_until_idle")

    assert seen == {"batches": sorted(halves * 2), "left": []}


def test_a_consumer_gets_what_arrives_while_it_waits(play):
    assert play("consume_what_arrives_later") == {"seen": [0, 1, 2]}


def test_a_handler_that_fails_gets_the_message_again_until_it_is_a_dead_letter(play):
    assert play("consume_with_failures") == {"seen": ["bad", "bad", "bad", "good"], "left": []}


def test_a_consumer_that_renews_keeps_its_lease(play):
    assert play("consume_with_renewal") == {"seen": [[1, []]], "left": []}


def test_acks_complete_and_give_back(play):
    assert play("acknowledge") == {
        "failed": True,
        "attempt": 2,
        "mixed": [True, True],
        "rest": [1, 2, 3],
        "completed": [True, True, True],
        "stale": {"success": False, "error": "already committed: the message was completed before"},
        "left": [],
    }


def test_a_lease_is_renewed_by_message_or_messages(play):
    seen = play("renew")

    assert [seen["by_message"]["leaseId"], seen["by_message"]["success"]] == [seen["lease"], True]
    assert seen["by_message"]["newExpiresAt"].endswith("Z")
    assert [renewal["leaseId"] for renewal in seen["by_messages"]] == [seen["lease"]]
    # The client takes every answer for a success, and the expiry tells whether it was one.
    assert seen["unknown"]["newExpiresAt"] is None


def test_a_transaction_acknowledges_and_pushes_or_is_refused_as_a_whole(play):
    assert play("commit_transactions") == {
        "committed": [True, 3, True],
        "refused": "Required lease not held: Invalid or expired lease",
        "sink": ["a", "b", "c"],
        "left": [],
    }


def test_a_buffer_is_flushed_by_count_and_on_request(play):
    assert play("buffer") == {"flushed": list(range(25)), "waiting": 1, "last": ["last"]}


def test_a_queue_is_created_with_its_options(play, queue):
    seen = play("configure")

    assert [seen["plain"]["configured"], seen["plain"]["queue"]] == [True, f"{queue}-plain"]
    assert [seen["chosen"]["namespace"], seen["chosen"]["task"]] == ["shop", "bill"]
    assert seen["chosen"]["options"]["leaseTime"] == 7


def test_a_consumer_traces_its_message_and_finds_the_trace_again(play, queue):
    seen = play("trace")

    (of_message,) = seen["of_message"]["traces"]
    (by_name,) = seen["by_name"]["traces"]
    assert seen["recorded"]["success"] is True
    assert of_message["id"] == by_name["id"] == seen["recorded"]["traceId"]
    assert [by_name["event_type"], by_name["message_payload"]] == ["step", {"n": 1}]
    assert f"{queue}/steps" in [each["trace_name"] for each in seen["names"]["trace_names"]]


def test_the_client_finds_the_broker_healthy(play):
    seen = play("look_at_health")

    assert [seen["status"], seen["database"]] == ["healthy", "connected"]


@only_new
def test_the_client_understands_the_sizes_the_broker_chose(play):
    assert play("leave_sizes_to_the_broker") == {
        "count": 30,
        "chosen": {"partitions": 10, "batch": 200, "wait_millis": 0},
        "empty": [[], None],
    }


@only_new
def test_a_group_that_asks_for_conflation_gets_only_the_newest(play):
    assert play("ask_for_conflation") == {"empty": [], "newest": [2]}


def test_messages_of_a_namespace_are_found_without_naming_the_queue(play):
    assert play("pop_by_namespace") == {"seen": [0, 1, 2]}
