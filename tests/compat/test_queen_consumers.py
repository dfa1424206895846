"""The consumers of Queen's Python clients, unmodified, against this broker."""

import pytest

pytestmark = pytest.mark.slow

SCENARIOS = "consumer_scenarios.py"


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


def test_a_consumer_traces_its_message_and_finds_the_trace_again(play, queue):
    seen = play("trace")

    (of_message,) = seen["of_message"]["traces"]
    (by_name,) = seen["by_name"]["traces"]
    assert seen["recorded"]["success"] is True
    assert of_message["id"] == by_name["id"] == seen["recorded"]["traceId"]
    assert [by_name["event_type"], by_name["message_payload"]] == ["step", {"n": 1}]
    assert f"{queue}/steps" in [each["trace_name"] for each in seen["names"]["trace_names"]]


def test_who_gives_callbacks_acknowledges_in_them(play):
    assert play("consume_with_callbacks") == {
        "seen": [["succeeded", 0], ["failed", "cannot do that"], ["succeeded", 20]],
        "dead": [1, "cannot do that"],
        "left": [],
    }


def test_what_nobody_acknowledges_comes_again(play):
    assert play("consume_without_acknowledging") == {"seen": [[1, 2], [1, 2]], "left": []}


def test_a_batch_that_failed_comes_again(play):
    assert play("consume_batches_that_fail") == {"seen": [[0, 1, 2], [0, 1, 2]], "left": []}


def test_a_consumer_of_one_partition_gets_nothing_else(play):
    assert play("consume_one_partition") == {"seen": ["b"]}


def test_a_consumer_stops_when_told(play):
    assert play("consume_until_told_to_stop") == {"seen": [0, 1]}


def test_consumers_of_a_namespace_or_task_get_all_its_queues(play):
    assert play("consume_a_namespace") == {
        "space": ["bill0", "bill1", "count0", "count1"],
        "task": ["bill0", "bill1"],
    }


@pytest.mark.parametrize("version", ["1.3.0"], indirect=True)
def test_a_consumer_with_conflation_handles_the_newest_of_each_partition(play):
    assert play("consume_the_newest_only") == {"seen": ["a4", "b4"], "left": []}
