"""A pipeline as DataFrames: from the messages of its sources to the rows of its sinks.

Windows give what the streams SDK gives on the same messages. Both begin tumbling and sliding
windows at the epoch, and both count in milliseconds. They differ in sessions: to Spark a session
has ended when a message comes exactly one gap later, to the SDK that message still belongs to it.
So Spark gets a gap that is longer by its smallest unit, and results are shown without it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.types import DataType

from skep.spark.pipelines import pipeline as definition
from skep.spark.runtime.arrow import arrow_schema
from skep.spark.sink.columns import HEADERS, PARTITION, PAYLOAD, WRITE_COLUMNS, without_null_headers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

EVENT_TIME: Final = "event_time"
WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"

EXPECTATIONS: Final = "skep expectations"
"""Under this name the progress of a query has the counts of its expectations."""
ROWS: Final = "__rows"
NOT_MET: Final = "results do not meet the expectation "
_WINDOW: Final = "__window"
_TICK_US: Final = 1


def with_event_time(frame: "DataFrame", expression: str, watermark: str | None) -> "DataFrame":
    """Add the time at which messages happened, and say how late they may be."""
    # Bare, so that no expression can break out of the one around it.
    timed = frame.withColumn(EVENT_TIME, f.expr(expression).cast("timestamp"))
    timed = timed.withColumn(EVENT_TIME, f.timestamp_millis(f.unix_millis(EVENT_TIME)))
    if watermark is None:
        return timed
    return timed.withWatermark(EVENT_TIME, _interval(definition.duration(watermark)))


def windowed(frame: "DataFrame", window: definition.Window) -> "DataFrame":
    """Aggregate by window and key: one row for each that closed, with its start and end."""
    keys = [f.expr(key) for key in window.by]
    aggregates = [f.expr(text).alias(name) for name, text in window.aggregate.items()]
    grouped = frame.groupBy(_column(window).alias(_WINDOW), *keys).agg(*aggregates)
    return grouped.select(
        f.col(f"{_WINDOW}.start").alias(WINDOW_START),
        _end(window).alias(WINDOW_END),
        *(f.col(f"`{name}`") for name in grouped.columns if name != _WINDOW),
    )


def _column(window: definition.Window) -> Any:
    if window.kind == "session":
        return f.session_window(
            EVENT_TIME, _interval(definition.duration(window.gap or ""), _TICK_US)
        )
    size = _interval(definition.duration(window.size or ""))
    slide = None if window.slide is None else _interval(definition.duration(window.slide))
    return f.window(EVENT_TIME, size, slide)


def _end(window: definition.Window) -> Any:
    end = f.col(f"{_WINDOW}.end")
    if window.kind == "session":
        return end - f.expr(f"interval {_TICK_US} microsecond")
    return end


def _interval(seconds: float, more_us: int = 0) -> str:
    return f"{round(seconds * 1_000_000) + more_us} microseconds"


class Target(NamedTuple):
    """Where results of one output go: a query of its own, with its own progress."""

    output: str
    kind: Literal["queue", "table"]

    @property
    def key(self) -> str:
        """Its name in the checkpoint and on record."""
        return f"{self.output}.{self.kind}" if self.output else self.kind


OpenTable: TypeAlias = Callable[[Target, Any], Mapping[str, str]]
"""Opens a table for rows of a schema of Arrow, and returns the options of its writer."""


def targets_of(pipeline: definition.Pipeline) -> tuple[Target, ...]:
    """Return where the results of a pipeline go."""
    kinds: tuple[Literal["queue", "table"], ...] = ("queue", "table")
    return tuple(
        Target(name, kind)
        for name, output in pipeline.all_outputs.items()
        for kind in kinds
        if getattr(output.sink, kind) is not None
    )


def reader_name(pipeline: definition.Pipeline, target: str, source: str) -> str:
    """Return the name under which a reader is on record, and the log is kept for it."""
    return f"pipeline:{pipeline.name}:{target}:{source}"


def source_options(source: definition.Source, url: str, reader: str) -> dict[str, str]:
    """Return the options of the data source for one source of a pipeline."""
    options = {"url": url, **definition.spelled_options(source.options), "consumerGroup": reader}
    if source.pattern is not None:
        options["subscribePattern"] = source.pattern
    elif isinstance(source.queue, list):
        options["subscribe"] = ",".join(source.queue)
    else:
        options["queue"] = source.queue or ""
    if source.schema is not None:
        options["payloadSchema"] = source.schema
    return options


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """Builds the queries of one pipeline."""

    spark: "SparkSession"
    pipeline: definition.Pipeline
    url: str
    open_table: OpenTable

    def writer(self, target: Target, checkpoint: str) -> "DataStreamWriter":
        """Return a query that is ready to start; raise `InvalidPipeline` or `AnalysisException`."""
        output = self.pipeline.all_outputs[target.output]
        results = results_of(output, self._sources(target), self.spark)
        if target.kind == "queue":
            writing = self._to_queue(results, output.sink)
        else:
            opened: Any = self.open_table(target, arrow_schema(results.schema.toNullable()))
            writing = results.writeStream.format("skep").options(**opened)
        named = writing.queryName(f"{self.pipeline.name} to {target.key}")
        return self._triggered(named.option("checkpointLocation", checkpoint))

    def _sources(self, target: Target) -> dict[str, "DataFrame"]:
        return {
            name: self._source(name, source, reader_name(self.pipeline, target.key, name))
            for name, source in self.pipeline.sources.items()
        }

    def _source(self, name: str, source: definition.Source, reader: str) -> "DataFrame":
        if source.schema is not None:
            check_schema(source.schema, ("sources", name, "schema"))
        options: dict[str, Any] = source_options(source, self.url, reader)
        frame = self.spark.readStream.format("skep").options(**options).load()
        return with_event_time(frame, source.event_time, source.watermark)

    def _to_queue(self, results: "DataFrame", sink: definition.Sink) -> "DataStreamWriter":
        options: dict[str, Any] = {"url": self.url, "queue": sink.queue or ""}
        options |= definition.spelled_options(sink.options)
        return as_messages(results, sink.partition).writeStream.format("skep").options(**options)

    def _triggered(self, writing: "DataStreamWriter") -> "DataStreamWriter":
        trigger = self.pipeline.trigger
        if isinstance(trigger, definition.Every):
            milliseconds = round(definition.duration(trigger.every) * 1000)
            return writing.trigger(processingTime=f"{milliseconds} milliseconds")
        if trigger == "once":
            return writing.trigger(once=True)
        return writing.trigger(availableNow=True)


def results_of(
    output: definition.Output, sources: Mapping[str, "DataFrame"], spark: "SparkSession"
) -> "DataFrame":
    """Return the rows that an output computes of its sources."""
    frame = _transformed(output, sources, spark)
    if output.window is not None:
        frame = windowed(frame, output.window)
    elif output.sql is None and output.function is None:
        frame = frame.select(PARTITION, PAYLOAD, HEADERS)
    return checked(frame, output.expect) if output.expect else frame


def checked(frame: "DataFrame", expectations: Mapping[str, definition.Expectation]) -> "DataFrame":
    """Count the rows that do not meet expectations, and do with them what these say.

    All are counted on all rows, before any is left out.
    """
    passed = {
        name: f.coalesce(f.expr(each.check).cast("boolean"), f.lit(False))
        for name, each in expectations.items()
    }
    counts = (f.count_if(~met).alias(name) for name, met in passed.items())
    frame = frame.observe(EXPECTATIONS, f.count(f.lit(1)).alias(ROWS), *counts)
    for name, each in expectations.items():
        if each.otherwise == "drop":
            frame = frame.where(passed[name])
        elif each.otherwise == "fail":
            said = f"{NOT_MET}{name}: {each.check} is not true of a row"
            frame = frame.where(f.when(passed[name], True).otherwise(f.raise_error(said)))
    return frame


def _transformed(
    output: definition.Output, sources: Mapping[str, "DataFrame"], spark: "SparkSession"
) -> "DataFrame":
    if output.sql is not None:
        # By views, and not as arguments of `sql`, which would read braces as references.
        for name, frame in sources.items():
            frame.createOrReplaceTempView(name)
        return spark.sql(output.sql)
    if output.function is None:
        (frame,) = sources.values()
        return frame
    frame = output.function(**sources)
    if not hasattr(frame, "writeStream"):
        raise definition.InvalidPipeline(
            f"returned {type(frame).__name__} instead of a DataFrame", path=("function",)
        )
    return frame


def check_schema(schema: str, path: tuple[str, ...]) -> None:
    """Let Spark read a schema by itself: among other columns its complaints name the wrong one."""
    try:
        DataType.fromDDL(schema)
    except PySparkException as error:
        raise definition.InvalidPipeline(
            f"{schema!r} is no schema of Spark's; write columns and their types, such as "
            "id BIGINT, name STRING",
            path=path,
        ) from error


def as_messages(results: "DataFrame", partition: str | None) -> "DataFrame":
    """Return rows as the sink takes them.

    Rows that have a payload and nothing that a message cannot have are messages already. Of all
    others the whole row is the payload.
    """
    names = results.columns
    if PAYLOAD in names and set(names) <= set(WRITE_COLUMNS):
        messages = without_null_headers(results)
        if partition is None:
            return messages
        return messages.withColumn(PARTITION, f.expr(partition).cast("string"))
    column = f.expr(partition) if partition is not None else None
    if column is None and PARTITION in names:
        column = f.col(PARTITION)
    columns = [] if column is None else [column.cast("string").alias(PARTITION)]
    return results.select(*columns, f.struct("*").alias(PAYLOAD))
