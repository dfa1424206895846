"""`skep bench`: what it counts, and that everything pushed is consumed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.cli.server.bench_load import Flow, Latencies, Tally


@given(st.lists(st.floats(1e-5, 1e3), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_a_percentile_is_right_to_one_percent(durations, share):
    latencies = Latencies()
    for seconds in durations:
        latencies.add(seconds)

    found = latencies.quantile(share)

    ordered = sorted(durations)
    reached = sum(each <= found * 1.0101 for each in ordered)
    short_of = sum(each < found / 1.0101 for each in ordered)
    assert reached >= share * len(ordered) - 1e-9
    assert short_of < share * len(ordered) + 1


def test_without_durations_there_are_no_percentiles():
    assert set(Latencies().in_milliseconds().values()) == {None}


def test_a_report_counts_both_directions_by_their_own_time():
    pushed, acked = Flow(), Flow()
    pushed.add(100, 10.0, 12.0)
    acked.add(60, 10.0, 14.0)

    report = Tally(began_at=10.0, pushed=pushed, acked=acked, cpu_s=2.0).report(1_000_000)

    assert report["push"]["messagesPerSecond"] == 50
    assert report["push"]["megabytesPerSecond"] == 50
    assert report["consume"]["messagesPerSecond"] == 15
    assert (report["left"], report["clientCpuShare"], report["seconds"]) == (40, 0.5, 4.0)


SMALL = ("--duration", 0.3, "--producers", 2, "--consumers", 2, "--batch", 5, "--partitions", 3)


def test_everything_that_is_pushed_is_consumed_and_the_queue_is_gone(skep, api, broker):
    report = skep("bench", broker.url, *SMALL, "-o", "json").json()

    assert report["push"]["messages"] == report["consume"]["messages"] > 0
    assert report["left"] == 0
    assert report["latencyMs"]["delivery"]["p99"] > 0
    assert api.queues.find(search=report["queue"]).total == 0


def test_a_queue_that_is_named_stays_as_it_is(skep, api, broker, queue):
    api.queues.configure(queue, leaseTime=77)

    table = skep("bench", "--queue", queue, *SMALL, "--consumers", 0)

    assert table.out.splitlines()[0].split()[0] == "Messages"
    assert "Not consumed in time: " in table.err
    assert api.queues.configuration(queue).options.lease_time == 77
    consumed = skep("bench", "--queue", queue, *SMALL, "--producers", 0, "-o", "json").json()
    assert consumed["consume"]["messages"] > 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--producers", 0, "--consumers", 0), 1, "nothing to do"),
        (("nonsense://x",), 1, "Invalid broker URL"),
    ],
)
def test_what_cannot_be_done_is_refused(run, arguments, code, said):
    assert said in run("bench", *arguments, code=code).err


def test_what_the_broker_refuses_ends_it_with_one_line(skep, api, broker, queue):
    api.queues.configure(queue, jsonSchema={"type": "string"})

    ended = skep("bench", "--queue", queue, *SMALL, code=1)

    assert ended.err == 'skep: payload: the value is not of type "string"\n'
