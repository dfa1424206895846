"""Try a pipeline on given rows: without a database, without streams, and with all windows closed.

The rows of a case are messages. Its outputs are computed as of a table, so nothing is late and no
window is left open. What comes out is compared with the expected rows, in any order, in the columns
that these name.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, StructField, StructType

from skep.model.errors import SkepError
from skep.spark.pipelines.frames import check_schema, results_of, with_event_time
from skep.spark.pipelines.pipeline import Case, InvalidPipeline, Pipeline, Row, Source
from skep.spark.pipelines.run import explained_failure
from skep.spark.source.columns import PAYLOAD, SKEP_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FIRST_MOMENT: Final = "1970-01-01T00:00:00Z"


class Tried(NamedTuple):
    """What came of a case."""

    name: str
    problems: tuple[str, ...]
    """What is otherwise than expected, in a line each."""


def try_cases(spark: "SparkSession", pipeline: Pipeline) -> Iterator[Tried]:
    """Try all cases of a pipeline, one after the other."""
    for name, case in pipeline.tests.items():
        try:
            yield Tried(name, tuple(_problems(spark, pipeline, name, case)))
        except (PySparkException, SkepError) as error:
            yield Tried(name, (explained_failure(error).message,))


def _problems(spark: "SparkSession", pipeline: Pipeline, name: str, case: Case) -> Iterator[str]:
    sources = {
        each: _given(spark, each, source, case.given.get(each, []), ("tests", name, "given", each))
        for each, source in pipeline.sources.items()
    }
    for output, rows in case.expected.items():
        results = results_of(pipeline.all_outputs[output], sources, spark)
        where = f"output {output}: " if output else ""
        for problem in _differences(spark, results, rows):
            yield where + problem


def _given(
    spark: "SparkSession", name: str, source: Source, rows: Sequence[Row], path: tuple[str, ...]
) -> "DataFrame":
    """Return rows as messages of a source; what they leave out is as of some message."""
    if source.schema is not None:
        check_schema(source.schema, ("sources", name, "schema"))
    types = SKEP_COLUMNS | {PAYLOAD: source.schema or "string"}
    schema = StructType([StructField(each, DataType.fromDDL(kind)) for each, kind in types.items()])
    messages: list[Row] = []
    for offset, row in enumerate(rows):
        if unknown := row.keys() - SKEP_COLUMNS:
            raise InvalidPipeline(
                f"messages have no {', '.join(sorted(unknown))}; they have "
                f"{', '.join(SKEP_COLUMNS)}",
                path=path,
            )
        message: Row = {"queue": name, "partition": "Default", "offset": offset, "headers": {}}
        message |= {"created_at": _FIRST_MOMENT} | row
        if source.schema is None and not isinstance(message.get(PAYLOAD, ""), str):
            message[PAYLOAD] = json.dumps(message[PAYLOAD])
        messages.append(message)
    return with_event_time(_frame(spark, messages, schema), source.event_time, source.watermark)


def _differences(
    spark: "SparkSession", results: "DataFrame", expected: Sequence[Row]
) -> Iterator[str]:
    """Compare results with rows, in the columns that these name."""
    named = {column: None for row in expected for column in row}
    if unknown := [column for column in named if column not in results.columns]:
        yield (
            f"the results have no column {', '.join(unknown)}; they have "
            f"{', '.join(results.columns)}"
        )
        return
    chosen = results.select(*(f.col(f"`{column}`") for column in named or results.columns))
    # Written and read by Spark, the expected rows are spelled as the results are.
    wanted = _spelled(_frame(spark, expected, chosen.schema)) if expected else Counter[str]()
    found = _spelled(chosen)
    yield from (f"missing: {row}" for row in sorted((wanted - found).elements()))
    yield from (f"not expected: {row}" for row in sorted((found - wanted).elements()))


def _frame(spark: "SparkSession", rows: Sequence[Mapping[str, Any]], schema: StructType) -> Any:
    """Return rows as a frame; raise `PySparkException` if a value is not of its type."""
    session: Any = spark  # its method names types of pandas
    lines = [(json.dumps(row, default=str),) for row in rows]
    frame: DataFrame = session.createDataFrame(lines, "line string")
    parsed = f.from_json("line", schema, {"mode": "FAILFAST"}).alias("row")
    return frame.select(parsed).select("row.*")


def _spelled(frame: "DataFrame") -> Counter[str]:
    whole = f.to_json(f.struct("*"), {"ignoreNullFields": "false"}).alias("line")
    return Counter(row["line"] for row in frame.select(whole).collect())
