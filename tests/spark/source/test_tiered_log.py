"""Archive and live log read as one: no gap and no duplicate, whatever moves meanwhile."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from skep.model.errors import NotFound
from skep.spark.archive.read import ArchiveChanged
from skep.spark.decode.segments import MalformedPayload
from skep.spark.runtime.postgres import forget_connections
from skep.spark.source.message_log import DataLost, Partitions, RestoredDatabase
from skep.spark.source.positions import NOTHING, Address, Snapshot, Span
from skep.spark.source.tiered_log import Boundary, TieredLog
from tests.spark.support.archives import Shop, files_below, payloads_of, run_tasks
from tests.spark.support.logs import envelope
from tests.spark.support.spans import includes

ONE = Partitions((1,), ("orders",), None)
SKEP = StructType(
    [
        StructField("queue", StringType()),
        StructField("partition", StringType()),
        StructField("offset", LongType()),
        StructField("message_id", StringType()),
        StructField("transaction_id", StringType()),
        StructField("payload", StringType()),
        StructField("headers", MapType(StringType(), StringType())),
        StructField("producer", StringType()),
        StructField("trace_id", StringType()),
        StructField("created_at", TimestampType()),
        StructField("xid", LongType()),
    ]
)
HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
KAFKA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", LongType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(HEADER)),
    ]
)


@pytest.fixture
def shop(database_url, tmp_path, writer):
    yield Shop(database_url, tmp_path / "lake", writer)
    forget_connections()


@pytest.fixture
def tiered(shop):
    """A shop with 1 in the lake only, 2 in both tiers, and 3 in the live log only."""
    shop.push_old(1)
    shop.read_all()
    shop.push_old(2)
    shop.archive()
    shop.writer.push(3)
    return shop


snapshots = st.builds(
    lambda xmax, open_: Snapshot(xmax, frozenset(xid for xid in open_ if xid < xmax)),
    st.integers(3, 30),
    st.frozensets(st.integers(1, 30), max_size=4),
)


@given(
    seen=snapshots, upto=snapshots, mark=st.integers(1, 35), xid=st.integers(1, 34),
    after=st.none() | st.integers(1, 34),
)  # fmt: skip
def test_a_segment_is_in_exactly_one_tier_of_a_span(seen, upto, mark, xid, after):
    span = Span(seen, upto, None if after is None else Address(after, 0, 0))
    address = Address(xid, 1, 1)
    boundary = Boundary(ONE, mark)
    archived = boundary.archived(span)

    is_archived = archived is not None and includes(archived, address)
    is_live = includes(boundary.live(span), address) and (mark == 1 or xid >= mark)

    assert includes(boundary.live(span), address) == is_live
    assert is_archived + is_live == includes(span, address)
    assert not is_archived or xid < mark


def test_each_tier_and_both_are_read_without_gap_or_duplicate(tiered):
    assert tiered.read(tier="live") == [2, 3]
    assert tiered.read(tier="archive") == [1, 2]
    assert tiered.read(tier="all") == [1, 2, 3]
    assert tiered.read() == [2, 3]


def test_without_an_archive_both_tiers_are_the_live_log(shop):
    shop.writer.push(1)

    assert shop.read(tier="all") == [1]
    with pytest.raises(NotFound, match="nothing of queue orders is archived"):
        shop.read(tier="archive")


def test_a_log_that_is_all_in_the_archive_is_read_from_there(shop):
    shop.push_old(1)
    shop.read_all()
    shop.archive()

    assert (shop.live(), shop.read(tier="all")) == ([], [1])


@pytest.mark.parametrize("shape", ["skep", "kafka"])
def test_a_message_reads_the_same_from_either_tier(shop, shape):
    shop.writer.push_envelopes(
        envelope('{"a": "é"}', "tx-a", producer="me", headers={"x": "1", "n": 2.5, "z": None}),
        envelope("2", trace_id="01890000-0000-7000-8000-000000000001"),
    )
    shop.writer.execute("update skep.segment set created_at = now() - interval '2 hours'")
    schema = KAFKA if shape == "kafka" else SKEP
    options = {"shape": shape, "includeHeaders": "true"}
    before = shop.rows(schema, tier="live", **options)

    shop.archive()

    assert shop.rows(schema, tier="archive", **options) == before
    assert len(before) == 2


def test_payloads_are_parsed_from_the_archive_as_from_the_log(shop):
    shop.push_old({"id": 7}, {"id": "x"})
    shop.archive()
    payload = StructType([StructField("id", IntegerType())])
    schema = StructType([StructField("payload", payload), StructField("offset", LongType())])

    with pytest.raises(MalformedPayload, match=r"does not fit the schema of the payload.*\$\.id"):
        shop.rows(schema, tier="archive")
    kept = shop.rows(schema, tier="archive", payloadErrors="null")

    assert [row["payload"] for row in kept] == [{"id": 7}, None]


def test_expired_messages_are_left_out_of_the_archive_as_of_the_log(shop):
    now = datetime.now(UTC)
    shop.writer.push_envelopes(
        envelope("1"),
        envelope("2", expires_at=now - timedelta(seconds=5)),
        envelope("3", expires_at=now + timedelta(hours=1)),
    )
    shop.writer.execute("update skep.segment set created_at = now() - interval '2 hours'")
    shop.archive()

    assert shop.read(tier="archive") == [1, 3]
    assert shop.read(tier="archive", includeExpired="true") == [1, 2, 3]


def test_times_queues_and_partitions_bound_what_is_read_of_both_tiers(shop):
    shop.push_old(1, hours=30)
    shop.push_old(2, hours=2, partition="b")
    shop.push_old(10, queue="other")
    shop.archive()
    shop.writer.push(3, partition="b")
    shop.writer.push(11, queue="other")
    day_ago = (datetime.now(UTC) - timedelta(days=1)).isoformat()

    def read(**options):
        return shop.read(tier="all", **options)

    assert read(startingTimestamp=day_ago) == [2, 3]
    assert read(endingTimestamp=day_ago) == [1]
    assert read(queue=None, assign='{"orders": ["b"]}') == [2, 3]
    assert read(queue=None, subscribe="orders,other") == [1, 2, 3, 10, 11]


def test_queues_with_different_watermarks_are_read_each_by_its_own(shop):
    for name in ("orders", "other"):
        shop.push_old(f"{name} 1", queue=name)
        shop.configure(queue=name, archive_after_s=3600, dedup_window_s=0)
        shop.read_all(name)
    shop.archive(queues=("other",))
    shop.push_old("orders 2")
    shop.push_old("other 2", queue="other")
    shop.read_all()
    shop.archive(queues=("orders",))
    shop.writer.push("orders 3")

    found = shop.read(tier="all", queue=None, subscribe="orders,other")

    assert found == ["orders 1", "orders 2", "orders 3", "other 1", "other 2"]


def test_a_queue_that_was_deleted_and_made_again_does_not_find_the_messages_of_the_old_one(shop):
    shop.push_old(1)
    shop.archive()
    shop.writer.execute(
        "delete from skep.segment; delete from skep.partition; delete from skep.consumer_group;"
        "delete from skep.queue"
    )
    shop.push_old(2)
    shop.configure(archive_after_s=3600)
    shop.archive()

    assert shop.read(tier="all") == [2]
    assert shop.archived() == [1, 2]


def test_files_are_shared_out_among_tasks(shop):
    for number in range(6):
        shop.push_old(number)
    shop.archive(messages_per_task=1)

    assert len(shop.reader(tier="archive").partitions()) == 1
    tasks = shop.reader(tier="archive", minPartitions="3").partitions()
    assert len(tasks) == 3
    assert shop.read(tier="archive", minPartitions="3") == [0, 1, 2, 3, 4, 5]


def test_an_archive_run_between_planning_and_reading_takes_nothing_away(shop):
    shop.push_old(1)
    shop.push_old(2)
    shop.writer.push(3)
    shop.read_all()
    reader = shop.reader(tier="all")
    tasks = reader.partitions()

    shop.archive()

    assert shop.live() == [3]
    assert payloads_of(run_tasks(reader, tasks)) == [1, 2, 3]


def test_an_archive_run_in_the_middle_of_planning_is_noticed(shop, monkeypatch):
    shop.push_old(1)
    shop.push_old(2)
    shop.writer.push(3)
    shop.read_all()
    divide, runs = TieredLog.divide, []

    def interrupted(self, *arguments, **limits):
        if not runs:
            runs.append(shop.archive())
        return divide(self, *arguments, **limits)

    monkeypatch.setattr(TieredLog, "divide", interrupted)

    assert shop.read(tier="all") == [1, 2, 3]
    assert runs[0].deleted == 2


def test_what_retention_removed_between_planning_and_reading_is_still_a_loss(shop):
    shop.push_old(1)
    shop.writer.push(2)
    reader = shop.reader(tier="all")
    tasks = reader.partitions()
    shop.writer.execute("delete from skep.segment where first = 1")

    with pytest.raises(DataLost, match="1 of 2 segments of queue orders"):
        run_tasks(reader, tasks)
    shop.push_old(3)
    shop.archive()
    with pytest.raises(DataLost, match="1 of 2 segments of queue orders"):
        run_tasks(reader, tasks)


def test_a_file_that_is_gone_asks_for_another_plan(tiered, tmp_path):
    reader = tiered.reader(tier="all")
    tasks = reader.partitions()
    for path in files_below(tmp_path):
        if path.endswith(".parquet"):
            (tmp_path / path).unlink()

    with pytest.raises(ArchiveChanged, match="run the query again"):
        run_tasks(reader, tasks)


def test_positions_lead_from_one_tier_into_the_other(tiered):
    log = TieredLog(tiered.reader(tier="all")._options)
    end = str(log.present(log.partitions()).position())
    tiered.writer.push(4)

    assert tiered.read(tier="all", endingOffsets=end) == [1, 2, 3]
    assert tiered.read(tier="all", startingOffsets=end) == [4]
    tiered.writer.execute("update skep.segment set created_at = now() - interval '2 hours'")
    tiered.read_all()
    tiered.archive()
    assert tiered.live() == []
    assert tiered.read(tier="all", startingOffsets=end) == [4]
    assert tiered.read(tier="all", endingOffsets=end) == [1, 2, 3]
    with pytest.raises(DataLost, match="They are in the archive: set tier to all"):
        tiered.read(tier="live", startingOffsets=end)


def test_the_archive_of_another_server_is_not_mixed_with_this_log(tiered):
    tiered.writer.execute("update skep.archive set system = '1:1'")

    assert tiered.read(tier="live") == [2, 3]
    for tier in ("archive", "all"):
        with pytest.raises(RestoredDatabase, match="read with tier=live"):
            tiered.read(tier=tier)


def test_nothing_is_asked_about_an_archive_when_only_the_log_is_read(tiered):
    log = TieredLog(tiered.reader(tier="live")._options)

    assert log.boundaries(ONE) == [Boundary(ONE, 1)]
    assert Boundary(ONE, 1).archived(Span(NOTHING, Snapshot(100))) is None
