import asyncio

import pytest

from skep.telemetry.exposition import expose
from skep.telemetry.families import FAMILIES
from skep.telemetry.meters import Meters
from skep.telemetry.snapshots import Publisher, SnapshotBoard
from tests.tidy.tree import ROOT


def make(directory, worker, pushed=0, **options):
    meters = Meters(**options)
    meters.queues.of("a").push_messages += pushed
    return Publisher(meters, SnapshotBoard(directory, worker), worker=worker, version="1")


def shown(text, beginning):
    lines = text.decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines
            if line.startswith(beginning)}  # fmt: skip


async def test_whoever_is_asked_shows_all_workers(tmp_path):
    first, second = make(tmp_path, 0, pushed=3), make(tmp_path, 1, pushed=4)
    second.start()
    await second.stop()

    text = expose(first.gather())

    assert shown(text, 'skep_pushed_messages_total{queue="a"}') == {
        'skep_pushed_messages_total{queue="a"}': 7
    }
    assert shown(text, "skep_build_info") == {
        'skep_build_info{version="1",worker="0"}': 1,
        'skep_build_info{version="1",worker="1"}': 1,
    }


async def test_a_worker_goes_on_where_the_one_before_it_ended(tmp_path):
    before = make(tmp_path, 0, pushed=3)
    before.start()
    await before.stop()

    snapshot = make(tmp_path, 0, pushed=4).take()

    assert snapshot.counters["skep_pushed_messages"][("a",)] == 7


async def test_without_a_directory_a_worker_shows_itself():
    publisher = make(None, 2, pushed=1)
    publisher.start()
    await publisher.stop()

    assert [each.worker for each in publisher.gather()] == [2]


@pytest.mark.parametrize("junk", [b"", b"\x93\x01", b"\xc1"])
async def test_a_file_that_cannot_be_read_is_passed_over(tmp_path, junk):
    (tmp_path / "metrics-of-worker-7.msgpack").write_bytes(junk)

    assert [each.worker for each in make(tmp_path, 0).gather()] == [0]


async def test_a_directory_that_is_gone_does_not_end_the_publishing(tmp_path):
    publisher = make(tmp_path / "gone", 0, pushed=1)
    publisher.start()
    await asyncio.sleep(0)
    await publisher.stop()

    assert publisher.take().counters["skep_pushed_messages"][("a",)] == 1


def shown_name(family):
    return f"{family.name}_total" if family.kind == "counter" else family.name


async def test_every_family_is_shown_and_no_partition_is_a_label(tmp_path):
    text = expose(make(tmp_path, 0).gather()).decode()

    for family in FAMILIES:
        assert f"# TYPE {shown_name(family)} {family.kind}" in text
        assert not {"partition", "group"} & set(family.labels)


def test_every_family_is_described_on_the_page():
    page = (ROOT / "docs" / "reference" / "observability.md").read_text()

    def row(family):
        labels = (("worker",) if family.kind == "gauge" else ()) + family.labels
        meaning = family.text.rstrip(".")
        return f"| `{shown_name(family)}` | {family.kind} | {', '.join(labels)} | {meaning} |"

    assert [row(each) for each in FAMILIES if row(each) not in page] == []


async def test_a_histogram_is_shown_with_counts_that_add_up(tmp_path):
    publisher = make(tmp_path, 0)
    publisher._meters.loop_lag.observe(0.0007)
    publisher._meters.loop_lag.observe(99)

    text = expose(publisher.gather())

    buckets = shown(text, "skep_event_loop_lag_seconds_bucket")
    assert list(buckets.values()) == sorted(buckets.values())
    assert buckets['skep_event_loop_lag_seconds_bucket{le="0.0005"}'] == 0
    assert buckets['skep_event_loop_lag_seconds_bucket{le="60"}'] == 1
    assert buckets['skep_event_loop_lag_seconds_bucket{le="+Inf"}'] == 2


async def test_names_of_queues_are_escaped(tmp_path):
    publisher = make(tmp_path, 0)
    publisher._meters.queues.of('a"b\\c\nd').push_messages += 1

    assert b'skep_pushed_messages_total{queue="a\\"b\\\\c\\nd"} 1.0' in expose(publisher.gather())
