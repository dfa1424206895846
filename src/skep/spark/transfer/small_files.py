"""Import and export small local files in this process: a JVM takes longer to start than they take.

What comes out is what Spark would write, under the same name of the write, so a file that was
imported by one is known to the other. Where the two might differ (expressions, types that are
spelled by Spark's rules, text that is not UTF-8, addresses that Spark would read as patterns), the
answer is None and Spark does the work.
"""

import re
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast
from uuid import uuid4

import msgspec
from pyarrow import csv as _csv
from pyarrow import parquet as _parquet
from pyspark.sql.types import (
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from skep.model.errors import BadRequest, Refused
from skep.spark.runtime.arrow import pa
from skep.spark.sink.writer import write_here
from skep.spark.source.readers import SkepReader
from skep.spark.source.splits import LiveSplit
from skep.spark.transfer.import_export import (
    COLUMNS,
    EXPORTED,
    OFFSET,
    ExportPlan,
    ImportPlan,
    check_export,
    check_import,
    cut_line,
    fingerprint_of,
    write_id_of,
)
from skep.spark.transfer.single_write import (
    STATEMENT_TIMEOUT_S,
    JobFailed,
    OnReached,
    Outcome,
    Reached,
    outcome_of,
)

csv: Final[Any] = _csv
parquet: Final[Any] = _parquet

SMALL_BYTES: Final = 64 << 20
"""What is larger than this in all is left to Spark."""
UNPACKED_BYTES_MAX: Final = 4 * SMALL_BYTES
"""Of a Parquet file, which may hold many times its size."""
SEGMENTS_MAX: Final = 20_000
"""Of an export: more than these are rarely small, so they are not even begun."""
ROWS_PER_BATCH: Final = 10_000

_PLAIN: Final = re.compile(r"[\w./=@+,~-]+", re.ASCII)
"""Addresses that are the same to Python and to Hadoop."""
_SUFFIXES: Final = {
    "parquet": (".parquet",),
    "ndjson": (".ndjson", ".jsonl", ".json", ".txt"),
    "csv": (".csv",),
}
"""Others may be compressed, which Spark knows by them."""
_LINE_END: Final = re.compile("\r\n|\n|\r")
_HEADERS: Final = pa.map_(pa.string(), pa.string())
_LINES: Final = pa.schema(
    [
        ("partition", pa.string()),
        (OFFSET, pa.int64()),
        ("transaction_id", pa.string()),
        ("headers", _HEADERS),
        ("payload", pa.string()),
    ]
)
_IN_ORDER: Final = [("partition", "ascending"), (OFFSET, "ascending")]
_ALIKE: Final = (
    *(pa.types.is_string, pa.types.is_boolean, pa.types.is_signed_integer),
    pa.types.is_float64,
)
"""Types that arrive here as Spark would hand them on."""
_DIFFERENT: Final = (
    *(pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError),
    *(UnicodeDecodeError, OverflowError, msgspec.DecodeError),
)
"""What is raised where Spark may still understand what we do not."""


def import_small(plan: ImportPlan, on_reached: OnReached = lambda _: None) -> Outcome | None:
    """Import, unless that was done before; None if it is for Spark.

    Raises what `run_import` does.
    """
    files = None if plan.format == "queue" or plan.mapping else small_files(plan.source)
    if files is None or any(file.suffix.lower() not in _SUFFIXES[plan.format] for file in files):
        return None
    check_import(plan)
    known = [f"file://{file} {fingerprint_of(file)}" for file in files]
    try:
        rows = _messages_of(_table_of(plan, files), plan)
    except _DIFFERENT:
        return None
    return None if rows is None else _write(rows, plan, write_id_of(plan, known), on_reached)


def small_files(source: str) -> list[Path] | None:
    """Return the files that Spark would read at a local address; None if these are for Spark."""
    text = source.removeprefix("file://") if source.startswith("file:///") else source
    root = Path(text).absolute()
    if not _PLAIN.fullmatch(text) or not _PLAIN.fullmatch(str(root)) or ".." in root.parts:
        return None
    if root.is_file():
        found = [root]
    elif root.is_dir():
        found = sorted(each for each in root.iterdir() if each.name[0] not in "._")
    else:
        return None
    is_small = all(each.is_file() and _PLAIN.fullmatch(each.name) for each in found)
    if not found or not is_small or sum(each.stat().st_size for each in found) > SMALL_BYTES:
        return None
    return found


def _table_of(plan: ImportPlan, files: list[Path]) -> Any:
    """Return the rows of the files; raise `ArrowInvalid` if Spark might see others."""
    if plan.format == "ndjson":
        return _lines_of(files, whole=plan.whole_lines)
    tables: list[Any] = [
        _csv_of(file) if plan.format == "csv" else _parquet_of(file) for file in files
    ]
    names = [name.lower() for name in tables[0].schema.names]
    if "" in names or len(set(names)) < len(names):
        raise pa.ArrowInvalid("columns without names of their own")
    if any(not table.schema.equals(tables[0].schema) for table in tables):
        raise pa.ArrowInvalid("files of several schemas")
    return pa.concat_tables(tables)


def _lines_of(files: list[Path], *, whole: bool) -> Any:
    texts = [line for file in files for line in _LINE_END.split(file.read_bytes().decode())]
    kept = [line for line in texts if line.strip(" ")]
    if whole:
        return pa.table({"payload": pa.array(kept, pa.string())})
    columns: list[list[Any]] = [[] for _ in _LINES]
    for line in kept:
        for column, value in zip(columns, cut_line(line), strict=True):
            column.append(list(value.items()) if isinstance(value, dict) else value)
    return pa.table(columns, schema=_LINES)


def _parquet_of(file: Path) -> Any:
    with parquet.ParquetFile(file) as opened:
        groups = range(opened.metadata.num_row_groups)
        size = sum(opened.metadata.row_group(group).total_byte_size for group in groups)
        if size > UNPACKED_BYTES_MAX:
            raise pa.ArrowInvalid("much more than the file")
        return opened.read()


def _csv_of(file: Path) -> Any:
    names = file.read_bytes().split(b"\n", 1)[0]
    if not re.fullmatch(rb"\w+(,\w+)*\r?", names):
        raise pa.ArrowInvalid("a header that may be quoted")
    types = dict.fromkeys(names.decode().strip().split(","), pa.string())
    return csv.read_csv(
        file,
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _messages_of(table: Any, plan: ImportPlan) -> Any:
    """Return the columns of the messages, in their order; None if it takes Spark to make them."""
    names = table.schema.names
    if "deliver_at" in names:
        return None
    columns: dict[str, Any] = {}
    for name in COLUMNS if "payload" in names else ():
        if name in names:
            columns[name] = table.column(name).combine_chunks()
    if not columns:
        if not all(_is_alike(each) for each in table.schema.types):
            return None
        columns["payload"] = table.to_struct_array().combine_chunks()
    if "headers" in columns and plan.format == "csv":
        columns["headers"] = pa.array(
            [
                None
                if text is None
                else list(msgspec.json.decode(text, type=dict[str, str]).items())
                for text in columns["headers"].to_pylist()
            ],
            _HEADERS,
        )
    for name, values in columns.items():
        is_map = name == "headers" and values.type == _HEADERS
        if not is_map and not _is_alike(values.type):
            return None
        if name in ("partition", "transaction_id") and not pa.types.is_string(values.type):
            return None
    rows = pa.table(columns)
    has_order = OFFSET in names and "partition" in columns
    if not has_order or table.column(OFFSET).null_count == table.num_rows:
        return rows
    ordered = rows.append_column(OFFSET, table.column(OFFSET).cast(pa.int64()))
    return ordered.sort_by(_IN_ORDER).drop_columns([OFFSET])


def _is_alike(kind: Any) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_alike(each.type) for each in kind)
    return any(check(kind) for check in _ALIKE)


def _write(rows: Any, plan: ImportPlan, write_id: str, on_reached: OnReached) -> Outcome:
    """Write rows under a name, as `write_once` does with a frame."""
    if done := outcome_of(plan.url, write_id):
        return done
    if rows.num_rows == 0:
        return Outcome(is_repeated=False)
    options = {
        "url": plan.url,
        "queue": plan.queue,
        "onError": plan.on_error,
        "txnAppId": write_id,
        "txnVersion": "0",
        "statementTimeout": f"{STATEMENT_TIMEOUT_S:g}s",
        **plan.keys,
    }
    batches = rows.combine_chunks().to_batches(max_chunksize=ROWS_PER_BATCH)
    on_reached(Reached(1, 0, 0))
    try:
        write_here(options, batches)
    except Refused as error:
        raise JobFailed(error.message) from None
    on_reached(Reached(1, 1, rows.num_rows))
    done = outcome_of(plan.url, write_id)
    return Outcome(is_repeated=False) if done is None else done._replace(is_repeated=False)


def export_small(plan: ExportPlan) -> int | None:
    """Write the files and return how many messages are in them; None if it is for Spark.

    Raises what `run_export` does.
    """
    target = Path(plan.path).absolute()
    if plan.where or plan.columns or not _PLAIN.fullmatch(plan.path) or ".." in target.parts:
        return None
    check_export(plan)
    if target.exists() and not plan.overwrites:
        raise BadRequest(f"{plan.path} already exists: pass --overwrite to replace it")
    rows = _stored(plan)
    if rows is None:
        return None
    with _replacing(target) as directory:
        _put(rows, plan, directory)
    return rows.num_rows


def _stored(plan: ExportPlan) -> Any:
    """Return the messages in the order of each partition; None if these are not small."""
    types: dict[str, DataType] = {
        OFFSET: LongType(),
        "created_at": TimestampType(),
        "headers": MapType(StringType(), StringType()),
    }
    fields = [StructField(name, types.get(name, StringType())) for name in EXPORTED]
    reader = SkepReader(plan.options(), StructType(fields))
    tasks = reader.partitions()
    if sum(task.segments for task in tasks if isinstance(task, LiveSplit)) > SEGMENTS_MAX:
        return None
    size = 0
    batches: list[Any] = []
    for batch in (batch for task in tasks for batch in reader.read(task)):
        batches.append(batch)
        size += batch.nbytes
        if size > SMALL_BYTES:
            return None
    if not batches:
        return None  # Spark knows what an empty file of each format is
    table = pa.Table.from_batches(batches).select(list(EXPORTED))
    return table.sort_by(_IN_ORDER)


@contextmanager
def _replacing(target: Path) -> Generator[Path]:
    """Yield a directory that takes a place at once and as a whole, unless the block fails."""
    made = target.with_name(f".{target.name}-{uuid4().hex}")
    made.mkdir(parents=True)
    try:
        yield made
        (made / "_SUCCESS").touch()
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
        made.rename(target)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _put(rows: Any, plan: ExportPlan, directory: Path) -> None:
    if plan.format == "parquet":
        parquet.write_table(rows, directory / "part-00000.zstd.parquet", compression="zstd")
    elif plan.format == "csv":
        spelled = {
            **{name: rows.column(name) for name in EXPORTED},
            "created_at": pa.array([_moment(each) for each in _values(rows, "created_at")]),
            "headers": pa.array([_object(each) for each in _values(rows, "headers")], pa.string()),
        }
        csv.write_csv(pa.table(spelled), directory / "part-00000.csv")
    else:
        with (directory / "part-00000.txt").open("wb") as file:
            file.writelines(_lines(rows))


def _lines(rows: Any) -> Iterator[bytes]:
    """Yield messages as lines; nulls are left out, as Spark does."""
    encode = msgspec.json.encode
    names = [name for name in EXPORTED if name != "payload"]
    columns = [_values(rows, name) for name in names]
    for payload, *values in zip(_values(rows, "payload"), *columns, strict=True):
        known = {
            name: dict(value)
            if name == "headers"
            else _moment(value)
            if name == "created_at"
            else value
            for name, value in zip(names, values, strict=True)
            if value is not None
        }
        # Outside of strings a payload may have line ends, and they are mere space.
        line = payload.translate({10: " ", 13: " "}).encode()
        yield encode(known)[:-1] + b',"payload":' + line + b"}\n"


def _values(rows: Any, name: str) -> list[Any]:
    return rows.column(name).to_pylist()


def _moment(moment: Any) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


def _object(headers: Any) -> str | None:
    if headers is None:
        return None
    return msgspec.json.encode(dict(cast("list[tuple[str, str]]", headers))).decode()
