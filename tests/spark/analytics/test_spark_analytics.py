"""Analytics on Spark: what is counted in both tiers, how it is kept, and what a failure leaves."""

import random
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from skep.model.encryption import KeyRing
from skep.model.encryption_key import EncryptionKey
from skep.model.errors import BadRequest, NotFound, Refused
from skep.spark.analytics.analytics import (
    KEYS_MAX,
    Analytics,
    AnalyticsBusy,
    AnalyticsPlan,
    analytics_progress,
    pattern_of,
)
from skep.spark.analytics.hours import HOUR, SETTLE, begin_of_hour
from skep.spark.analytics.lake import TABLES, AnalyticsLake
from skep.spark.archive.lake import Lake
from skep.spark.runtime.postgres import forget_connections
from tests.spark.support.archives import Shop, files_below
from tests.spark.support.logs import envelope

SIZED = StructType([StructField("payload_bytes", IntegerType()), StructField("offset", LongType())])
BOTH = StructType([*SIZED.fields, StructField("payload", StringType())])
VOLUME = (
    "select hour, queue, messages, bytes, partitions, busiest_messages from skep.analytics_volume"
)
KEYS = "select hour, queue, kind, key, messages, bytes from skep.analytics_key"


class Past(Shop):
    """A shop whose messages were stored in hours of the past."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.over = begin_of_hour(datetime.now(UTC) - SETTLE)

    @contextmanager
    def clock(self, moment):
        set_clock = "select set_config('skep.fake_now', $1, false)"
        self.writer.value(set_clock, moment.isoformat())
        yield
        self.writer.value(set_clock, "")

    def push_at(self, hours, *payloads, **where):
        """Store payloads so many hours before the end of the last hour that is over."""
        with self.clock(self.over - hours * HOUR):
            return self.writer.push(*payloads, **where)

    def analyze(self, session=None, *, warehouse=True, on_step=lambda _step: None, **choices):
        """Compute; return what was done."""
        choices.setdefault("warehouse", self.warehouse if warehouse else None)
        plan = AnalyticsPlan(url=self.url, storage=self.storage, **choices)
        with self.lake() as lake:
            return Analytics(lambda: session, lake, plan, on_step=on_step).run()

    def analyze_last_hour(self, **choices):
        return self.analyze(since=self.over - HOUR, **choices)

    def known(self, query):
        return sorted(self.writer.rows(query))

    def in_lake(self, table):
        """Return the rows of a table of the lake, without columns that PostgreSQL does not have."""
        estimates = ("lag_ms_p", "lag_ms_mean")
        columns = [name for name in TABLES[table].columns if not name.startswith(estimates)]
        with self.lake() as lake:
            scan = lake.catalog.load_table(f"skep.{table}").scan(selected_fields=tuple(columns))
            rows = scan.to_arrow().to_pylist()
        return sorted(tuple(row[name] for name in columns) for row in rows)


@pytest.fixture
def past(database_url, tmp_path, writer):
    yield Past(database_url, tmp_path / "lake", writer)
    forget_connections()


@pytest.fixture
def remembered(past):
    """A shop without queues, of whose past something is known."""
    past.writer.execute(
        "delete from skep.partition; delete from skep.consumer_group; delete from skep.queue"
    )
    past.writer.rows(
        "insert into skep.analytics_volume values ($1, 'gone', 5, 50, 2, 3)", past.over - HOUR
    )
    return past


def fill(past, chance):
    """Push at random; return the hour, queue, partition and size of each message."""
    stored = []
    # Times of a partition never go back, so neither does the clock.
    for hours in sorted(chance.choices([1, 2, 5, 24, 25], k=120), reverse=True):
        queue, partitions = chance.choice([("orders", 14), ("mail", 3), ("Ümlaut, 'x'", 1)])
        partition = f"p{chance.randrange(partitions)}"
        payloads = ["é" * chance.randrange(9) for _ in range(chance.randrange(1, 5))]
        past.push_at(hours, *payloads, queue=queue, partition=partition)
        begin = past.over - hours * HOUR
        # As `json.dumps` spells them: six characters for each é, and the quotes.
        stored += [(begin, queue, partition, 6 * len(text) + 2) for text in payloads]
    return stored


def model(stored):
    """Return volume and keys as they should be."""
    counts, sizes = Counter(), Counter()
    for hour, queue, partition, size in stored:
        counts[hour, queue, partition] += 1
        sizes[hour, queue, partition] += size
    volume, keys = [], []
    for hour, queue in {address[:2] for address in counts}:
        partitions = [address for address in counts if address[:2] == (hour, queue)]
        totals = [sum(counted[each] for each in partitions) for counted in (counts, sizes)]
        volume.append(
            (hour, queue, *totals, len(partitions), max(counts[each] for each in partitions))
        )
        busiest = sorted(partitions, key=lambda each: (-counts[each], each[2]))[:KEYS_MAX]
        keys += [(hour, queue, "partition", each[2], counts[each], sizes[each]) for each in busiest]
    return sorted(volume), sorted(keys)


def test_random_messages_of_both_tiers_are_counted_as_a_small_model_counts_them(past, spark):
    past.writer.partition("mail")
    # Not two hours: what came an hour before the last full one is so old when the next begins.
    past.configure("mail", archive_after_s=3 * 3600)
    volume, keys = model(fill(past, random.Random(4)))
    past.archive()
    past.read_all("mail")
    past.archive()
    mail = sum(row[2] for row in volume if row[1] == "mail")
    assert 0 < len(past.read(queue="mail", tier="live")) < mail

    done = past.analyze(spark, since=past.over - 25 * HOUR)

    assert done.messages == sum(row[2] for row in volume)
    assert past.known(VOLUME) == volume
    assert past.known(KEYS) == keys
    assert past.in_lake("hourly_volume") == volume
    assert past.in_lake("hourly_keys") == keys
    with past.lake() as lake:
        assert analytics_progress(lake).watermark == past.over

    again = past.analyze(spark, since=past.over - 3 * HOUR, until=past.over)
    assert 0 < again.messages < done.messages
    assert past.known(VOLUME) == past.in_lake("hourly_volume") == volume


def test_a_run_reads_only_what_came_after_the_last_one_and_late_commits(past, spark):
    past.push_at(6, 1, 2)
    past.analyze(spark, since=past.over - 6 * HOUR, until=past.over - 3 * HOUR)
    # As if that run had been made when these hours were over.
    past.writer.rows("update skep.analytics_run set taken_at = $1", past.over - 5 * HOUR)
    past.push_at(2, 3)
    past.push_at(4, 4, partition="late")

    done = past.analyze(spark)

    assert done.hours == (past.over - 4 * HOUR, past.over)
    assert done.messages == 2
    assert [row[2] for row in past.known(VOLUME)] == [2, 1, 1]
    assert past.analyze(None).hours is None


def test_what_retention_took_stays_counted(past, spark):
    past.push_at(2, 1, 2, 3)
    past.analyze(spark, since=past.over - 3 * HOUR)
    past.writer.execute("delete from skep.segment")

    past.analyze(spark, since=past.over - 3 * HOUR)

    assert [row[2:4] for row in past.known(VOLUME)] == [(3, 3)]


def test_values_of_an_expression_are_counted_beside_the_partitions(past, spark):
    customers = ["Ann", "Ann", "Bob", "x" * 300, "a\0b", None]
    past.push_at(1, *({"customer": name} for name in customers))
    key = "get_json_object(payload, '$.customer')"

    past.analyze(spark, queues=("orders",), key=key, since=past.over - HOUR)

    counted = {row[3]: row[4] for row in past.known(KEYS) if row[2] == "key"}
    assert counted == {"Ann": 2, "Bob": 1, "x" * 255: 1, "ab": 1}
    with past.lake() as lake:
        assert analytics_progress(lake).watermark is None
    with pytest.raises(BadRequest, match="nosuch"):
        past.analyze(spark, queues=("orders",), key="nosuch + 1", since=past.over - HOUR)


def test_hours_of_brokers_letters_and_groups_go_to_the_lake_with_the_rest(remembered):
    hour = remembered.over - HOUR
    counts = [0] * 16
    counts[3] = 4
    for row in (
        "delivery values ($1, 'gone', 5, 4, 1, 3, 1, 28, 9, array["
        + ",".join(map(str, counts))
        + "])",
        "letter values ($1, 'gone', 'readers', '<b>', 1, 2, 3, 4)",
        "lag values ($1, 'gone', 'readers', 60, 1.5, 3, 2.5, 9)",
    ):
        remembered.writer.rows(f"insert into skep.analytics_{row}", hour)

    remembered.analyze_last_hour()

    assert remembered.in_lake("hourly_letters") == [(hour, "gone", "readers", "<b>", 1, 2, 3, 4)]
    assert remembered.in_lake("hourly_lags") == [(hour, "gone", "readers", 60, 1.5, 3, 2.5, 9)]
    with remembered.lake() as lake:
        table = lake.catalog.load_table("skep.hourly_deliveries").scan().to_arrow()
    (row,) = table.to_pylist()
    assert (row["delivered"], row["redelivered"], row["lag_counts"]) == (4, 1, counts)
    assert (row["lag_ms_mean"], row["lag_ms_p50"], row["lag_ms_max"]) == (7.0, 7.0, 9)


@pytest.mark.parametrize("step", ["counted", "stored", "written"])
def test_a_run_that_dies_changes_nothing_and_its_files_go_when_they_are_old(
    remembered, tmp_path, step
):
    remembered.analyze_last_hour()
    remembered.writer.execute("update skep.analytics_volume set messages = 6")
    before = files_below(tmp_path)

    def die(reached):
        if reached == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        remembered.analyze_last_hour(on_step=die)

    assert remembered.writer.value("select count(*) from skep.analytics_run") == 1
    assert [row[2] for row in remembered.in_lake("hourly_volume")] == [5]
    left = files_below(tmp_path) - before
    remembered.analyze_last_hour()
    assert [row[2] for row in remembered.in_lake("hourly_volume")] == [6]

    with remembered.lake() as lake:
        AnalyticsLake(lake, None).tidy(datetime.now(UTC) + timedelta(days=4))

    assert not left & files_below(tmp_path)


def test_old_snapshots_are_forgotten_and_their_files_go(remembered, tmp_path):
    for messages in (6, 7):
        remembered.writer.execute(f"update skep.analytics_volume set messages = {messages}")
        remembered.analyze_last_hour()
    assert len(list(tmp_path.rglob("*.parquet"))) == 2

    with remembered.lake() as lake:
        tables = AnalyticsLake(lake, None)
        assert tables.ensure_tables()
        removed = tables.tidy(datetime.now(UTC) + timedelta(days=2))

    assert removed > 1
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    assert [row[2] for row in remembered.in_lake("hourly_volume")] == [7]


def test_without_a_warehouse_results_are_in_postgresql_only(remembered, tmp_path):
    done = remembered.analyze_last_hour(warehouse=False)

    assert not done.has_lake
    assert files_below(tmp_path) == set()
    with remembered.lake() as lake:
        assert analytics_progress(lake).watermark == remembered.over


def test_two_runs_at_a_time_are_refused(remembered):
    def again(step):
        if step == "counted":
            remembered.analyze_last_hour()

    with pytest.raises(AnalyticsBusy):
        remembered.analyze_last_hour(on_step=again)


def test_what_cannot_be_computed_is_refused_before_anything_runs(past):
    past.configure(encryption_enabled="true")

    with pytest.raises(BadRequest, match="--key needs --queue"):
        past.analyze(key="partition")
    with pytest.raises(NotFound, match="nothing"):
        past.analyze(queues=("nothing",))
    with pytest.raises(Refused, match="in the clear"):
        past.analyze(queues=("orders",), key="partition")


def test_sealed_payloads_are_measured_without_their_key_in_both_tiers(past):
    ring = KeyRing([EncryptionKey("k1", bytes.fromhex("2b" * 32))])
    payloads = ['"' + "x" * size + '"' for size in range(7)]
    with past.clock(past.over - 3 * HOUR):
        past.writer.push_envelopes(*(ring.seal_envelope(envelope(each)) for each in payloads))
    sizes = [len(each) for each in payloads]

    def measured(schema=SIZED, **options):
        rows = sorted(past.rows(schema, tier="all", **options), key=lambda row: row["offset"])
        return [row["payload_bytes"] for row in rows]

    assert measured() == sizes
    past.archive()
    past.read_all()
    past.archive()
    assert past.live() == []
    assert measured() == sizes
    assert measured(BOTH, encryptionKeys="k1:" + "2b" * 32) == sizes


def test_a_pattern_matches_the_queues_it_is_made_of_and_no_others(past):
    names = ("a.b", "a+b", "x|y", "plain", "Ümlaut, 'x'", "back\\slash")
    for name in (*names, "axb", "x", "y", "plain2"):
        past.writer.partition(name)

    found = past.writer.rows("select name from skep.find_queues(null, $1)", pattern_of(names))

    assert sorted(row[0] for row in found) == sorted(names)
    assert len(past.writer.rows("select * from skep.find_queues(null, $1)", pattern_of(()))) == 11


def test_a_lake_can_be_opened_without_any_table(database_url):
    with Lake(database_url, {}) as lake:
        assert not AnalyticsLake(lake, None).ensure_tables()
