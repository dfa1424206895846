"""The Python clients that Queen publishes, unmodified, against this broker."""

import pytest

pytestmark = pytest.mark.slow

SCENARIOS = "scenarios.py"

only_new = pytest.mark.parametrize("version", ["1.3.0"], indirect=True)


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


def test_payloads_of_all_forms_come_back_as_they_were(play):
    assert play("push_what_clients_may_push") == {
        "payloads": [{"n": 1}, None, {"just": "members"}, [0, "", False]],
        "trace": True,
    }


def test_callbacks_of_a_push_hear_what_became_of_it(play):
    seen = play("push_with_callbacks")

    assert seen["seen"] == [["stored", ["t1"]], ["refused", [7]]]
    assert seen["refused"].startswith("TransactionId must be a string")


def test_names_with_spaces_and_signs_work(play):
    assert play("name_things_freely") == {"messages": [1], "acked": True}


def test_groups_start_at_a_time(play):
    assert play("subscribe_from_a_time") == {
        "started": {
            "now": [],
            "new-only": [],
            "all": ["old"],
            "then": ["old"],
            "1970": ["old"],
            "2999": [],
        },
        "new": [["new"], ["new"]],
    }


def test_acks_understand_the_words_of_the_client(play):
    assert play("acknowledge_by_words") == {
        "succeeded": [True, True, True, True],
        "again": [1, 1],
        "dead": [1],
        "nothing": {"processed": 0, "results": []},
        "left": [],
    }


def test_dead_letters_are_listed_by_filters_and_pages(play, queue):
    seen = play("look_through_dead_letters")

    letter = seen.pop("letter")
    assert [letter["queue"], letter["partition"], letter["consumerGroup"]] == [queue, "a", "g"]
    assert [letter["errorMessage"], letter["data"]] == ["no use", "a1"]
    of_both = ["a1", "a1", "a2", "a2", "b1", "b1", "b2", "b2"]
    assert seen == {
        "every": [of_both, 8],
        "group": [["a1", "a2", "b1", "b2"], 4],
        "partition": [["b1", "b2"], 2],
        "first": [["a2", "b1", "b2"], 4],
        "rest": [["a1"], 4],
        "more than a page": [["a1", "a2", "b1", "b2"], 4],
        "beyond": [[], 4],
        "before": [[], 0],
        "between": [of_both, 8],
        "of no queue": [[], 0],
    }


def test_transactions_acknowledge_for_groups(play):
    assert play("acknowledge_in_transactions") == {
        "succeeded": [True, True, True],
        "dead": [2],
        "empty": "Transaction has no operations to commit",
        "left": [],
    }


def test_a_queue_is_created_and_deleted(play, queue):
    seen = play("create_and_delete")

    assert [seen["created"]["configured"], seen["created"]["options"]["retryLimit"]] == [True, 5]
    assert seen["created"]["options"]["ackMode"] == "individual"
    assert seen["deleted"] == [
        {"deleted": True, "queue": queue, "existed": True},
        {"deleted": True, "queue": queue, "existed": False},
    ]
    assert seen["refused"]["success"] is False
    assert seen["seen"] == [seen["created"], seen["deleted"][0], seen["refused"]["error"]]


def test_a_client_of_several_servers_goes_on_without_one_of_them(play):
    seen = play("survive_a_dead_server", fails=True)

    strategies = ("round-robin", "session", "affinity")
    assert seen == {
        "seen": [[[[name, number] for number in range(3)], True] for name in strategies],
        "left": [],
    }


@only_new
def test_a_client_that_sizes_its_pops_itself_gets_one_message(play):
    assert play("ask_for_sizes_by_hand") == {"count": 1, "chosen": None}


@only_new
def test_a_group_that_exists_may_be_told_to_conflate(play):
    assert play("turn_to_conflation") == {"first": [0], "newest": [3], "left": []}


@only_new
def test_what_is_not_the_message_plane_is_refused_as_unknown(play):
    seen = play("go_beyond_the_message_plane")

    # The client says this itself when a whole family of routes is unknown.
    unsupported = "HTTP 404 ephemeral_unsupported broker/proxy does not support ephemeral queues"
    for name, error in seen.items():
        assert error.startswith(unsupported), (name, error)


@only_new
def test_a_transaction_never_commits_without_its_timers(play):
    seen = play("ride_beyond_the_message_plane")

    text = "transactions do not take timers and positions; nothing was done"
    assert set(seen["refused"].values()) == {text}
    assert seen["pushed"] == []


def test_queues_hold_messages_back_as_configured(play):
    held_back = [[], [1, 2]]
    assert play("hold_back") == {"delayed_processing": held_back, "window_buffer": held_back}
