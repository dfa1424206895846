"""`skep queues` and `skep partitions` against a broker."""

import pytest


def test_queues_are_listed_with_what_waits(skep, api, queue):
    api.push_many(queue, range(3))

    ended = skep("queues", "list", queue)

    header, row = ended.out.splitlines()
    assert header.split()[:2] == ["Queue", "Namespace"]
    assert row.split()[0] == queue
    assert "3" in row.split()


def test_a_listing_for_programs_has_everything(skep, api, queue):
    api.push_many(queue, range(3))

    (found,) = skep("queues", "list", queue, "-o", "json").json()

    assert found["messages"]["pending"] == 3


def test_queues_are_chosen_by_namespace_and_task_and_paged(skep, api, queue):
    for number in range(3):
        api.queues.configure(f"{queue}.{number}", namespace=f"{queue}-space", task="t")
    api.queues.configure(f"{queue}.other", namespace="elsewhere")

    space = ("--namespace", f"{queue}-space")
    whole = skep("queues", "list", *space, "-o", "ndjson").ndjson()
    cut = skep("queues", "list", *space, "--task", "t", "--limit", 2)
    rest = skep("queues", "list", *space, "--offset", 2, "-o", "ndjson").ndjson()

    assert len(whole) == 3
    assert len(cut.out.splitlines()) == 3
    assert "--offset 2" in cut.err
    assert rest == whole[2:]


def test_no_queue_is_said_and_is_no_failure(skep, queue):
    assert skep("queues", "list", queue).err == "No queue matches\n"
    assert skep("queues", "list", queue, "-o", "json").json() == []


def test_a_queue_is_made_once_with_its_options(skep, api, queue):
    skep(
        "queues",
        "create",
        queue,
        "--set",
        "leaseTime=60",
        "--set",
        "ackMode=individual",
        "--namespace",
        "shop",
    )

    configured = api.queues.configuration(queue)
    assert configured.options.lease_time == 60
    assert configured.options.ack_mode == "individual"
    assert configured.namespace == "shop"
    assert "exists" in skep("queues", "create", queue, code=1).err


def test_options_are_changed_unset_and_shown(skep, api, queue):
    api.queues.configure(queue, leaseTime=60, retryLimit=7)

    changed = skep("queues", "configure", queue, "--set", "ttl=5", "--unset", "leaseTime")
    shown = skep("queues", "configure", queue, "-o", "json").json()
    replaced = skep("queues", "configure", queue, "--replace", "-o", "json").json()

    assert ["ttl", "5", "0"] in [line.split() for line in changed.out.splitlines()]
    assert [shown["options"][name] for name in ("ttl", "leaseTime", "retryLimit")] == [5, 300, 7]
    assert [replaced["options"][name] for name in ("ttl", "retryLimit")] == [0, 3]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--set", "leaseTimes=5"], "Did you mean leaseTime?"),
        (["--set", "leaseTime"], "must be OPTION=VALUE, not 'leaseTime'"),
        (["--set", "leaseTime=soon"], 'leaseTime cannot be "soon": it is a whole number'),
        (["--set", "ackMode=foo"], 'ackMode cannot be "foo": it is cumulative or individual'),
        (["--set", "strict=2"], "strict cannot be 2: it is true or false"),
        (["--unset", "nothing"], "unknown queue option nothing"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_happens(
    skep, api, queue, flags, said
):
    api.queues.configure(queue)

    assert said in skep("queues", "configure", queue, *flags, code=1).err


def test_configuring_makes_no_queue(skep, queue):
    assert "not found" in skep("queues", "configure", queue, "--set", "ttl=5", code=1).err.lower()


def test_a_queue_is_shown_with_options_groups_and_counts(skep, api, queue):
    api.push_many(queue, range(2))
    api.pop(queue, group="billing")

    table = skep("queues", "show", queue).out
    record = skep("queues", "show", queue, "-o", "json").json()

    lines = dict(line.split(None, 1) for line in table.splitlines() if " " in line.strip())
    assert "billing" in lines["Groups"]
    assert lines["Pending"].strip() == "2"
    assert lines["leaseTime"].split() == ["300", "300"]
    assert record["options"]["leaseTime"] == 300


def test_a_queue_is_paused_and_resumed(skep, api, queue):
    api.push(queue, 1)

    skep("queues", "pause", queue)
    assert api.pop(queue) == []
    skep("queues", "resume", queue)
    assert len(api.pop(queue)) == 1


def test_a_queue_is_cleared_and_deleted(skep, api, queue):
    api.push_many(queue, range(3), partition="a")
    api.push_many(queue, range(1), partition="b")

    one = skep("queues", "clear", queue, "--partition", "a", "--yes")
    rest = skep("queues", "clear", queue, "--yes")
    gone = skep("queues", "delete", queue, "--yes")

    assert one.out == "Deleted 3 messages\n"
    assert rest.out == "Deleted 1 message\n"
    assert gone.out == f"Deleted queue {queue}\n"
    assert skep("queues", "show", queue, code=1).out == ""


def test_partitions_are_listed_searched_and_paged(skep, api, queue):
    for name in ("a1", "a2", "b1"):
        api.push(queue, 1, partition=name)

    whole = skep("partitions", "list", queue, "-o", "ndjson").ndjson()
    found = skep("partitions", "list", queue, "--search", "a", "-o", "ndjson").ndjson()
    cut = skep("partitions", "list", queue, "--limit", 1)
    after = cut.err.split("--after ")[1].split(",")[0]
    rest = skep("partitions", "list", queue, "--after", after, "-o", "ndjson").ndjson()

    assert [each["name"] for each in whole] == ["a1", "a2", "b1"]
    assert [each["name"] for each in found] == ["a1", "a2"]
    assert rest == whole[1:]


def test_a_partition_is_shown_by_its_whole_name_and_cleared(skep, api, queue):
    api.push_many(queue, range(2), partition="a")
    api.push_many(queue, range(3), partition="ab")

    shown = skep("partitions", "show", queue, "a", "-o", "json").json()
    table = skep("partitions", "show", queue, "ab").out
    cleared = skep("partitions", "clear", queue, "a", "--yes")

    assert (shown["name"], shown["stats"]["total"]) == ("a", 2)
    assert ["Pending", "3"] in [line.split() for line in table.splitlines()]
    assert cleared.out == "Deleted 2 messages\n"
    assert f"{queue} has no partition b" in skep("partitions", "show", queue, "b", code=1).err


@pytest.mark.parametrize(
    "command",
    [
        ("queues", "clear", "QUEUE"),
        ("queues", "delete", "QUEUE"),
        ("partitions", "clear", "QUEUE", "Default"),
        ("groups", "delete", "__QUEUE_MODE__", "--queue", "QUEUE"),
        ("groups", "seek", "__QUEUE_MODE__", "QUEUE", "--to-end"),
        ("messages", "delete", "t1", "--queue", "QUEUE"),
        ("messages", "dead-letter", "t1", "--queue", "QUEUE"),
        ("dlq", "redrive", "--queue", "QUEUE"),
        ("dlq", "delete", "--queue", "QUEUE"),
        ("maintenance", "on"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_undone_needs_a_yes(skep, api, queue, command):
    api.push(queue, 1, transaction_id="t1")
    api.pop(queue, lease_s=1)

    ended = skep(*(queue if part == "QUEUE" else part for part in command), code=1)

    assert "pass --yes" in ended.err
    assert api.queues.describe(queue)["totals"]["pending"] == 1
