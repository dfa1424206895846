"""Run a pipeline: start its queries, watch them, report, and stop on request.

A run is as durable as its checkpoint: killed at any moment, the next one continues, and results are
written once: queues and tables both recognize a repeated micro-batch.
"""

import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from skep.model.errors import Refused, SkepError, Unavailable
from skep.spark.pipelines import pipeline as definition
from skep.spark.pipelines.frames import (
    EXPECTATIONS,
    NOT_MET,
    ROWS,
    Frames,
    Target,
    reader_name,
    source_options,
    targets_of,
)
from skep.spark.pipelines.registry import Batch, Expected, Progress, Registry
from skep.spark.runtime.session import DEFAULT_MASTER, spark_session
from skep.spark.runtime.tasks import last_cause
from skep.spark.sink.options import RESULT_TABLE
from skep.spark.source.message_log import MessageLog
from skep.spark.source.options import read_options
from skep.spark.source.positions import Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from skep.spark.archive.lake import Lake

POLL_S: Final = 0.5
"""How often the progress of queries is read."""
REPORT_S: Final = 1.0
RECENT_BATCHES: Final = 40
"""How many micro-batches the record shows."""

_OUR_CLASS: Final = re.compile(r"^skep(\.\w+)+: ")
"""How an error of ours begins when it comes from another process."""

OnProgress = Callable[[Progress], None]


class PipelineFailed(Refused):
    """A query of the pipeline ended with an error."""


class ExpectationFailed(PipelineFailed):
    """A row does not meet an expectation with `otherwise: fail`."""


class CheckpointGone(Refused):
    """The pipeline has run before, but its checkpoint is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """How to run a pipeline."""

    url: str
    checkpoint: str
    """Directory or address; each sink has a directory in it."""
    master: str = DEFAULT_MASTER
    is_reset: bool = False
    warehouse: str | None = None
    """Where tables lie if there is no archive."""
    storage: str | None = None
    """How its files are reached, as the setting `archive_storage` says it."""
    log: Path | None = None
    """Where Spark writes what it prints, instead of the terminal."""


def checkpoint_of(pipeline: definition.Pipeline, data_dir: Path) -> str:
    """Return where a pipeline keeps its progress."""
    if pipeline.checkpoint is not None:
        return pipeline.checkpoint.rstrip("/")
    return str(data_dir.absolute() / "pipelines" / quote(pipeline.name, safe=""))


@dataclass(frozen=True, slots=True, eq=False)
class PipelineRun:
    """One run of a pipeline, from its registration to its end."""

    pipeline: definition.Pipeline
    plan: RunPlan
    on_progress: OnProgress = lambda _progress: None

    def run(self, stop: threading.Event) -> Progress:
        """Run until it is done, a stop is requested, or `stop` is set.

        Raises `PipelineBusy`, `PipelineChanged`, or `PipelineFailed`: then the record says why.
        """
        registry = Registry(self.plan.url)
        try:
            registry.lock(self.pipeline.name)
            if self.plan.is_reset:
                self._forget(registry)
            has_progress = registry.begin(
                self.pipeline.name,
                definition=definition.spelled_definition(self.pipeline),
                digest=definition.definition_hash(self.pipeline),
                checkpoint=self.plan.checkpoint,
                master=self.plan.master,
                is_reset=self.plan.is_reset,
            )
            return self._run(registry, stop, has_progress=has_progress)
        finally:
            registry.close()

    def _forget(self, registry: Registry) -> None:
        """Begin anew. The record goes last: it must not claim progress without its checkpoint."""
        _require_places(self.pipeline, self.plan)
        files, path = _located(self._session(), self.plan.checkpoint)
        files.delete(path, True)
        for target in targets_of(self.pipeline):
            for source in self.pipeline.sources:
                registry.forget_reader(reader_name(self.pipeline, target.key, source))

    def _run(self, registry: Registry, stop: threading.Event, *, has_progress: bool) -> Progress:
        watch = _Watch(self.pipeline, self.plan.url)
        queries: dict[str, StreamingQuery] = {}
        try:
            spark = self._session()
            if has_progress:
                self._require_checkpoint(spark)
            open_table = partial(_open_table, spark, self.pipeline, self.plan)
            frames = Frames(spark, self.pipeline, self.plan.url, open_table)
            # All before the first one starts: if one cannot be opened, nothing is written yet.
            writers = {
                target.key: frames.writer(target, f"{self.plan.checkpoint}/{target.key}")
                for target in targets_of(self.pipeline)
            }
            for key, writer in writers.items():
                queries[key] = writer.start()
            self._follow(registry, queries, watch, stop)
        except Exception as failure:
            # A signal to a whole group of processes ends Spark while it is asked to stop.
            if not stop.is_set():
                error = explained_failure(failure)
                registry.report("failed", watch.progress, error.message)
                raise error from failure
        finally:
            stop_queries(queries.values())
        registry.report("stopped", watch.progress)
        return watch.progress

    def _require_checkpoint(self, spark: "SparkSession") -> None:
        if not _exists(spark, self.plan.checkpoint):
            raise CheckpointGone(
                f"pipeline {self.pipeline.name} has run before, but there is no checkpoint at "
                f"{self.plan.checkpoint}: say by --checkpoint where it lies, or --reset"
            )

    def _follow(
        self,
        registry: Registry,
        queries: Mapping[str, "StreamingQuery"],
        watch: "_Watch",
        stop: threading.Event,
    ) -> None:
        """Watch queries until they end, one fails, or a stop is requested."""
        reported_at = 0.0
        while True:
            is_over = _are_over(list(queries.values()))
            watch.update(queries)
            now = time.monotonic()
            if is_over or now - reported_at >= REPORT_S:
                self.on_progress(watch.progress)
                should_go_on = registry.report("running", watch.progress)
                reported_at = now
                if is_over or not should_go_on:
                    return
            if stop.wait(POLL_S):
                return

    def _session(self) -> "SparkSession":
        return spark_session(
            f"skep pipeline {self.pipeline.name}",
            master=self.plan.master,
            config=definition.spelled_options(self.pipeline.spark),
            log=self.plan.log,
        )


@contextmanager
def _opened_lake(plan: RunPlan) -> Generator["Lake"]:
    # The lake is slow to import, and few pipelines need it.
    from skep.spark.archive.lake import Lake, explained  # noqa: PLC0415
    from skep.spark.archive.storage import storage_properties  # noqa: PLC0415

    with explained(), Lake(plan.url, storage_properties(plan.storage)) as lake:
        yield lake


def _require_places(pipeline: definition.Pipeline, plan: RunPlan) -> None:
    """Raise `TableTaken` or `WrongWarehouse` if a table of a pipeline cannot be made anew."""
    sinks = (output.sink for output in pipeline.all_outputs.values())
    tables = [sink.table for sink in sinks if sink.table is not None]
    if tables:
        from skep.spark.archive.result_table import require_place  # noqa: PLC0415 (see above)

        with _opened_lake(plan) as lake:
            for name in tables:
                require_place(lake, name, pipeline.name, plan.warehouse)


def _open_table(
    spark: "SparkSession",
    pipeline: definition.Pipeline,
    plan: RunPlan,
    target: Target,
    schema: Any,
) -> dict[str, str]:
    """Open a table for rows of a schema; return the options of what writes to it."""
    from skep.spark.archive.result_table import open_result_table  # noqa: PLC0415 (see above)

    sink = pipeline.all_outputs[target.output].sink
    with _opened_lake(plan) as lake:
        opened = open_result_table(
            lake,
            sink.table or "",
            schema,
            sink.partition_by,
            pipeline=pipeline.name,
            warehouse=plan.warehouse,
            last_batch=_last_batch(spark, f"{plan.checkpoint}/{target.key}"),
            is_reset=plan.is_reset,
        )
    options = {"url": plan.url, RESULT_TABLE: opened.spelled}
    return options if plan.storage is None else {**options, "storage": plan.storage}


def stop_queries(queries: Iterable["StreamingQuery"]) -> None:
    """Stop queries; one that cannot be asked any more has ended with its JVM."""
    # PySpark is an extra, and slow to import.
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    for query in queries:
        with suppress(Py4JError, PySparkException, ConnectionError):
            query.stop()


class _Watch:
    """Adds up what the queries of a run report of their micro-batches."""

    def __init__(self, pipeline: definition.Pipeline, url: str) -> None:
        self._pipeline: Final = pipeline
        self._url: Final = url
        self._last_batch: Final[dict[str, int]] = {}
        self._position: Final[dict[str, Any]] = {}
        self._expected: Final = {
            (target.key, name): Expected(sink=target.key, name=name, otherwise=each.otherwise)
            for target in targets_of(pipeline)
            for name, each in pipeline.all_outputs[target.output].expect.items()
        }
        self._recent: Final[deque[Batch]] = deque(maxlen=RECENT_BATCHES)
        self.progress = Progress()

    def update(self, queries: Mapping[str, "StreamingQuery"]) -> None:
        """Add the micro-batches that ended since the last call."""
        batches, messages = self.progress.batches, self.progress.messages
        rate = 0.0
        for sink, query in queries.items():
            ended = self._ended(sink, query)
            batches += len(ended)
            messages += sum(each["numInputRows"] for each in ended)
            self._recent.extend(_batch(sink, each) for each in ended)
            for each in ended:
                self._count(sink, each)
            if query.lastProgress is not None:
                rate += _report(query.lastProgress).get("processedRowsPerSecond") or 0.0
            if ended:
                self._position[sink] = [each["endOffset"] for each in ended[-1]["sources"]]
        lag_messages, lag_s = self.progress.lag_messages, self.progress.lag_s
        if batches != self.progress.batches:
            with suppress(Unavailable):  # the next call will tell
                lag_messages, lag_s = self._lag(list(queries))
        self.progress = Progress(
            batches=batches,
            messages=messages,
            rate=round(rate, 1),
            lag_messages=lag_messages,
            lag_s=lag_s,
            position=dict(self._position) or None,
            recent=tuple(self._recent),
            expectations=tuple(self._expected.values()),
        )

    def _count(self, sink: str, report: dict[str, Any]) -> None:
        """Add what a micro-batch says of expectations."""
        counts: dict[str, int] = report.get("observedMetrics", {}).get(EXPECTATIONS, {})
        for (place, name), known in self._expected.items():
            if place == sink and name in counts:
                self._expected[place, name] = msgspec.structs.replace(
                    known, rows=known.rows + counts[ROWS], failed=known.failed + counts[name]
                )

    def _ended(self, sink: str, query: "StreamingQuery") -> list[dict[str, Any]]:
        """Return the new reports of micro-batches; idle queries repeat the number of their last."""
        reports = [_report(each) for each in query.recentProgress]
        last = self._last_batch.get(sink, -1)
        ended = {each["batchId"]: each for each in reports if each["batchId"] > last}
        # A query that has nothing to do reports the number of the micro-batch that would be next.
        done = [each for each in ended.values() if "addBatch" in each.get("durationMs", {})]
        if done:
            self._last_batch[sink] = max(each["batchId"] for each in done)
        return done

    def _lag(self, sinks: Sequence[str]) -> tuple[int, int]:
        """Return how far the readers are behind: the most of any sink."""
        totals = [(0, 0)]
        sources = self._pipeline.sources
        for sink in sinks:
            rows: list[dict[str, Any]] = []
            ends: list[Any] = self._position.get(sink, [])
            for name, source in sources.items():
                reader = reader_name(self._pipeline, sink, name)
                log = MessageLog(read_options(source_options(source, self._url, reader)))
                if len(ends) == len(sources) == 1:
                    # Spark would tell the only reader of a sink a batch later.
                    position = Position.from_json(ends[0])
                    log.publish(reader, log.partitions(), position, position.held)
                rows += log.lag(reader)
            messages = sum(row["messages"] for row in rows)
            totals.append((messages, max((row["seconds"] or 0 for row in rows), default=0)))
        return max(totals)


def _exists(spark: "SparkSession", address: str) -> bool:
    files, path = _located(spark, address)
    return bool(files.exists(path))


def _last_batch(spark: "SparkSession", checkpoint: str) -> int:
    """Return the last micro-batch that the checkpoint of a query knows of; -1 if there is none.

    Spark notes there what a micro-batch reads, before it writes.
    """
    files, path = _located(spark, f"{checkpoint}/offsets")
    found: Any = files.listStatus(path) if files.exists(path) else ()
    names: list[str] = [each.getPath().getName() for each in found]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def _located(spark: "SparkSession", address: str) -> tuple[Any, Any]:
    """Return the file system of an address, any that Spark knows, and the path in it."""
    context: Any = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001 (the only way to Hadoop's file systems)
    path = jvm.org.apache.hadoop.fs.Path(address)
    return path.getFileSystem(context._jsc.hadoopConfiguration()), path  # noqa: SLF001


def _are_over(queries: Sequence["StreamingQuery"]) -> bool:
    """Tell whether all queries have ended; raise the error of one that failed."""
    # In this order: a query that fails between the questions must not pass for one that is done.
    are_over = not any(query.isActive for query in queries)
    for query in queries:
        failure: Any = query.exception()
        if failure is not None:
            raise failure
    return are_over


def _report(progress: Any) -> dict[str, Any]:
    return json.loads(progress.json)


def _batch(sink: str, report: dict[str, Any]) -> Batch:
    return Batch(
        sink=sink,
        number=report["batchId"],
        started_at=report["timestamp"],
        rows=report["numInputRows"],
        duration_ms=report["durationMs"]["triggerExecution"],
    )


def explained_failure(failure: Exception) -> SkepError:
    """Turn what Spark raises into one line; what we raise ourselves is one already."""
    if isinstance(failure, SkepError):
        return failure
    if (at := str(failure).find(NOT_MET)) >= 0:
        said = str(failure)[at:].splitlines()[0].partition(" SQLSTATE")[0]
        return ExpectationFailed(f"{said}. Nothing of its micro-batch was written")
    cause = last_cause(str(failure).strip()).removeprefix("a task on Spark failed: ")
    return PipelineFailed(_OUR_CLASS.sub("", cause))
