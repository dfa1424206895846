"""Bulk import and export: Parquet, NDJSON and CSV files, and other queues.

An import is one transaction, and is known by its files: the same files are not imported twice into
the same queue. The writer reports rows that cannot be stored, row by row. An export reads both
tiers; what it writes can be imported again, in the order of each partition.

A line of NDJSON is a message. Payloads go through as the bytes they are: numbers keep their digits,
and a payload that is a string stays one. A line that cannot be parsed becomes a payload as it is,
which the writer rejects by its row if it is not JSON.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import msgspec

from skep.model.errors import BadRequest
from skep.spark.transfer import single_write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINE_COLUMNS: Final = (
    "partition string, offset bigint, transaction_id string, headers map<string,string>, "
    "payload string"
)
"""What lines are taken apart into, as Spark's DDL spells it."""
_KNOWN: Final = (
    "to_json(struct(queue, partition, offset, message_id, transaction_id, created_at, headers)) "
    "as known"
)
# A payload may have been sent on several lines; outside of strings they are mere space, and inside
# of strings JSON has none.
_ONE_LINE: Final = "translate(payload, '\\n\\r', '  ')"


class Line(msgspec.Struct):
    """A message as a line has it."""

    payload: msgspec.Raw
    partition: str | None = None
    offset: int | None = None
    transaction_id: str | None = None
    headers: dict[str, str] | None = None


Cut: TypeAlias = tuple[str | None, int | None, str | None, dict[str, str] | None, str]
"""A row of `LINE_COLUMNS`."""

_decode: Final = msgspec.json.Decoder(Line).decode


def spell_lines(frame: "DataFrame") -> "DataFrame":
    """Return messages as lines, in a column `value`."""
    spelled = frame.selectExpr(_KNOWN, "payload")
    opened = "substr(known, 1, length(known) - 1)"
    return spelled.selectExpr(f"concat({opened}, ',\"payload\":', {_ONE_LINE}, '}}') as value")


def cut_lines(lines: "DataFrame") -> "DataFrame":
    """Take lines, in a column `value`, apart into messages.

    By plain Python functions: those on Arrow want pandas, which nothing else here does.
    """
    rows: Any = lines.rdd
    session: Any = lines.sparkSession
    return session.createDataFrame(rows.map(_cut_row), LINE_COLUMNS, verifySchema=False)


def cut_line(text: str) -> Cut:
    """Return partition, offset, transaction id, headers and payload of a line."""
    try:
        line = _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None, None, None, None, text
    payload = bytes(line.payload).decode()
    return line.partition, line.offset, line.transaction_id, line.headers, payload


def _cut_row(row: tuple[str]) -> Cut:
    return cut_line(row[0])


FileFormat = Literal["parquet", "ndjson", "csv"]
ImportFormat = Literal["parquet", "ndjson", "csv", "queue"]
Session = Callable[[], "SparkSession"]

COLUMNS: Final = ("partition", "transaction_id", "payload", "headers", "deliver_at")
"""What a row of an import may say; the queue is that of the import."""
OFFSET: Final = "offset"
_TAGGED: Final = "org.apache.hadoop.fs.EtagSource"
"""What object stores know of a file besides size and time."""
CSV: Final = {
    "header": "true",
    # As RFC 4180 has it: a quote is doubled. Spark's own way loses backslashes before quotes.
    "escape": '"',
    "multiLine": "true",
}
EXPORTED: Final = (
    *("queue", "partition", OFFSET, "message_id", "transaction_id", "created_at"),
    *("headers", "payload"),
)
_CSV_EXPORTED: Final = (
    *(name if name != "headers" else "to_json(headers) as headers" for name in EXPORTED),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What is imported, and how rows become messages."""

    url: str
    queue: str
    source: str
    """A path that Spark can read, or the name of a queue."""
    format: ImportFormat
    mapping: Mapping[str, str] = field(default_factory=dict[str, str])
    """By column of a message, an expression of Spark SQL over the columns of the file."""
    whole_lines: bool = False
    """A line of NDJSON is a payload, and not a message as an export spells it."""
    source_url: str | None = None
    """The database of the other queue; None for this one."""
    name: str | None = None
    may_decrypt: bool = False
    on_error: str = "fail"
    keys: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPlan(single_write.StoredMessages):
    """What is exported, and how."""

    path: str
    format: FileFormat
    columns: Sequence[str] = ()
    """Expressions of Spark SQL; none for all that an import understands."""
    overwrites: bool = False
    may_decrypt: bool = False


def check_import(plan: ImportPlan) -> None:
    """Make sure that an import can begin.

    Raises `BadRequest` if the mapping names a column that messages do not have, and what
    `check_source` and `check_target` do.
    """
    for name in plan.mapping:
        if name not in COLUMNS:
            raise BadRequest(f"there is no column {name!r}; there are {', '.join(COLUMNS)}")
    is_sealed = plan.format == "queue" and single_write.check_source(
        plan.source_url or plan.url, plan.source, plan.keys
    )
    single_write.check_target(
        plan.url, plan.queue, plan.keys, is_sealed=is_sealed, may_decrypt=plan.may_decrypt
    )


def run_import(
    session: Session, plan: ImportPlan, on_reached: single_write.OnReached = lambda _: None
) -> single_write.Outcome:
    """Import, unless that was done before; raise what `check_import` does."""
    check_import(plan)
    with single_write.explained():
        frame = _imported(session(), plan)
        is_known = plan.name is not None or plan.format == "queue"
        addresses = [] if is_known else frame.inputFiles()
        files = [f"{uri} {_fingerprint(frame, uri)}" for uri in addresses]
        write_id = write_id_of(plan, files)
        if plan.format == "ndjson" and not plan.whole_lines:
            frame = cut_lines(frame)
        rows = _ordered(frame, _expressions(frame, plan))
    options = {"url": plan.url, "queue": plan.queue, "onError": plan.on_error, **plan.keys}
    return single_write.write_once(rows, options, write_id, on_reached)


def _imported(spark: "SparkSession", plan: ImportPlan) -> "DataFrame":
    reader = spark.read
    if plan.format == "queue":
        options = {"url": plan.source_url or plan.url, "queue": plan.source, "tier": "all"}
        return reader.format("skep").options(**options, **plan.keys).load()
    if plan.format == "parquet":
        return reader.parquet(plan.source)
    if plan.format == "csv":
        return reader.options(**CSV).csv(plan.source)
    lines = reader.text(plan.source).where("trim(value) <> ''")
    return lines.withColumnRenamed("value", "payload") if plan.whole_lines else lines


def _expressions(frame: "DataFrame", plan: ImportPlan) -> dict[str, str]:
    """Return the expression of every column of the messages."""
    chosen = dict(plan.mapping)
    if not chosen and "payload" in frame.columns:
        chosen = {name: f"`{name}`" for name in COLUMNS if name in frame.columns}
    chosen.setdefault("payload", "`payload`" if "payload" in frame.columns else "struct(*)")
    if plan.format == "csv" and chosen.get("headers") == "`headers`":
        chosen["headers"] = "from_json(headers, 'map<string,string>')"
    return chosen


def write_id_of(plan: ImportPlan, files: Sequence[str]) -> str:
    """Return the name of an import of these files, each with what tells it from others."""
    if plan.name is not None:
        return f"import:{plan.name}"
    if plan.format == "queue":
        return f"import:{uuid4()}"  # it may have grown; what is known is found by its ids
    said = (plan.queue, plan.format, str(plan.whole_lines), repr(sorted(plan.mapping.items())))
    return f"import:{single_write.short_digest(*said, *sorted(files))}"


def check_export(plan: ExportPlan) -> None:
    """Make sure that an export can begin; raise what `check_source` and `check_disclosure` do."""
    is_sealed = single_write.check_source(plan.url, plan.queue, plan.keys)
    single_write.check_disclosure(plan.path, is_sealed=is_sealed, may_decrypt=plan.may_decrypt)


def run_export(
    session: Session,
    plan: ExportPlan,
    on_reached: single_write.OnReached = lambda _: None,
) -> int:
    """Write the files; return how many messages are in them. Raises what `check_export` does."""
    from pyspark.sql import Observation  # noqa: PLC0415 (heavy, and an extra)
    from pyspark.sql import functions as f  # noqa: PLC0415

    check_export(plan)
    seen = Observation()
    with single_write.explained():
        spark = session()
        frame = plan.frame(spark).observe(seen, f.count(f.lit(1)).alias("messages"))
        # A partition lies in one file, in its order.
        frame = frame.repartition("partition").sortWithinPartitions("partition", OFFSET)
        writer = _spelled(frame, plan).write.mode("overwrite" if plan.overwrites else "error")
        with single_write.watched(spark, lambda: 0, on_reached):
            if plan.format == "csv":
                writer.options(**{key: CSV[key] for key in ("header", "escape")}).csv(plan.path)
            elif plan.format == "parquet":
                writer.parquet(plan.path)
            elif plan.columns:
                writer.json(plan.path)
            else:
                writer.text(plan.path)
    return seen.get["messages"]


def _spelled(frame: "DataFrame", plan: ExportPlan) -> "DataFrame":
    if plan.columns:
        return frame.selectExpr(*plan.columns)
    if plan.format == "ndjson":
        return spell_lines(frame)
    return frame.selectExpr(*(_CSV_EXPORTED if plan.format == "csv" else EXPORTED))


def _ordered(frame: "DataFrame", chosen: Mapping[str, str]) -> "DataFrame":
    """Return the rows to write; those that have an offset, in their order."""
    expressions = [f"{expression} as {name}" for name, expression in chosen.items()]
    if OFFSET not in frame.columns or "partition" not in chosen:
        return frame.selectExpr(*expressions)
    rows = frame.selectExpr(*expressions, f"bigint({OFFSET}) as {OFFSET}")
    return rows.repartition("partition").sortWithinPartitions("partition", OFFSET).drop(OFFSET)


def fingerprint_of(file: Path) -> str:
    """Tell a file of this machine from another that once had its name."""
    known = file.stat()
    return f"{known.st_size} {known.st_mtime_ns}"


def _fingerprint(frame: "DataFrame", uri: str) -> str:
    """Tell a file from another that once had its name."""
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        return fingerprint_of(Path(unquote(parts.path)))
    context: Any = frame.sparkSession.sparkContext
    jvm = context._jvm  # noqa: SLF001 (the only way to Hadoop's file systems)
    path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(uri))
    files = path.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001
    status = files.getFileStatus(path)
    has_tag = jvm.java.lang.Class.forName(_TAGGED).isInstance(status)
    # The tag is of the contents: two writes within a millisecond may have one time and one size.
    return f"{status.getLen()} {status.getModificationTime()} {status.getEtag() if has_tag else ''}"
