"""A pipeline as DataFrames: from the messages of its sources to the rows of its sinks.

Windows give what the streams SDK gives on the same messages. Both begin tumbling and sliding
windows at the epoch, and both count in milliseconds. They differ in sessions: to Spark a session
has ended when a message comes exactly one gap later, to the SDK that message still belongs to it.
So Spark gets a gap that is longer by its smallest unit, and results are shown without it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.types import DataType

from skep.spark.pipelines import pipeline as definition
from skep.spark.sink.columns import HEADERS, PARTITION, PAYLOAD, WRITE_COLUMNS, without_null_headers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

EVENT_TIME: Final = "event_time"
WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"

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


SinkKind: TypeAlias = Literal["queue", "table"]


def sinks_of(pipeline: definition.Pipeline) -> tuple[SinkKind, ...]:
    """Return where results go; each is a query of its own, with its own progress."""
    kinds: tuple[SinkKind, ...] = ("queue", "table")
    return tuple(kind for kind in kinds if getattr(pipeline.sink, kind) is not None)


def reader_name(pipeline: definition.Pipeline, sink: SinkKind, source: str) -> str:
    """Return the name under which a reader is on record, and the log is kept for it."""
    return f"pipeline:{pipeline.name}:{sink}:{source}"


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
    transform: definition.Transform | None
    url: str

    def writer(self, sink: SinkKind, checkpoint: str) -> "DataStreamWriter":
        """Return a query that is ready to start; raise `InvalidPipeline` or `AnalysisException`."""
        results = self._results(self._sources(sink))
        writing = self._to_queue(results) if sink == "queue" else self._to_table(results)
        named = writing.queryName(f"{self.pipeline.name} to {sink}")
        return self._triggered(named.option("checkpointLocation", checkpoint))

    def _sources(self, sink: SinkKind) -> dict[str, "DataFrame"]:
        return {
            name: self._source(name, source, reader_name(self.pipeline, sink, name))
            for name, source in self.pipeline.sources.items()
        }

    def _source(self, name: str, source: definition.Source, reader: str) -> "DataFrame":
        if source.schema is not None:
            _check_schema(source.schema, ("sources", name, "schema"))
        options: dict[str, Any] = source_options(source, self.url, reader)
        frame = self.spark.readStream.format("skep").options(**options).load()
        return with_event_time(frame, source.event_time, source.watermark)

    def _results(self, sources: Mapping[str, "DataFrame"]) -> "DataFrame":
        frame = self._transformed(sources)
        if self.pipeline.window is not None:
            return windowed(frame, self.pipeline.window)
        if self.pipeline.sql is None and self.transform is None:
            return frame.select(PARTITION, PAYLOAD, HEADERS)
        return frame

    def _transformed(self, sources: Mapping[str, "DataFrame"]) -> "DataFrame":
        if self.pipeline.sql is not None:
            # By views, and not as arguments of `sql`, which would read braces as references.
            for name, frame in sources.items():
                frame.createOrReplaceTempView(name)
            return self.spark.sql(self.pipeline.sql)
        if self.transform is None:
            (frame,) = sources.values()
            return frame
        frame = self.transform(**sources)
        if not hasattr(frame, "writeStream"):
            raise definition.InvalidPipeline(
                f"returned {type(frame).__name__} instead of a DataFrame", path=("function",)
            )
        return frame

    def _to_queue(self, results: "DataFrame") -> "DataStreamWriter":
        sink = self.pipeline.sink
        options: dict[str, Any] = {"url": self.url, "queue": sink.queue or ""}
        options |= definition.spelled_options(sink.options)
        return as_messages(results, sink.partition).writeStream.format("skep").options(**options)

    def _to_table(self, results: "DataFrame") -> "DataStreamWriter":
        sink = self.pipeline.sink
        writing = results.writeStream.format("parquet").option("path", sink.table or "")
        return writing.partitionBy(*sink.partition_by) if sink.partition_by else writing

    def _triggered(self, writing: "DataStreamWriter") -> "DataStreamWriter":
        trigger = self.pipeline.trigger
        if isinstance(trigger, definition.Every):
            milliseconds = round(definition.duration(trigger.every) * 1000)
            return writing.trigger(processingTime=f"{milliseconds} milliseconds")
        if trigger == "once":
            return writing.trigger(once=True)
        return writing.trigger(availableNow=True)


def _check_schema(schema: str, path: tuple[str, ...]) -> None:
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
