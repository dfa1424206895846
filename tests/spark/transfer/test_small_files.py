"""Imports and exports without a JVM: no test here has a session of Spark."""

import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from skep.spark.transfer import small_files
from skep.spark.transfer.import_export import ExportPlan, ImportPlan
from skep.spark.transfer.small_files import export_small, import_small
from tests.spark.support.pipelines import messages_of


@pytest.fixture
def imported(database_url, writer, tmp_path):
    """Import a file here; return its messages, or None if that is for Spark."""
    writer.partition("events")

    def imported(name, content, **choices):
        path = tmp_path / name
        if isinstance(content, pa.Table):
            parquet.write_table(content, path)
        else:
            path.write_bytes(content)
        kind = {".csv": "csv", ".parquet": "parquet"}.get(path.suffix, "ndjson")
        plan = {"source": str(path), "format": kind, **choices}
        done = import_small(ImportPlan(url=database_url, queue="events", **plan))
        return None if done is None else messages_of(writer, "events")

    return imported


@pytest.mark.parametrize(
    ("name", "content", "messages"),
    [
        ("a.ndjson", b'{"id": 1}\r\n \n"x"\r[2]', [{"id": 1}, "x", [2]]),
        ("a.csv", b'id,name\n1,"a ""b"", c"\n2,\n,""\n', [
            {"id": "1", "name": 'a "b", c'}, {"id": "2", "name": None}, {"id": None, "name": ""},
        ]),
        ("a.csv", b'payload,headers\n"{""id"": 1}","{""h"": ""x""}"\n', [{"id": 1}]),
        ("a.parquet", pa.table({"id": [1, None], "ok": [True, False]}), [
            {"id": 1, "ok": True}, {"id": None, "ok": False},
        ]),
    ],
)  # fmt: skip
def test_rows_of_small_files_become_messages(imported, name, content, messages):
    assert [payload for _, payload in imported(name, content)] == messages


def test_rows_with_an_offset_are_stored_in_its_order(imported):
    rows = {"partition": list("baab"), "offset": [2, 2, 1, 1], "payload": list("1234")}

    assert imported("a.parquet", pa.table(rows)) == [("a", 3), ("a", 2), ("b", 4), ("b", 1)]


@pytest.mark.parametrize(
    ("name", "content", "choices"),
    [
        ("a.ndjson.gz", b"", {}),
        ("a b.ndjson", b"1", {}),
        ("a.ndjson", b"\xff", {}),
        ("a.ndjson", b"1", {"mapping": {"payload": "upper(value)"}}),
        ("a.ndjson", b'{"payload": 1, "offset": 99999999999999999999}', {}),
        ("a.csv", b"a,A\n1,2\n", {}),
        ("a.csv", b"a,b\n1\n", {}),
        ("a.csv", b"payload,deliver_at\n1,2026-01-01\n", {}),
        ("a.parquet", pa.table({"price": pa.array([1], pa.decimal128(9, 2))}), {}),
        ("a.parquet", pa.table({"payload": ["1"], "partition": [1]}), {}),
        ("a.parquet", pa.table({"payload": ["1"], "headers": pa.nulls(1)}), {}),
        ("a.ndjson", b"1", {"source": "s3://bucket/a.ndjson"}),
        ("a.ndjson", b"1", {"source": "missing.ndjson"}),
    ],
)
def test_what_spark_might_read_otherwise_is_left_to_it(imported, writer, name, content, choices):
    assert imported(name, content, **choices) is None
    assert messages_of(writer, "events") == []


def test_what_is_not_small_is_left_to_spark(imported, writer, database_url, tmp_path, monkeypatch):
    packed = pa.table({"payload": ["1" * 100_000]})
    monkeypatch.setattr(small_files, "UNPACKED_BYTES_MAX", 50_000)
    parquet.write_table(packed, tmp_path / "packed.parquet", use_dictionary=False)
    assert (tmp_path / "packed.parquet").stat().st_size < 50_000
    assert imported("packed.parquet", packed) is None

    monkeypatch.setattr(small_files, "SMALL_BYTES", 100)
    writer.push("x" * 1000)
    plan = {"url": database_url, "queue": "orders", "since": None, "until": None}
    path = tmp_path / "out.ndjson"

    assert imported("a.ndjson", b" " * 200 + b"1") is None
    assert export_small(ExportPlan(**plan, path=str(path), format="ndjson")) is None
    assert not path.exists()


def test_an_export_of_a_partition_and_a_time_replaces_another_as_a_whole(
    writer, database_url, tmp_path
):
    for number in range(4):
        writer.push({"id": number}, partition="ab"[number % 2])
    path = tmp_path / "out.ndjson"
    path.mkdir()
    (path / "old").touch()
    plan = {"url": database_url, "queue": "orders", "since": None, "until": None}

    chosen = {"partition": "b", "path": str(path), "format": "ndjson", "overwrites": True}
    assert export_small(ExportPlan(**plan, **chosen)) == 2

    assert {each.name for each in path.iterdir()} == {"_SUCCESS", "part-00000.txt"}
    lines = (path / "part-00000.txt").read_text().splitlines()
    assert [json.loads(line)["payload"] for line in lines] == [{"id": 1}, {"id": 3}]
