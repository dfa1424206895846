"""The pure parts of the benchmark: arithmetic, /proc parsing, request bytes and verdicts."""

import json
import math
import os
import random
import re
import subprocess
import sys
import time
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import goals, wire
from benchmarks.errors import UnexpectedFraming
from benchmarks.load import merge, split_roles
from benchmarks.machine import filesystem_of
from benchmarks.meter import (
    ProcessStat,
    Reading,
    Usage,
    cpu_seconds,
    listening_inodes,
    read_processes,
    topmost,
    tree_of,
)
from benchmarks.plan import Counts, PopRole, PushRole, Snapshot
from benchmarks.scenarios import SCENARIOS
from benchmarks.stats import Spread, growth, per, percentile, share_out

COST = goals.CPU


# --- arithmetic ---


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.1, 100))
def test_a_percentile_is_the_smallest_sample_that_covers_the_share(samples, percent):
    samples.sort()

    found = percentile(samples, percent)

    share = sum(sample <= found for sample in samples) / len(samples)
    smaller = [sample for sample in samples if sample < found]
    assert found in samples
    assert share >= percent / 100 or math.isclose(share, percent / 100)
    assert len(smaller) / len(samples) < percent / 100


def test_no_samples_have_no_percentile():
    assert percentile([], 99) is None


def test_the_99th_percentile_of_a_hundred_samples_leaves_one_above():
    assert percentile(range(1, 101), 99) == 99


@pytest.mark.parametrize(("amount", "count"), [(None, 5), (5.0, 0)])
def test_a_figure_per_message_needs_an_amount_and_messages(amount, count):
    assert per(amount, count) is None


def test_growth_is_the_worst_of_the_later_values_against_the_first():
    assert growth([10.0, 12.0, 8.0]) == pytest.approx(1.2)


def test_growth_below_one_is_a_cost_that_fell():
    assert growth([10.0, 5.0]) == pytest.approx(0.5)


@pytest.mark.parametrize("values", [[None, 2.0], [1.0, None], [0.0, 1.0], [1.0]])
def test_growth_is_unknown_without_all_of_its_values(values):
    assert growth(values) is None


def test_a_spread_has_the_median_and_the_range_of_what_was_measured():
    assert Spread.of([3.0, None, 1.0, 9.0]) == Spread(median=3.0, low=1.0, high=9.0, count=3)


def test_a_figure_never_measured_has_no_spread():
    assert Spread.of([None, None]) is None


@given(st.integers(0, 10_000), st.integers(1, 50))
def test_shares_add_up_and_differ_by_at_most_one(total, parts):
    shares = share_out(total, parts)

    assert sum(shares) == total
    assert len(shares) == parts
    assert max(shares) - min(shares) <= 1


# --- processes ---


def stat_line(pid, parent, *, name="postgres", cpu=(0, 0), children=(0, 0), rss=0):
    before_cpu = "0 " * 9
    before_rss = "0 " * 6
    return (
        f"{pid} ({name}) S {parent} {before_cpu}{cpu[0]} {cpu[1]} {children[0]} {children[1]} "
        f"{before_rss}{rss} 0 0"
    )


def test_a_stat_line_is_read_by_position():
    line = stat_line(7, 3, cpu=(11, 4), children=(100, 20), rss=55)

    assert ProcessStat.parse(line) == ProcessStat(7, "postgres", 3, 15, 120, 55)


@pytest.mark.parametrize("name", ["a b", "tricky) S 1 (", "postgres: skep 127.0.0.1"])
def test_a_process_name_may_hold_spaces_and_brackets(name):
    parsed = ProcessStat.parse(stat_line(7, 3, name=name, cpu=(1, 2)))

    assert (parsed.name, parsed.parent_pid, parsed.cpu_ticks) == (name, 3, 3)


def test_our_own_stat_line_names_our_parent():
    mine = next(process for process in read_processes() if process.pid == os.getpid())

    assert mine.parent_pid == os.getppid()
    assert mine.rss_pages > 0


def test_a_tree_has_every_descendant_and_nobody_else():
    lines = [stat_line(1, 0), stat_line(5, 1), stat_line(6, 5), stat_line(7, 6), stat_line(8, 1)]
    processes = [ProcessStat.parse(line) for line in reversed(lines)]

    assert {process.pid for process in tree_of(5, processes)} == {5, 6, 7}


def test_the_tree_of_a_process_that_is_gone_is_empty():
    assert tree_of(99, [ProcessStat.parse(stat_line(1, 0))]) == []


def test_the_cpu_clock_of_a_process_agrees_with_its_own_view():
    mine = next(process for process in read_processes() if process.pid == os.getpid())

    children = os.times().children_user + os.times().children_system
    assert cpu_seconds(mine) == pytest.approx(time.process_time() + children, abs=0.1)


def test_cpu_of_a_child_that_ended_stays_with_its_parent():
    def mine():
        return next(p for p in read_processes() if p.pid == os.getpid()).ended_children_ticks

    before = mine()
    burn = "import time\nwhile time.process_time() < 0.1: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)

    assert (mine() - before) / os.sysconf("SC_CLK_TCK") >= 0.09


def test_a_listening_socket_is_found_by_port_and_state():
    table = (
        "  sl  local_address rem_address   st tx_rx_queue tr_when retrnsmt uid timeout inode\n"
        "   0: 0100007F:19E8 00000000:0000 0A 0:0 00:0 0  0 0 4711 1 0 10\n"
        "   1: 0100007F:19E8 0100007F:A001 01 0:0 00:0 0  0 0 4712 1 0 10\n"
        "   2: 0100007F:1538 00000000:0000 0A 0:0 00:0 0  0 0 4713 1 0 10\n"
    )

    assert listening_inodes(table, 6632) == {"4711"}


def test_the_topmost_holder_of_a_socket_is_the_supervisor():
    assert topmost({30, 10, 20}, parents={30: 10, 20: 10, 10: 1}) == 10


def test_nobody_is_topmost_among_nobody():
    assert topmost(set(), parents={}) is None


def reading(**changes):
    values = {
        "at_s": 10.0,
        "broker_cpu_s": 1.0,
        "postgres_cpu_s": 2.0,
        "broker_rss_bytes": 100,
        "largest_rss_bytes": 80,
        "wal_bytes": 1_000,
        "xid": 50,
        "transactions": 70,
    }
    return Reading(**(values | changes))


def test_usage_is_the_difference_of_two_readings_without_the_reading_itself():
    after = reading(
        at_s=15.0,
        broker_cpu_s=1.5,
        postgres_cpu_s=4.0,
        broker_rss_bytes=120,
        largest_rss_bytes=90,
        wal_bytes=1_600,
        xid=58,
        transactions=91,
    )

    usage = Usage.between(reading(), after)

    assert usage == Usage(5.0, 0.5, 2.0, 120, 90, 600, 8, 20)
    assert usage.cpu_s == 2.5


def test_cpu_together_is_unknown_when_one_side_is():
    blind = reading(broker_cpu_s=None)

    assert Usage.between(blind, blind).cpu_s is None


def test_the_deepest_mount_point_decides_the_file_system(tmp_path):
    mounts = f"/dev/vda / ext4 rw 0 0\ntmpfs {tmp_path} tmpfs rw 0 0\nproc /proc proc rw 0 0\n"

    assert filesystem_of(tmp_path / "data", mounts) == "tmpfs"
    assert filesystem_of(tmp_path.parent, mounts) == "ext4"


# --- bytes on the wire ---


def split_request(request):
    head, _, body = request.partition(b"\r\n\r\n")
    length = int(re.search(rb"Content-Length: (\d+)", head).group(1))
    return length, body


@given(
    item_count=st.integers(1, 30),
    payload_bytes=st.integers(12, 400),
    first=st.integers(0, 10**11),
    stamped=st.booleans(),
)
def test_a_filled_push_is_valid_json_of_the_announced_length(
    item_count, payload_bytes, first, stamped
):
    template = wire.PushTemplate(
        host="h:1",
        queue="q",
        item_count=item_count,
        payload_bytes=payload_bytes,
        seed=3,
        stamped=stamped,
    )
    partitions = [random.Random(first).randrange(100_000) for _ in range(item_count)]

    length, body = split_request(template.fill(partitions, first, 123_456))

    items = json.loads(body)["items"]
    assert length == len(body)
    assert [int(item["partition"][1:]) for item in items] == partitions
    assert len({item["transactionId"] for item in items}) == item_count
    assert wire.sent_stamps_us(body) == ([123_456] * item_count if stamped else [])


@pytest.mark.parametrize("stamped", [False, True])
def test_a_payload_has_the_size_that_was_asked_for(stamped):
    template = wire.PushTemplate(
        host="h", queue="q", item_count=1, payload_bytes=100, seed=1, stamped=stamped
    )

    _, body = split_request(template.fill([0], 0, 1))

    payload = body[body.index(b'"payload":') + len(b'"payload":') : -len(b"}]}")]
    assert len(payload) == 100


def test_two_fills_share_no_transaction_id():
    template = wire.PushTemplate(
        host="h", queue="q", item_count=2, payload_bytes=50, seed=1, stamped=False
    )

    first, second = (
        re.findall(rb'"transactionId":"([^"]+)"', template.fill([0, 0], number))
        for number in (0, 2)
    )

    assert not set(first) & set(second)


@given(body=st.binary(max_size=300), cuts=st.lists(st.integers(0, 400), max_size=6))
def test_an_answer_is_the_same_however_its_bytes_arrive(body, cuts):
    head = b"HTTP/1.1 201 Created\r\nContent-Type: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    whole = head + body
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    reader = wire.AnswerReader()

    answers = [
        answer
        for begin, end in pairwise(edges)
        if begin < end and (answer := reader.feed(whole[begin:end])) is not None
    ]

    assert answers == [wire.Answer(201, body)]


def test_an_answer_without_a_body_ends_with_its_head():
    answer = wire.AnswerReader().feed(b"HTTP/1.1 204 No Content\r\nserver: s\r\n\r\n")

    assert answer == wire.Answer(204, b"")


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{}",
    ],
)
def test_an_answer_in_another_framing_is_refused(data):
    with pytest.raises(UnexpectedFraming):
        wire.AnswerReader().feed(data)


@pytest.mark.parametrize(
    ("status", "is_success"), [(200, True), (204, True), (199, False), (302, False), (503, False)]
)
def test_only_2xx_is_success(status, is_success):
    assert wire.Answer(status, b"").is_success is is_success


def test_an_ack_completes_each_popped_message_under_its_own_lease():
    popped = json.dumps(
        {
            "success": True,
            "leaseId": "top",
            "messages": [
                {"id": "m1", "transactionId": "t1", "partitionId": "p1", "leaseId": "l1"},
                {"id": "m2", "transactionId": "t2", "partitionId": "p2", "leaseId": "l2"},
            ],
        }
    ).encode()

    length, body = split_request(wire.ack_request(host="h", group="", popped=popped))

    assert length == len(body)
    assert json.loads(body) == {
        "acknowledgments": [
            {
                "transactionId": f"t{n}",
                "partitionId": f"p{n}",
                "leaseId": f"l{n}",
                "status": "completed",
            }
            for n in (1, 2)
        ],
        "consumerGroup": None,
    }


def test_a_waiting_pop_says_how_long():
    request = wire.pop_request(
        host="h", queue="q", batch=5, partitions=2, auto_ack=True, wait_ms=900, group="g"
    )

    target = request.split(b" ")[1]
    assert target == (
        b"/api/v1/pop/queue/q?batch=5&partitions=2&autoAck=true&wait=true&timeout=900"
        b"&consumerGroup=g"
    )


# --- dealing out the load ---


def push_role(**changes):
    role = PushRole(
        name="push", connections=64, queue="q", partitions=10, items=5, payload_bytes=50, seed=1
    )
    return msgspec.structs.replace(role, **changes)


@given(connections=st.integers(1, 100), parts=st.integers(1, 8), limit=st.integers(0, 1_000))
def test_processes_together_have_the_load_of_the_plan(connections, parts, limit):
    push = push_role(connections=connections, rate=200.0)
    pop = PopRole("pop", connections=connections, queue="q", batch=1)

    shares = [role for share in split_roles([push, pop], parts) for role in share]

    pushes = [role for role in shares if isinstance(role, PushRole)]
    assert sum(role.connections for role in shares) == 2 * connections
    assert sum(role.rate for role in pushes) == pytest.approx(200.0)
    assert len({role.seed for role in pushes}) == len(pushes)


def test_a_limit_is_shared_by_the_processes():
    shares = split_roles([push_role(request_limit=101)], 2)

    assert [share[0].request_limit for share in shares] == [51, 50]


def snapshot(at_s, messages, *, is_done=True, errors=None):
    return Snapshot(
        at_s=at_s,
        cpu_s=0.5,
        roles={"push": Counts(requests=1, messages=messages, empties=2)},
        errors=errors or {},
        examples=[],
        is_done=is_done,
        latencies_us={"push": [messages]},
    )


def test_generators_are_seen_as_one():
    merged = merge([snapshot(1.0, 10, errors={"status 503": 1}), snapshot(2.0, 32, is_done=False)])

    assert merged.roles == {"push": Counts(requests=2, messages=42, empties=4)}
    assert merged.errors == {"status 503": 1}
    assert merged.latencies_us == {"push": [10, 32]}
    assert (merged.at_s, merged.cpu_s, merged.is_done) == (2.0, 1.0, False)


# --- goals ---


def goal(**changes):
    values = {
        "name": "row",
        "title": "a row",
        "needs": ("one",),
        "figure": COST,
        "limit": 10.0,
        "unit": "us",
    }
    return goals.Goal(**(values | changes))


@pytest.mark.parametrize(
    ("value", "is_minimum", "verdict"),
    [
        (10.0, False, goals.Verdict.MET),
        (10.1, False, goals.Verdict.MISSED),
        (10.0, True, goals.Verdict.MET),
        (9.9, True, goals.Verdict.MISSED),
        (None, False, goals.Verdict.NOT_MEASURED),
    ],
)
def test_a_limit_may_be_reached_but_not_passed(value, is_minimum, verdict):
    assert goal(is_minimum=is_minimum).judge(value) is verdict


def test_the_median_of_the_rounds_is_judged():
    rounds = [{"one": {COST: cost}} for cost in (9.0, 50.0, 8.0)]

    (row,) = goals.evaluate(rounds, [goal()])

    assert row.verdict is goals.Verdict.MET
    assert row.spread == Spread(median=9.0, low=8.0, high=50.0, count=3)


def test_a_ratio_is_taken_within_each_round():
    rounds = [
        {"one": {COST: 10.0}, "two": {COST: 12.0}},
        {"one": {COST: 20.0}, "two": {COST: 24.0}},
    ]

    (row,) = goals.evaluate(rounds, [goal(needs=("one", "two"), limit=1.3)])

    assert row.spread == Spread(median=1.2, low=1.2, high=1.2, count=2)


def test_a_ratio_without_one_of_its_scenarios_is_not_measured():
    (row,) = goals.evaluate([{"one": {COST: 10.0}}], [goal(needs=("one", "two"))])

    assert row.verdict is goals.Verdict.NOT_MEASURED


def test_every_goal_needs_scenarios_that_exist():
    names = {scenario.name for scenario in SCENARIOS}

    assert {need for goal in goals.GOALS for need in goal.needs} <= names
    assert len(names) == len(SCENARIOS)


def test_choosing_a_goal_chooses_the_scenarios_it_needs():
    names = [scenario.name for scenario in SCENARIOS]

    assert goals.select(names, ["flat-push"]) == ["push-segments-100", "push-segments-10000"]


def test_a_pattern_chooses_scenarios_by_name():
    assert goals.select(["push-1x1", "push-10x1", "idle"], ["push-1x*", "idle"]) == [
        "push-1x1",
        "idle",
    ]
