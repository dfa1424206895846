"""Windows of time that give what the streams SDK gives on the same messages.

Both begin tumbling and sliding windows at the epoch. They differ in sessions: to Spark a session
has ended when a message comes exactly one gap later, to the SDK that message still belongs to it.
So Spark is given a gap that is longer by its smallest unit, and results are shown without it. Both
look at milliseconds, as the SDK does.
"""

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as f

from skep.spark.pipelines.pipeline import Window, duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    return timed.withWatermark(EVENT_TIME, _interval(duration(watermark)))


def windowed(frame: "DataFrame", window: Window) -> "DataFrame":
    """Aggregate by window and key: one row for each that closed, with its start and end."""
    keys = [f.expr(key) for key in window.by]
    aggregates = [f.expr(text).alias(name) for name, text in window.aggregate.items()]
    grouped = frame.groupBy(_column(window).alias(_WINDOW), *keys).agg(*aggregates)
    return grouped.select(
        f.col(f"{_WINDOW}.start").alias(WINDOW_START),
        _end(window).alias(WINDOW_END),
        *(f.col(f"`{name}`") for name in grouped.columns if name != _WINDOW),
    )


def _column(window: Window) -> Any:
    if window.kind == "session":
        return f.session_window(EVENT_TIME, _interval(duration(window.gap or ""), _TICK_US))
    size = _interval(duration(window.size or ""))
    slide = None if window.slide is None else _interval(duration(window.slide))
    return f.window(EVENT_TIME, size, slide)


def _end(window: Window) -> Any:
    end = f.col(f"{_WINDOW}.end")
    if window.kind == "session":
        return end - f.expr(f"interval {_TICK_US} microsecond")
    return end


def _interval(seconds: float, more_us: int = 0) -> str:
    return f"{round(seconds * 1_000_000) + more_us} microseconds"
