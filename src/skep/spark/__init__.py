"""The data pipeline on Spark: the data source `skep`, sessions, and pipelines.

    from skep.spark import Pipeline, Sink, Source, spark_session

What stands here is the API; the modules below are not. Spark finds the data source by itself
(`pyspark_skep`), so `spark.read.format("skep")` needs no import. Driver and executors connect to
PostgreSQL directly; the broker need not run. The package imports settings, telemetry and
the model, and nothing of the broker.

Importing it costs nothing: PySpark, PyArrow and the database driver are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from skep.model.errors import Refused

if TYPE_CHECKING:
    from skep.spark.pipelines.files import load_pipeline, parse_pipeline
    from skep.spark.pipelines.pipeline import (
        Every,
        InvalidPipeline,
        Output,
        Pipeline,
        Sink,
        Source,
        Window,
    )
    from skep.spark.pipelines.run import PipelineRun, RunPlan
    from skep.spark.runtime.session import spark_session
    from skep.spark.source.arrow_reader import open_queue

__all__ = [
    "Every",
    "InvalidPipeline",
    "Output",
    "Pipeline",
    "PipelineRun",
    "RunPlan",
    "Sink",
    "Source",
    "Window",
    "load_pipeline",
    "open_queue",
    "parse_pipeline",
    "spark_session",
]

_HOMES: Final = {
    "PipelineRun": "pipelines.run",
    "RunPlan": "pipelines.run",
    "load_pipeline": "pipelines.files",
    "open_queue": "source.arrow_reader",
    "parse_pipeline": "pipelines.files",
    "spark_session": "runtime.session",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f"{__name__}.{_HOMES.get(name, 'pipelines.pipeline')}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyspark":
            raise
        raise Refused("PySpark is not installed: `pip install skep[spark]`") from error
    return getattr(home, name)
