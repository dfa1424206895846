"""`skep groups` against a broker."""

import pytest


@pytest.fixture(scope="module")
def broker(start_broker):
    """A broker whose listings fit on one page: other tests leave more groups than that."""
    with start_broker("--workers", "1") as broker:
        yield broker


@pytest.fixture
def billing(api, queue):
    """A group that has done two of five messages."""
    api.push_many(queue, range(5), partition="p")
    api.ack(api.pop(queue, group="billing", batch=2))
    return queue


def test_groups_are_listed_with_their_lag(skep, billing):
    rows = skep("groups", "list", "--queue", billing, "-o", "ndjson").ndjson()
    table = skep("groups", "list", "--queue", billing).out

    assert {row["name"]: row["totalLag"] for row in rows}["billing"] == 3
    assert table.splitlines()[0].split()[:4] == ["Group", "Queue", "Condition", "Lag"]


def test_a_queue_without_groups_is_said_and_is_no_failure(skep, queue):
    assert skep("groups", "list", "--queue", queue).err == "No group matches\n"


def test_lag_is_shown_in_total_and_by_partition(skep, billing):
    table = skep("groups", "lag", "billing", billing).out.splitlines()
    record = skep("groups", "lag", "billing", billing, "-o", "json").json()

    assert "3 messages behind" in table[0]
    assert table[2].split()[:2] == ["p", "3"]
    assert record["offsetLag"] == 3


def test_a_group_is_shown_on_its_queues(skep, billing):
    table = skep("groups", "show", "billing").out
    rows = skep("groups", "show", "billing", "--queue", billing, "-o", "ndjson").ndjson()

    assert [billing, "p", "2", "3"] in [line.split()[:4] for line in table.splitlines()]
    assert [(row["queue"], row["offsetLag"]) for row in rows] == [(billing, 3)]


def test_lagging_partitions_are_found(skep, billing):
    rows = skep("groups", "lagging", "--min-lag", 0, "-o", "ndjson").ndjson()

    assert (billing, "p", 3) in {
        (row["queue_name"], row["partition_name"], row["offset_lag"]) for row in rows
    }
    assert skep("groups", "lagging", "--min-lag", 99999).out == ""


@pytest.mark.parametrize(
    ("flags", "preview", "left"),
    [
        (["--to-end"], "skips 3 unfinished messages, repeats 0 finished", []),
        (["--to-start"], "skips 0 unfinished messages, repeats 2 finished", range(5)),
        (["--to-time", "1h"], "skips 0 unfinished messages, repeats 2 finished", range(5)),
        (
            ["--offset", "5", "--partition", "p"],
            "skips 2 unfinished messages, repeats 0 finished",
            [4],
        ),
    ],
    ids=["end", "start", "time", "offset"],
)
def test_a_seek_shows_what_it_skips_and_repeats_and_does_so(
    skep, api, billing, flags, preview, left
):
    shown = skep("groups", "seek", "billing", billing, *flags, "--dry-run")
    unmoved = api.groups.lag("billing", billing).offset_lag
    moved = skep("groups", "seek", "billing", billing, *flags, "--yes")

    assert preview in shown.out
    assert unmoved == 3
    assert preview in moved.out
    found = api.pop(billing, group="billing", batch=10)
    assert [message.data for message in found] == list(left)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "pass one of"),
        (["--to-start", "--to-end"], "pass one of"),
        (["--offset", "3"], "--offset requires --partition"),
        (["--to-time", "soon"], "Invalid time: 'soon'"),
    ],
)
def test_a_seek_that_makes_no_sense_is_refused(skep, billing, flags, said):
    assert said in skep("groups", "seek", "billing", billing, *flags, "--yes", code=1).err


def test_a_seek_subscribes_a_group_only_on_request(skep, api, billing):
    refused = skep("groups", "seek", "audit", billing, "--to-end", "--yes", code=1)
    made = skep("groups", "seek", "audit", billing, "--to-end", "--create", "--yes")

    assert "not found" in refused.err
    assert "will be created" in made.out
    assert api.groups.lag("audit", billing).offset_lag == 0


def test_a_group_is_paused_resumed_and_forgotten(skep, api, billing):
    skep("groups", "pause", "billing", billing)
    paused = api.pop(billing, group="billing")
    skep("groups", "resume", "billing", billing)
    resumed = api.pop(billing, group="billing")
    gone = skep("groups", "delete", "billing", "--queue", billing, "--yes")

    assert paused == []
    assert len(resumed) == 1
    assert gone.out == "Deleted group billing from 1 partition\n"
    assert "not found" in skep("groups", "lag", "billing", billing, code=1).err
