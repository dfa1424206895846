"""`skep top`: what it works out, how it looks, and that keys end it."""

import io
import os
import pty
import select
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from rich.console import Console

from skep.cli.admin.top_figures import (
    ACKED,
    CPU,
    DELIVERY,
    NAMES,
    POPPED,
    PUSHED,
    TRAIL_READINGS,
    Reading,
    Trail,
    by_label,
    frame_between,
    percentiles,
    read_exposition,
    total,
)
from skep.cli.admin.top_keys import GROUP_ORDERS, HELP, QUEUE_ORDERS, View, sorted_queues
from skep.cli.admin.top_view import group_detail, queue_detail, render_frame, sparkline
from skep.cli.shared.spelling import spell_seconds
from skep.client.values import GroupEntry, MessageCounts, PartitionLag, QueueSummary

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
COUNTS = {"pending": 7, "deadLetter": 1}
LAG = {"time": {"max": 3.0}, "offset": {"max": 5}}
OVERVIEW = {"queues": 2, "partitions": 4, "messages": COUNTS, "estimated": False, "lag": LAG}


def text_of(**samples):
    return "\n".join(
        f"{name}{{{labels}}} {value}"
        for name, of in samples.items()
        for labels, value in of.items()
    )


def reading(at, *, queues=(), groups=(), instances=None, **samples):
    metrics = read_exposition(text_of(**samples), NAMES)
    return Reading(at, NOW, metrics, OVERVIEW, queues, groups, instances)


def queue_named(name, *, pending=0, is_paused=False):
    counts = MessageCounts(pending=pending)
    return QueueSummary(id=name, name=name, created_at=NOW, messages=counts, is_paused=is_paused)


def shown(frame, width=140, **how):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(render_frame(frame, url="http://broker", **how))
    return console.export_text()


def test_samples_are_read_with_escaped_labels_and_comments_are_not():
    text = '# HELP x_total y\nx_total{queue="a\\"b\\\\c\\nd",z="1"} 4.0\nother 1\nx_total{} 2\n'

    found = read_exposition(text, {"x_total"})

    assert total(found["x_total"]) == 6
    assert by_label(found["x_total"], "queue") == {'a"b\\c\nd': 4.0, "": 2.0}
    assert total(found["x_total"], z="1") == 4


def test_rates_are_what_happened_between_two_readings():
    before = reading(
        10.0, **{PUSHED: {'queue="a"': 100, 'queue="b"': 5}, POPPED: {'queue="a"': 50}}
    )
    now = reading(
        12.0,
        queues=[queue_named("b", pending=9), queue_named("a"), queue_named("c")],
        **{PUSHED: {'queue="a"': 300, 'queue="b"': 5}, POPPED: {'queue="a"': 70}},
        **{ACKED: {'queue="a"': 40}},
    )

    frame = frame_between(before, now)

    assert frame.rates == (100.0, 10.0, 20.0)
    rows = sorted_queues(frame, View())
    assert [row.name for row in rows] == ["a", "b", "c"]
    assert rows[0].rates.pushed == 100.0


def test_a_worker_that_was_started_again_counts_from_zero():
    before = reading(0.0, **{PUSHED: {'queue="a"': 1000}, CPU: {'mode="user"': 50}})
    now = reading(1.0, **{PUSHED: {'queue="a"': 10}, CPU: {'mode="user"': 0.5}})

    frame = frame_between(before, now)

    assert frame.rates.pushed == 10.0
    assert frame.cpu_share == 0.5


def test_percentiles_come_from_the_buckets_that_grew():
    before = reading(0.0, **{DELIVERY: {'le="0.1"': 10, 'le="1"': 10, 'le="+Inf"': 10}})
    now = reading(1.0, **{DELIVERY: {'le="0.1"': 60, 'le="1"': 110, 'le="+Inf"': 110}})

    latency = frame_between(before, now).latencies[0]

    assert latency.name == "push to delivery"
    assert latency.values == pytest.approx((0.1, 0.91, 0.982))


def test_nothing_that_happened_has_no_percentiles():
    assert percentiles({}, {}) == (None, None, None)


def test_the_page_shows_queues_groups_instances_and_trouble():
    group = GroupEntry(
        name="billing", queue_name="a", total_lag=7, max_time_lag=900, partition_count=4
    )
    instance = {"host": "h1", "port": 1, "version": "1", "workers": 2, "startedAt": "2026-07-01"}
    now = reading(
        2.0,
        queues=[queue_named("orders", pending=7, is_paused=True)],
        groups=[group],
        instances=[
            {**instance, "state": "alive", "silentSeconds": 1},
            {**instance, "host": "h2", "state": "missing", "silentSeconds": 30},
        ],
        skep_maintenance_mode={'mode="pop",worker="0"': 1},
        skep_database_away={'worker="0"': 1},
        skep_parked_polls={'worker="0"': 3, 'worker="1"': 4},
    )

    text = shown(frame_between(reading(0.0), now))

    for part in (
        "orders",
        "paused",
        "billing",
        "15 min",
        "parked polls",
        "! pop maintenance is on",
        "! the database is unreachable",
        "! instance h2:1 has been silent for 30 s",
        "h1:1",
    ):
        assert part in text
    assert "parked polls" in text
    assert " 7 " in text


def test_a_narrow_terminal_shows_names_and_figures_before_trails():
    group = GroupEntry(
        name="search-index",
        queue_name="shipping.labels",
        condition="no-consumers",
        total_lag=1945,
        max_time_lag=1140,
        partition_count=48,
        partitions_with_lag=44,
    )
    queue = queue_named("shipping.labels", pending=1945, is_paused=True)
    frame = frame_between(reading(0.0), reading(2.0, queues=[queue], groups=[group]))

    page = shown(frame, width=80)

    for text in ("shipping.labels", "search-index", "1,945", "44 of 48", "no-consumers", "paused"):
        assert text in page
    assert "…" not in page


def group_behind(lag):
    return GroupEntry(name="billing", queue_name="a", condition="lagging", total_lag=lag)


def test_a_group_that_grows_is_told_by_its_trail():
    trail, frames = Trail(), []
    for second, lag in enumerate([100, 90, 300, 500]):
        now = reading(float(second), groups=[group_behind(lag)])
        frames.append(frame_between(reading(second - 1.0), now, trail))

    assert [frame.groups[0].is_growing for frame in frames] == [False, False, False, True]
    assert frames[-1].groups[0].growth == pytest.approx(400 / 3)
    assert frames[-1].groups[0].trail == [100, 90, 300, 500]


def test_a_sparkline_has_the_latest_value_last_and_the_highest_full():
    assert sparkline([0, 7, 14]).lstrip() == "▁▅█"
    assert sparkline([]) == " " * TRAIL_READINGS


def pressed(*keys, rows=3):
    view = View()
    for key in keys:
        view = view.press(key, rows)
    return view


def test_keys_choose_a_row_and_open_and_close_it():
    assert pressed("\x1b[B", "j", "j").row == 2
    assert pressed("\x1b[B", "k", "k").row == 0
    assert pressed("\r").is_open
    assert not pressed("\r", "\x1b").is_open
    assert not pressed("\r", rows=0).is_open
    assert pressed("\t", "\r").table == "groups"
    assert pressed("\r", "q") is None
    assert pressed("\x1b") is None


def test_keys_sort_each_table_by_its_columns():
    assert [pressed(*"s" * times).order for times in range(7)] == [*QUEUE_ORDERS, "busiest"]
    assert [pressed("\t", *"s" * times).order for times in range(5)] == [*GROUP_ORDERS, "lag"]
    queues = [queue_named("b", pending=5), queue_named("a", pending=9)]
    frame = frame_between(reading(0.0), reading(1.0, queues=queues))
    assert [row.name for row in sorted_queues(frame, pressed("s"))] == ["a", "b"]
    assert [row.name for row in sorted_queues(frame, pressed("s", "r"))] == ["b", "a"]


def test_the_help_names_the_keys():
    text = shown(frame_between(reading(0.0), reading(1.0)), view=pressed("?"))

    assert all(what in text for _, what in HELP)
    assert not pressed("?", "?").has_help


def test_a_queue_is_opened_with_its_groups_and_a_group_with_its_partitions():
    now = reading(1.0, queues=[queue_named("a", pending=7)], groups=[group_behind(7)])
    frame = frame_between(reading(0.0), now)
    partitions = [
        PartitionLag(
            partition="p-9", partition_id="id", offset_lag=7, time_lag_seconds=60, failing=2
        )
    ]

    queue = shown(frame, detail=queue_detail(frame, frame.queues[0]))
    group = shown(frame, detail=group_detail(frame.groups[0], partitions))

    assert ("queue a" in queue, "billing" in queue) == (True, True)
    assert ("billing on a" in group, "p-9" in group) == (True, True)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0, "0 s"), (0.0015, "1.5 ms"), (2.25, "2.2 s"), (600, "10 min")],
)
def test_durations_are_spelled_in_a_unit_that_suits(seconds, text):
    assert spell_seconds(seconds) == text


def test_one_page_is_printed_for_scripts(skep, api, queue):
    api.push_many(queue, range(5))

    ended = skep("top", "--once", "--interval", 0.1, "--rows", 200)

    assert "skep top" in ended.out
    assert queue in ended.out
    assert "push to delivery" in ended.out


def read_until(terminal, text):
    """Read what the program draws until it has drawn the text."""
    seen = b""
    while text not in seen:
        assert select.select([terminal], [], [], 30)[0], seen
        seen += os.read(terminal, 65536)
    return seen


def test_q_ends_it_and_leaves_the_terminal_as_it_was(broker, api, queue, config_home):
    api.push(queue, 1)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "skep", "top", "--interval", "0.1", "--url", broker.url]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "60"}
    try:
        with subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
        ) as process:
            try:
                drawn = read_until(ours, b"queue-")
                os.write(ours, b"\r")
                read_until(ours, b"in and out")  # of the first queue, whichever it is
                os.write(ours, b"\x1b[D?")
                read_until(ours, b"show or hide")
                os.write(ours, b"q")
                read_until(ours, b"\x1b[?1049l")
                assert process.wait(30) == 0
            finally:
                process.kill()
    finally:
        os.close(ours)
        os.close(theirs)

    assert b"\x1b[?1049h" in drawn


def test_a_broker_that_is_away_is_said_at_once(run):
    assert "skep context show" in run("top", "--once", "--url", "http://127.0.0.1:1", code=2).err
