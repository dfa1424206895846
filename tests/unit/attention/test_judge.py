"""What needs attention: which facts make an item, how urgent, in which order."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.broker.attention import facts as seen
from skep.broker.attention.judge import ITEMS_MAX, drain_s, judge, spell_span
from skep.model.wire import QUEUE_MODE

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OLD = NOW - timedelta(hours=5)
BEHIND = {"queue": "orders", "group": "billing", "backlog": 1200, "lag_s": 400}


def items_of(**parts):
    return judge(seen.Facts(checked_at=NOW, **parts)).items


def of_group(condition, **members):
    return items_of(groups=[seen.GroupSeen(**{**BEHIND, "condition": condition, **members})])


def test_a_healthy_installation_needs_nothing():
    facts = {
        "groups": [
            seen.GroupSeen(queue="orders", group="billing", condition="consuming"),
            seen.GroupSeen(queue="orders", group="audit", condition="empty"),
        ],
        "queues": [seen.QueueSeen(name="orders", condition="active", in_per_second=5)],
        "pipelines": [
            seen.PipelineSeen(name="p", state="running", is_silent=False, error=None, since=NOW)
        ],
        "process": seen.ProcessSeen(connections=10, connections_max=100, dedup_share=0.5),
    }

    assert items_of(**facts) == []


def test_a_stalled_group_says_how_far_it_is_behind_and_since_when():
    [item] = of_group("stalled", group=QUEUE_MODE, growth=2.5, is_held=True, progressed_at=OLD)

    assert msgspec.to_builtins(item) == {
        "kind": "group-stalled",
        "severity": "critical",
        "queue": "orders",
        "group": QUEUE_MODE,
        "summary": "The default group on orders is stalled: 1,200 messages behind, the oldest for "
        "6 min 40 s",
        "cause": "Consumers hold messages and finish none: a handler hangs, or a consumer died.",
        "since": "2026-01-01T07:00:00.000Z",
        "lag": 1200,
        "lagSeconds": 400,
        "growthPerSecond": 2.5,
        "action": {
            "label": "Open group",
            "kind": "open",
            "path": f"/groups/{QUEUE_MODE}/orders",
        },
    }


@pytest.mark.parametrize(
    ("condition", "members", "kind", "severity"),
    [
        ("no-consumers", {}, "group-no-consumers", "critical"),
        ("no-consumers", {"lag_s": 100}, "group-no-consumers", "warning"),
        ("no-consumers", {"lag_s": 10}, "group-no-consumers", "notice"),
        ("lagging", {"growth": 1.0}, "group-lagging", "warning"),
        ("lagging", {"growth": -1.0}, "group-lagging", "notice"),
        ("lagging", {}, "group-lagging", "notice"),
        ("paused", {"is_paused": True}, "group-paused", "warning"),
        ("paused", {"is_paused": True, "backlog": 0}, "group-paused", "notice"),
        ("consuming", {"blocked_partitions": 2}, "partition-blocked", "warning"),
        ("stalled", {"blocked_partitions": 2}, "group-stalled", "critical"),
    ],
    ids=str,
)
def test_a_group_in_need_is_an_item(condition, members, kind, severity):
    assert [(item.kind, item.severity) for item in of_group(condition, **members)] == [
        (kind, severity)
    ]


def test_a_group_of_a_paused_queue_is_one_item_with_its_queue():
    queue = seen.QueueSeen(name="a b/c", condition="paused", is_paused=True, in_per_second=3)

    [item] = items_of(
        groups=[seen.GroupSeen(**BEHIND, condition="paused")],
        queues=[msgspec.structs.replace(queue, backlog=7)],
    )

    assert (item.kind, item.severity, item.lag) == ("queue-paused", "warning", 7)
    assert item.summary == "a b/c is paused: 7 messages wait, and more arrive"
    [alone] = items_of(queues=[msgspec.structs.replace(queue, backlog=1, in_per_second=0)])
    assert alone.summary == "a b/c is paused: 1 message waits"
    assert (item.action.kind, item.action.path) == (
        "resume-queue",
        "/api/v1/queues/a%20b%2Fc/resume",
    )


def test_new_dead_letters_are_one_item_with_the_request_that_redrives_just_these():
    letters = seen.LettersSeen(
        queue="orders", group="billing", count=3, since=OLD, last_at=NOW, error="boom\n  at x"
    )
    [item] = items_of(letters=[letters])

    assert (item.severity, item.cause, item.count) == ("warning", "Most frequent error: boom", 3)
    assert item.action.body == {
        "queue": "orders",
        "consumerGroup": "billing",
        "from": "2026-01-01T07:00:00.000Z",
    }
    assert items_of(letters=[msgspec.structs.replace(letters, last_at=OLD)])[0].severity == "notice"


PARTS = {
    "chains-failed": {"chains": [seen.ChainsSeen(type="order", count=2, since=OLD, error=None)]},
    "job-type-paused": {
        "job_types": [seen.JobTypeSeen(name="mail", is_paused=True, oldest_s=None)]
    },
    "jobs-waiting": {"job_types": [seen.JobTypeSeen(name="mail", is_paused=False, oldest_s=400)]},
    "pipeline-failed": {
        "pipelines": [
            seen.PipelineSeen(name="p", state="failed", is_silent=False, error="x", since=OLD)
        ]
    },
    "pipeline-silent": {
        "pipelines": [
            seen.PipelineSeen(name="p", state="running", is_silent=True, error=None, since=OLD)
        ]
    },
    "pipeline-stopped": {
        "pipelines": [
            seen.PipelineSeen(name="p", state="stopped", is_silent=False, error=None, since=OLD)
        ]
    },
    "archive-late": {"archives": [seen.ArchiveSeen(queue="q", late_s=9000, archived_at=None)]},
    "operation-stuck": {"stuck": [seen.StuckSeen(queue="q", partition="p", since=OLD)]},
    "instance-lost": {"lost": [seen.InstanceSeen(name="host:6632", silent_s=60)]},
    "maintenance-push": {"process": seen.ProcessSeen(is_push_maintenance=True, spilled=4)},
    "maintenance-pop": {"process": seen.ProcessSeen(is_pop_maintenance=True)},
    "spill-in-use": {"process": seen.ProcessSeen(spilled=4, is_database_away=True)},
    "spill-rejected": {"process": seen.ProcessSeen(rejected=1)},
    "dedup-memory": {"process": seen.ProcessSeen(dedup_share=0.95)},
    "connections": {"process": seen.ProcessSeen(connections=92, connections_max=97)},
}


@pytest.mark.parametrize("kind", PARTS)
def test_whatever_goes_wrong_is_an_item_with_a_cause_and_an_action(kind):
    [item] = items_of(**PARTS[kind])

    assert item.kind == kind
    assert item.summary
    assert item.cause.endswith((".", "x"))
    assert item.action.path.startswith("/")
    assert item.action.path.startswith("/api/") == (item.action.kind != "open")


def test_jobs_that_wait_without_a_worker_are_critical():
    waiting = PARTS["jobs-waiting"]
    assert [items_of(**waiting, workers=workers)[0].severity for workers in (0, 3)] == [
        "critical",
        "warning",
    ]


CONDITIONS = st.sampled_from(["stalled", "no-consumers", "lagging", "consuming", "empty"])
GROUPS = st.lists(
    st.builds(
        seen.GroupSeen,
        queue=st.text(min_size=1, max_size=8),
        group=st.text(min_size=1, max_size=8),
        condition=CONDITIONS,
        backlog=st.integers(0, 10**9),
        lag_s=st.floats(0, 1e7),
        growth=st.none() | st.floats(-1e6, 1e6),
        blocked_partitions=st.integers(0, 2),
    ),
    max_size=80,
)


@given(GROUPS)
def test_the_worst_come_first_and_fifty_at_most(groups):
    found = judge(seen.Facts(checked_at=NOW, groups=groups))

    ranks = [["critical", "warning", "notice"].index(item.severity) for item in found.items]
    assert ranks == sorted(ranks)
    assert len(found.items) == min(found.total, ITEMS_MAX)
    assert sum(found.counts.groups.values()) == len(groups)
    shown = {(item.queue, item.group) for item in found.items if item.kind == "group-stalled"}
    stalled = {(each.queue, each.group) for each in groups if each.condition == "stalled"}
    assert shown <= stalled
    assert shown == stalled or len(found.items) == ITEMS_MAX


@given(GROUPS, st.sets(st.text(min_size=1, max_size=2), max_size=5))
def test_a_restricted_caller_learns_of_its_queues_alone(groups, mine):
    facts = seen.Facts(
        checked_at=NOW, groups=groups, **{k: v for kind in PARTS.values() for k, v in kind.items()}
    )

    found = judge(facts.only(mine))

    assert {item.queue for item in found.items} <= mine
    assert sum(found.counts.groups.values()) == sum(each.queue in mine for each in groups)
    assert found.counts.messages == found.counts.jobs == found.counts.instances == {}


@pytest.mark.parametrize(
    ("backlog", "growth", "seconds"),
    [
        (100, -2.0, 50),
        (100, 2.0, None),
        (100, 0.0, None),
        (100, -5e-324, None),
        (100, None, None),
        (0, -1.0, None),
    ],
)
def test_a_backlog_that_shrinks_drains_at_its_pace(backlog, growth, seconds):
    assert drain_s(backlog, growth) == seconds


@pytest.mark.parametrize(
    ("seconds", "spelled"),
    [
        *((0.4, "0 s"), (59, "59 s"), (60, "1 min"), (95, "1 min 35 s"), (3600, "1 h")),
        *((7500, "2 h 5 min"), (40_000, "11 h"), (90_000, "1 d 1 h")),
    ],
)
def test_a_span_is_spelled_for_people(seconds, spelled):
    assert spell_span(seconds) == spelled
