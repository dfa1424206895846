"""Pipelines run on Spark: windows to queues and tables, restarts, stops and failures."""

import json
import shutil
import threading
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError

from skep.spark.archive.lake import Lake, WrongWarehouse
from skep.spark.archive.result_table import TableTaken, find_result_table, result_files
from skep.spark.pipelines.pipeline import InvalidPipeline
from skep.spark.pipelines.registry import PipelineBusy, PipelineChanged, Registry
from skep.spark.pipelines.run import (
    CheckpointGone,
    ExpectationFailed,
    PipelineFailed,
    _are_over,
    stop_queries,
)
from skep.spark.runtime.postgres import forget_connections
from tests.spark.support.pipelines import CLOSING_MS, COUNTS, Pipelines, messages_of

pytestmark = pytest.mark.slow


@pytest.fixture
def pipelines(spark, database_url, tmp_path, writer):
    writer.partition("orders")
    yield Pipelines(database_url, tmp_path)
    forget_connections()


def push(writer, *pairs, partition="a"):
    writer.push(*({"at": at, "n": n} for at, n in pairs), partition=partition)


def record(writer, name="counts"):
    (row,) = writer.rows(
        "select state, batches, messages, lag_messages, last_error, position::text"
        f" from skep.pipeline where name = '{name}'"
    )
    return row


def windows(writer, queue="counts"):
    return [
        (partition, data["window_start"][14:19], data["count"], data["total"])
        for partition, data in messages_of(writer, queue)
    ]


def test_closed_windows_get_into_the_queue_once_over_several_runs(pipelines, writer):
    push(writer, (1_000, 1), (2_000, 2))
    pipelines.run()
    assert windows(writer) == []

    push(writer, (3_000, 4), (12_000, 8))
    push(writer, (CLOSING_MS, 0))
    done = pipelines.run()

    assert windows(writer) == [("a", "00:00", 3, 7), ("a", "00:10", 1, 8)]
    assert done.messages == 3
    state, _, messages, lag, error, position = record(writer)
    assert (state, messages, lag, error) == ("stopped", 3, 0, None)
    assert len(json.loads(position)["queue"]) == 1
    assert sum(batch.rows for batch in done.recent) == 3
    assert all(batch.duration_ms > 0 for batch in done.recent)
    ((recent,),) = writer.rows("select recent::text from skep.pipeline")
    assert [each["number"] for each in json.loads(recent)] == [each.number for each in done.recent]

    pipelines.run()
    assert len(windows(writer)) == 2


def test_a_changed_definition_is_refused_until_it_is_reset(pipelines, writer):
    push(writer, (1_000, 1), (CLOSING_MS, 0))
    pipelines.run()
    changed = COUNTS.replace("size: 10s", "size: 20s")

    with pytest.raises(PipelineChanged, match="--reset"):
        pipelines.run(changed)
    pipelines.run(COUNTS.replace("trigger: availableNow", "trigger: once"))
    pipelines.run(changed, is_reset=True)

    assert windows(writer) == [("a", "00:00", 1, 1), ("a", "00:00", 1, 1)]


def test_a_pipeline_whose_checkpoint_is_gone_does_not_begin_anew_by_itself(
    pipelines, writer, tmp_path
):
    push(writer, (1_000, 1))
    pipelines.run()

    with pytest.raises(CheckpointGone, match="--checkpoint"):
        pipelines.run(checkpoint=str(tmp_path / "elsewhere"))

    assert record(writer)[0] == "failed"


TABLE = """
name: shops
sources:
  orders: {queue: orders, schema: n BIGINT}
sql: select partition as shop, payload.n as n, created_at as at from orders where payload.n > 0
sink: {table: shops, partitionBy: [shop]}
trigger: availableNow
"""


def rows_of(pipelines, name="shops"):
    with Lake(pipelines.url, {}) as lake:
        found = find_result_table(lake, name).scan().to_arrow().to_pylist()
    return sorted((row["shop"], row["n"]) for row in found)


def test_sql_goes_to_a_queue_and_a_table(pipelines, writer, spark):
    push(writer, (1_000, 1), (2_000, 2), (3_000, 3))
    definition = """
name: doubled
sources:
  orders: {queue: orders, schema: n BIGINT}
sql: |
  select partition as partition, payload.n * 2 as doubled from orders where payload.n > 1
sink: {queue: doubled, partition: "concat('to-', partition)", table: doubled}
trigger: availableNow
"""

    pipelines.run(definition)

    assert messages_of(writer, "doubled") == [
        ("to-a", {"partition": "a", "doubled": 4}),
        ("to-a", {"partition": "a", "doubled": 6}),
    ]
    with Lake(pipelines.url, {}) as lake:
        files = [each.address for each in result_files(lake, "doubled")]
    rows = spark.read.parquet(*files).collect()
    assert sorted(tuple(row) for row in rows) == [("a", 4), ("a", 6)]
    assert set(json.loads(record(writer, "doubled")[5])) == {"queue", "table"}


def test_two_queues_are_joined_and_go_to_several_outputs(pipelines, writer):
    definition = """
name: refunds
sources:
  orders:
    queue: orders
    schema: id BIGINT, at BIGINT, n BIGINT
    eventTime: timestamp_millis(payload.at)
    watermark: 1s
  refunds:
    queue: refunds
    schema: order BIGINT, at BIGINT
    eventTime: timestamp_millis(payload.at)
    watermark: 1s
outputs:
  refunded:
    sql: |
      select o.partition as shop, o.payload.n as n from orders o join refunds r
      on o.payload.id = r.payload.order
      and r.event_time between o.event_time and o.event_time + interval 1 hour
    sink: {table: refunded}
  large:
    sql: select partition, payload from orders where payload.n > 10
    sink: {queue: large}
trigger: availableNow
"""
    orders = [{"id": each, "at": 1_000, "n": 10 * each} for each in (1, 2, 3)]
    writer.push(*orders, partition="paris")
    writer.partition("refunds")
    writer.push({"order": 2, "at": 2_000}, {"order": 3, "at": CLOSING_MS}, queue="refunds")

    pipelines.run(definition)

    assert rows_of(pipelines, "refunded") == [("paris", 20)]
    assert [data["n"] for _, data in messages_of(writer, "large")] == [20, 30]
    state, *_, position = record(writer, "refunds")
    assert state == "stopped"
    assert set(json.loads(position)) == {"refunded.table", "large.queue"}


def test_expectations_are_counted_and_decide_about_rows(pipelines, writer):
    definition = TABLE.replace(
        "sink:",
        """expect:
  small: {check: n < 3}
  odd: {check: n % 2 = 1, otherwise: drop}
  known: {check: shop is not null, otherwise: fail}
sink:""",
    )
    push(writer, (1_000, 1), (1_000, 2), (1_000, 3))

    done = pipelines.run(definition)

    assert rows_of(pipelines) == [("a", 1), ("a", 3)]
    counted = [(each.name, each.otherwise, each.rows, each.failed) for each in done.expectations]
    assert counted == [("small", "warn", 3, 1), ("odd", "drop", 3, 1), ("known", "fail", 3, 0)]
    ((told,),) = writer.rows("select expectations::text from skep.pipeline where name = 'shops'")
    assert json.loads(told)[1] == {
        "sink": "table",
        "name": "odd",
        "otherwise": "drop",
        "rows": 3,
        "failed": 1,
    }

    push(writer, (2_000, 5))
    with pytest.raises(ExpectationFailed, match="the expectation known: n < 5 is not true of a"):
        pipelines.run(definition.replace("shop is not null", "n < 5"))
    assert rows_of(pipelines) == [("a", 1), ("a", 3)]
    done = pipelines.run(definition)
    assert rows_of(pipelines) == [("a", 1), ("a", 3), ("a", 5)]
    assert [(each.rows, each.failed) for each in done.expectations] == [(1, 1), (1, 0), (1, 0)]


def test_a_table_goes_on_with_its_checkpoint_and_begins_anew_with_a_new_one(
    pipelines, writer, tmp_path
):
    push(writer, (1_000, 1))
    push(writer, (1_000, 2), partition="b")
    pipelines.run(TABLE)
    push(writer, (2_000, 3))
    pipelines.run(TABLE)
    everything = [("a", 1), ("a", 3), ("b", 2)]
    assert rows_of(pipelines) == everything

    elsewhere = str(tmp_path / "elsewhere")
    with pytest.raises(CheckpointGone):
        pipelines.run(TABLE, checkpoint=elsewhere)
    with pytest.raises(TableTaken, match="belongs to pipeline shops: choose another name"):
        pipelines.run(TABLE.replace("name: shops", "name: others"), checkpoint=elsewhere)
    assert record(writer, "others")[0] == "failed"

    Path(pipelines.checkpoint).rename(tmp_path / "kept")
    shutil.copytree(tmp_path / "kept", pipelines.checkpoint)
    for batch in Path(pipelines.checkpoint).glob("table/*/1"):
        batch.unlink()
    with pytest.raises(TableTaken, match="the checkpoint knows none after 0: it is an older copy"):
        pipelines.run(TABLE)
    with pytest.raises(WrongWarehouse):  # before anything is forgotten
        pipelines.run(TABLE, is_reset=True, warehouse=None)
    shutil.rmtree(pipelines.checkpoint)
    Path(tmp_path / "kept").rename(pipelines.checkpoint)
    pipelines.run(TABLE)
    assert rows_of(pipelines) == everything

    pipelines.run(TABLE, is_reset=True)
    assert rows_of(pipelines) == everything


def test_a_table_that_was_made_anew_meanwhile_ends_the_run_in_one_line(pipelines, writer):
    push(writer, (1_000, 1))
    asked = []

    def make_it_anew(progress):
        if progress.batches and not asked:
            asked.append(progress)
            with Lake(pipelines.url, {}) as lake:
                table = find_result_table(lake, "shops")
                with table.transaction() as change:
                    change.set_properties({"skep.generation": "another"})
            push(writer, (2_000, 2))

    running = TABLE.replace("trigger: availableNow", "trigger: {every: 100ms}")
    with pytest.raises(PipelineFailed, match=r"^table shops was made anew by another run"):
        pipelines.run(running, on_progress=make_it_anew)

    assert rows_of(pipelines) == [("a", 1)]
    assert record(writer, "shops")[4].startswith("table shops was made anew")


def test_a_table_needs_a_warehouse_before_anything_is_written(pipelines):
    both = TABLE.replace("{table: shops", "{queue: copied, table: shops")

    with pytest.raises(WrongWarehouse, match="pass --warehouse, or set archive_warehouse"):
        pipelines.run(both, warehouse=None)

    assert not (Path(pipelines.checkpoint) / "queue").exists()


def test_a_python_file_defines_a_pipeline_with_a_function(pipelines, writer, tmp_path):
    push(writer, (1_000, 1), (2_000, 2))
    path = tmp_path / "partitions.py"
    path.write_text(
        """
from pyspark.sql import functions as f
from skep.spark.pipelines.pipeline import Pipeline, Sink, Source

def tenfold(n: int) -> int:
    return n * 10

def compute(orders):
    grown = f.udf(tenfold, "bigint")("payload.n")
    return orders.select("partition", f.struct(grown.alias("n")).alias("payload"))

def pipeline():
    return Pipeline(
        name="partitions", sources={"orders": Source(queue=["orders"], schema="n BIGINT")},
        function=compute, sink=Sink(queue="tenfold"), trigger="availableNow",
    )
"""
    )

    pipelines.run(str(path))

    assert messages_of(writer, "tenfold") == [("a", {"n": 10}), ("a", {"n": 20})]


def test_a_pipeline_is_stopped_through_the_table(pipelines, writer):
    push(writer, (1_000, 1))
    asked = []

    def stop_it(progress):
        if progress.batches and not asked:
            asked.extend(writer.rows("select state from skep.stop_pipeline('counts')"))

    done = pipelines.run(
        COUNTS.replace("trigger: availableNow", "trigger: {every: 100ms}"), on_progress=stop_it
    )

    assert asked == [("running",)]
    assert done.messages == 1
    assert record(writer)[0] == "stopped"


def test_only_one_runs_a_pipeline_at_a_time(pipelines, writer):
    first = Registry(pipelines.url)
    first.lock("counts")

    with pytest.raises(PipelineBusy, match="is already running"):
        pipelines.run()
    first.close()
    pipelines.run()


def test_a_run_that_lost_its_place_to_another_ends(pipelines, writer):
    push(writer, (1_000, 1))
    stop = threading.Event()
    everywhere = COUNTS.replace("trigger: availableNow", "trigger: {every: 100ms}")

    def take_its_place(progress):
        writer.execute("update skep.pipeline set run_id = gen_random_uuid(), state = 'starting'")

    pipelines.run(everywhere, stop, on_progress=take_its_place)

    assert not stop.is_set()
    assert record(writer)[0] == "starting"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("queue: orders", "queue: nowhere"), "queue nowhere does not exist"),
        (("sum(payload.n)", "sum(payload.m)"), "No such struct field `m`"),
        (
            ("at BIGINT, n", "at NONSENSE, n"),
            "sources.orders.schema: 'at NONSENSE, n BIGINT' is no schema",
        ),
    ],
)
def test_what_fails_is_on_record_in_one_line(pipelines, writer, change, said):
    push(writer, (1_000, 1))

    with pytest.raises((PipelineFailed, InvalidPipeline), match=said):
        pipelines.run(COUNTS.replace(*change))

    state, *_, error, _ = record(writer)
    assert state == "failed"
    assert said.replace("\\", "") in error
    assert "\n" not in error


def test_a_query_that_fails_while_it_is_looked_at_does_not_pass_for_done():
    class Query:
        """Fails as soon as anybody has looked at it."""

        def __init__(self):
            self.looks = 0

        @property
        def isActive(self):  # noqa: N802 (Spark's)
            self.looks += 1
            return self.looks == 1

        def exception(self):
            self.looks += 1
            return ValueError("broken") if self.looks > 1 else None

    with pytest.raises(ValueError, match="broken"):
        _are_over([Query()])


def test_queries_that_ended_with_their_jvm_count_as_stopped():
    asked = []

    class Query:
        def stop(self):
            asked.append(self)
            raise Py4JNetworkError("answer from Java side is empty")

    stop_queries([Query(), Query()])

    assert len(asked) == 2
