"""What the meters of an instance tell about its needs."""

from skep.broker.attention.facts import ProcessSeen
from skep.broker.attention.read import process_seen
from skep.telemetry.snapshots import Snapshot


def worker(number, **gauges):
    return Snapshot(
        worker=number,
        pid=number,
        started_at=0,
        counters={},
        histograms={},
        gauges={
            "skep_maintenance_mode": {("push",): 0, ("pop",): 1},
            **{f"skep_{name}": {(): value} for name, value in gauges.items()},
        },
    )


def test_the_worst_of_the_workers_counts():
    snapshots = [
        worker(0, dedup_keys=50, dedup_keys_max=100, spill_pending_messages=3),
        worker(1, dedup_keys=90, dedup_keys_max=100, dedup_lacking_seconds=4, database_away=1),
    ]

    assert process_seen(snapshots) == ProcessSeen(
        is_pop_maintenance=True,
        is_database_away=True,
        spilled=3,
        dedup_share=0.9,
        dedup_lacking_s=4,
    )


def test_without_meters_nothing_is_the_matter():
    assert process_seen([]) == ProcessSeen()
