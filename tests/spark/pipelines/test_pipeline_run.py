"""Pipelines run on Spark: windows to queues and tables, restarts, stops and failures."""

import json
import threading

import pytest
from py4j.protocol import Py4JNetworkError

from skep.spark.pipelines.pipeline import InvalidPipeline
from skep.spark.pipelines.registry import PipelineBusy, PipelineChanged, Registry
from skep.spark.pipelines.run import (
    CheckpointGone,
    PipelineFailed,
    TableTaken,
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


def test_sql_goes_to_a_queue_and_a_table(pipelines, writer, spark, tmp_path):
    push(writer, (1_000, 1), (2_000, 2), (3_000, 3))
    definition = f"""
name: doubled
sources:
  orders: {{queue: orders, schema: n BIGINT}}
sql: |
  select partition as partition, payload.n * 2 as doubled from orders where payload.n > 1
sink: {{queue: doubled, partition: "concat('to-', partition)", table: {tmp_path / "table"}}}
trigger: availableNow
"""

    pipelines.run(definition)

    assert messages_of(writer, "doubled") == [
        ("to-a", {"partition": "a", "doubled": 4}),
        ("to-a", {"partition": "a", "doubled": 6}),
    ]
    rows = spark.read.parquet(str(tmp_path / "table")).collect()
    assert sorted(tuple(row) for row in rows) == [("a", 4), ("a", 6)]
    assert set(json.loads(record(writer, "doubled")[5])) == {"queue", "table"}


@pytest.mark.parametrize(
    ("name", "plan"),
    [("again", {"is_reset": True}), ("another", {"checkpoint": "another"})],
    ids=["begun anew", "under another name"],
)
def test_a_table_that_another_query_wrote_is_refused_since_spark_would_skip_results(
    pipelines, writer, spark, tmp_path, name, plan
):
    push(writer, (1_000, 1))
    table = tmp_path / "table"
    definition = f"""
name: again
sources:
  orders: {{queue: orders, schema: n BIGINT}}
sql: select payload.n from orders
sink: {{table: {table}}}
trigger: availableNow
"""
    pipelines.run(definition)
    push(writer, (2_000, 2))
    if "checkpoint" in plan:
        plan = {"checkpoint": str(tmp_path / plan["checkpoint"])}
    renamed = definition.replace("name: again", f"name: {name}")

    with pytest.raises(TableTaken, match="Name another directory, or move this one away"):
        pipelines.run(renamed, **plan)

    # Nothing of what the first query knows is gone.
    pipelines.run(definition)
    assert sorted(row.n for row in spark.read.parquet(str(table)).collect()) == [1, 2]
    table.rename(tmp_path / "old")
    pipelines.run(renamed, **plan)
    assert sorted(row.n for row in spark.read.parquet(str(table)).collect()) == [1, 2]


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
