"""The admin interface of Queen's Python clients, unmodified, against this broker."""

import pytest

pytestmark = pytest.mark.slow

SCENARIOS = "admin_scenarios.py"


@pytest.fixture(scope="module")
def broker(start_broker):
    """A broker whose listings fit on one page: other tests leave more groups than that."""
    with start_broker("--workers", "1") as broker:
        yield broker


def test_the_client_finds_the_broker_healthy(play):
    seen = play("look_at_health")

    assert [seen["status"], seen["database"]] == ["healthy", "connected"]


def test_queues_and_partitions_are_listed_and_described(play, queue):
    seen = play("look_around")

    (listed,) = seen["queues"]["queues"]
    counts = {"total": 6, "pending": 5, "processing": 1, "completed": 1, "deadLetter": 1}
    assert [listed["name"], listed["partitions"]] == [queue, 3]
    assert listed["messages"].items() >= counts.items()
    assert seen["queue"]["totals"].items() >= counts.items()
    assert seen["queue"]["options"]["leaseTime"] == 300
    assert [each["name"] for each in seen["queue"]["partitions"]] == ["Default", "a", "b"]
    assert [each["name"] for each in seen["partitions"]["partitions"]] == ["Default", "a"]
    assert [each["name"] for each in seen["queue stats"]["queues"]] == [queue]
    assert seen["queue detail"]["queue"]["config"]["retryLimit"] == 3
    assert seen["queue detail"]["totals"]["messages"].items() >= counts.items()
    assert seen["unknown"] == ["Queue not found", "Queue not found"]


def test_namespaces_tasks_and_the_overview_are_summed_up(play, queue):
    seen = play("look_around")

    (namespace,) = (
        each for each in seen["namespaces"]["namespaces"] if each["namespace"] == f"ns-{queue}"
    )
    (task,) = (each for each in seen["tasks"]["tasks"] if each["task"] == f"task-{queue}")
    expected = {"queues": 1, "partitions": 3, "messages": {"total": 6, "pending": 5}}
    assert namespace.items() >= expected.items()
    assert task.items() >= expected.items()
    assert seen["overview"]["messages"]["total"] >= 6
    assert seen["overview"].keys() >= {"queues", "partitions", "lag", "throughput", "timestamp"}


def test_messages_are_listed_and_described(play, queue):
    seen = play("look_at_messages")

    assert len(seen["found"]["messages"]) == 2
    assert seen["found"]["messages"][0]["queuePath"] == f"{queue}/b"
    assert seen["found"]["mode"] == {"hasQueueMode": False, "busGroupsCount": 1, "type": "bus"}
    assert [seen["waiting"], seen["dead"]] == [3, 1]
    assert [seen["leased"]["payload"], seen["leased"]["status"]] == ["a1", "processing"]
    assert [each["name"] for each in seen["leased"]["consumerGroups"]] == ["g"]
    assert seen["unknown"] == "Message not found"


def test_messages_are_buried_retried_and_deleted(play):
    seen = play("change_messages")

    assert [seen[step]["success"] for step in ("buried", "retried", "deleted")] == [True] * 3
    assert seen["gone"] == "Message not found"
    assert seen["again"] == ["a2", "a1"]


def test_a_queue_is_cleared_by_partition_or_as_a_whole(play):
    seen = play("clear")

    assert [seen["one"]["messages"], seen["rest"]["messages"]] == [3, 3]
    assert [seen["left"], seen["unknown"]] == [[], "Queue not found"]


def test_groups_are_listed_moved_and_deleted(play, queue):
    seen = play("manage_groups")

    group = f"group of {queue}"
    (listed,) = seen["listed"]
    assert [listed["queueName"], listed["members"], listed["totalLag"]] == [queue, 3, 6]
    offsets = [each["offsetLag"] for each in seen["described"][queue]["partitions"]]
    assert offsets == [0, 3, 3]
    assert seen["to the end"]["partitionsUpdated"] == seen["back"]["partitionsUpdated"] == 3
    assert seen["at the end"] == []
    assert seen["from the start"] == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert "body is empty" in seen["nowhere"]
    assert [seen["moved"]["success"], seen["moved"]["rowsUpdated"]] == [True, 1]
    assert seen["deleted"].items() >= {"consumerGroup": group, "queueName": queue}.items()
    assert seen["deleted everywhere"]["deletedPartitions"] == 3
    assert seen["gone"] == "Consumer group not found"
    assert "partition" in seen["refreshed"]


def test_only_groups_that_somebody_uses_are_lagging(play, queue):
    seen = play("manage_groups")

    assert {each["consumer_group"] for each in seen["lagging"]} == {"g", f"group of {queue}"}


@pytest.mark.parametrize("version", ["1.3.0"], indirect=True)
def test_the_depth_of_a_queue_is_measured_for_all_or_for_one_group(play, queue):
    seen = play("measure_depth")

    assert seen["group"] == {
        "queue": queue,
        "group": "g",
        "pending": 5,
        "partitionsPending": 2,
        "conflation": False,
        "effectivePending": 5,
        "estimated": False,
        "partitions": [
            {"partition": "Default", "pending": 0},
            {"partition": "a", "pending": 2},
            {"partition": "b", "pending": 3},
        ],
    }
    assert seen["queue"] == {**seen["group"], "group": None}
    assert seen["unknown"] == ["Queue not found", "Consumer group not found"]


def test_the_status_and_charts_of_the_broker_are_shown(play):
    seen = play("look_at_figures")

    assert seen["status"].keys() >= {"throughput", "messages", "leases", "workers", "errors"}
    assert seen["analytics"].keys() == {"dataPoints", "interval", "from", "to"}
    assert seen["metrics"]["memory"]["rss"] > 0
    assert seen["system"].keys() >= {"replicas", "replicaCount", "bucketMinutes"}
    assert seen["workers"].keys() >= {"timeSeries", "workers", "queues", "summary"}
    assert seen["postgres"]["databaseCache"]["database"]


def test_maintenance_is_switched_on_and_off(play):
    seen = play("maintain")

    assert [seen["before"], seen["during"], seen["after"]] == [False, True, False]
    assert [seen["pop_before"], seen["pop_during"], seen["pop_after"]] == [False, True, False]
