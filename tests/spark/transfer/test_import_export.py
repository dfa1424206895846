"""Imports and exports: files of all formats there and back, other queues, rows that are refused."""

import json
import warnings

import pytest
from typer.testing import CliRunner

from skep.cli.commands import app
from skep.model.encryption import NoEncryptionKey
from skep.model.errors import BadRequest, NotFound, Refused
from skep.spark.transfer.import_export import ExportPlan, run_export
from skep.spark.transfer.single_write import JobFailed
from tests.spark.support.logs import envelope

pytestmark = pytest.mark.slow

MESSAGES = """
  select p.name, m.envelope::text
  from skep.segment s
  join skep.partition p on p.id = s.partition_id
  join skep.queue q on q.id = s.queue_id
  cross join lateral json_array_elements(convert_from(s.body, 'UTF8')::json)
    with ordinality m(envelope, position)
  where q.name = $1
  order by p.name, s.first, m.position
"""
ODD = (
    '{"a": "say \\"hi\\", \\\\ and, comma", "n": 1.50}',
    '"a string"',
    '{\n  "lines": ["x"]\r\n}',
    "null",
    '"é \\u0000 \\n"',
)


@pytest.fixture
def skep(spark, database_url):
    """Run a command; return what it printed, or raise what it raised."""

    def invoke(command, *arguments):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Spark's own, when a session is asked for again
            line = [command, "--database-url", database_url, *map(str, arguments)]
            ended = CliRunner().invoke(app, line)
        if ended.exception is not None and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        assert ended.exit_code == 0, ended.output
        return ended.stdout

    return invoke


def stored(writer, queue):
    return writer.rows(MESSAGES, queue)


def data_of(writer, queue):
    return [(partition, json.loads(text)["data"]) for partition, text in stored(writer, queue)]


HERE = ()
ON_SPARK = ("--master", "local[2,2]")


@pytest.mark.parametrize("suffix", ["parquet", "ndjson", "csv"])
@pytest.mark.parametrize(("exporter", "importer"), [(HERE, ON_SPARK), (ON_SPARK, HERE)])
def test_what_is_exported_is_imported_again_as_it_was(
    skep, writer, tmp_path, suffix, exporter, importer
):
    for number, payload in enumerate(ODD):
        headers = {"h": 'x,"y"'} if number == 0 else None
        sent = envelope(payload, f"tx-{number}", headers=headers)
        writer.push_envelopes(sent, partition=f"p{number % 2}")
    path = tmp_path / f"messages.{suffix}"

    assert "Exported 5 messages" in skep("export", "--queue", "orders", "--to", path, *exporter)
    copy = ("import", "--from", path, "--queue", "copy")
    assert skep(*copy, *importer) == "Imported 5 messages\n"
    assert "Nothing to do" in skep(*copy, *importer)
    assert "Nothing to do" in skep(*copy, *exporter)  # the other way knows it, too

    before, after = (
        [(partition, json.loads(text)) for partition, text in stored(writer, queue)]
        for queue in ("orders", "copy")
    )
    assert before == after


def test_another_queue_is_imported_in_order_with_its_ids(skep, writer):
    for number in range(40):
        writer.push(number, partition=f"p{number % 3}")

    said = skep("import", "--format", "queue", "--from", "orders", "--queue", "copy")
    again = skep("import", "--format", "queue", "--from", "orders", "--queue", "copy")

    assert said == "Imported 40 messages\n"
    assert again == "Imported 0 messages; left out: 40 duplicates\n"
    assert stored(writer, "copy") == stored(writer, "orders")


def test_columns_are_mapped_by_expressions_and_rows_without_a_payload_become_objects(
    skep, writer, tmp_path
):
    path = tmp_path / "orders.csv"
    path.write_text('id,customer,total\n1,ann,"2,5"\n2,bob,3\n')

    skep("import", "--from", path, "--queue", "whole")
    mapped = ["--map", "partition=customer", "--map", "payload=struct(int(id) as id)"]
    skep("import", "--from", path, "--queue", "mapped", *mapped)

    assert data_of(writer, "whole") == [
        ("Default", {"id": "1", "customer": "ann", "total": "2,5"}),
        ("Default", {"id": "2", "customer": "bob", "total": "3"}),
    ]
    assert data_of(writer, "mapped") == [("ann", {"id": 1}), ("bob", {"id": 2})]


def test_lines_that_are_no_messages_are_payloads_and_bad_ones_are_rejected_by_row(
    skep, writer, tmp_path
):
    path = tmp_path / "events.ndjson"
    path.write_text('{"id": 1}\n\n{"id": 2,\n{"payload": 3, "partition": "p"}\n')

    for how in (HERE, ON_SPARK):
        with pytest.raises(JobFailed, match=r"at least 1 rows cannot .* row 1 .* is not JSON"):
            skep("import", "--from", path, "--queue", "events", *how)
    assert stored(writer, "events") == []
    said = skep("import", "--from", path, "--queue", "events", "--on-error", "dead-letter")

    assert said.startswith("Imported 2 messages; not stored: 1 dead letter")
    assert data_of(writer, "events") == [("Default", {"id": 1}), ("p", 3)]


def test_an_export_writes_what_is_asked_for(skep, writer, spark, tmp_path):
    writer.push({"id": 1}, {"id": 2})
    path = tmp_path / "ids"
    chosen = ["--column", "get_json_object(payload, '$.id') as id", "--where", "offset > 1"]

    skep("export", "--queue", "orders", "--to", path, "--format", "ndjson", *chosen)

    assert [row.id for row in spark.read.json(str(path)).collect()] == ["2"]
    with pytest.raises(BadRequest, match="already exists"):
        skep("export", "--queue", "orders", "--to", path, "--format", "parquet")
    skep("export", "--queue", "orders", "--to", path, "--format", "parquet", "--overwrite")
    assert spark.read.parquet(str(path)).count() == 2


def test_an_export_says_how_far_it_is(spark, writer, database_url, tmp_path):
    writer.push(1, 2)
    plan = ExportPlan(
        url=database_url,
        queue="orders",
        path=str(tmp_path / "out"),
        format="parquet",
        since=None,
        until=None,
    )
    seen = []

    run_export(lambda: spark, plan, seen.append)

    assert seen[-1].tasks >= seen[-1].tasks_done > 0


def test_sealed_messages_leave_their_queue_only_if_somebody_says_so(
    skep, writer, tmp_path, monkeypatch
):
    writer.partition()
    writer.execute("update skep.queue set encryption_enabled = true where name = 'orders'")
    path = tmp_path / "messages.parquet"
    (tmp_path / "one.ndjson").write_text("1\n")

    monkeypatch.delenv("SKEP_ENCRYPTION_KEYS", raising=False)
    with pytest.raises(NoEncryptionKey):
        skep("export", "--queue", "orders", "--to", path, "--decrypt")
    with pytest.raises(NoEncryptionKey):
        skep("import", "--from", tmp_path / "one.ndjson", "--queue", "orders")
    monkeypatch.setenv("SKEP_ENCRYPTION_KEYS", f"k1:{'11' * 32}")
    with pytest.raises(Refused, match="in the clear"):
        skep("export", "--queue", "orders", "--to", path)
    skep("import", "--from", tmp_path / "one.ndjson", "--queue", "orders")
    assert "Exported 1 " in skep("export", "--queue", "orders", "--to", path, "--decrypt")
    assert '"enc":"k1"' in stored(writer, "orders")[0][1]


def test_a_file_outside_of_this_machine_is_imported_again_if_it_was_overwritten(
    skep, writer, spark, tmp_path
):
    # A file system of Hadoop's with a scheme of its own, as object stores are.
    mounted = "fs.viewfs.mounttable.store.link./data"
    spark.sparkContext._jsc.hadoopConfiguration().set(mounted, f"file://{tmp_path}")
    writer.partition("orders")
    file = tmp_path / "new orders.ndjson"
    file.write_text('{"payload": 1}\n')

    def imported():
        said = skep("import", "--from", f"viewfs://store/data/{file.name}", "--queue", "orders")
        return said, [data for _, data in data_of(writer, "orders")]

    assert imported()[1] == [1]
    assert imported()[1] == [1]
    file.write_text('{"payload": 23}\n')

    assert imported()[1] == [1, 23]
    assert imported()[1] == [1, 23]


def test_mistakes_are_told_in_one_line(skep, tmp_path):
    missing = tmp_path / "missing.csv"

    with pytest.raises(BadRequest, match="pass --format"):
        skep("import", "--from", tmp_path, "--queue", "q")
    with pytest.raises(BadRequest, match="COLUMN=EXPRESSION"):
        skep("import", "--from", missing, "--queue", "q", "--map", "partition")
    with pytest.raises(BadRequest, match="there is no column 'queue'"):
        skep("import", "--from", missing, "--queue", "q", "--map", "queue='x'")
    with pytest.raises(BadRequest, match="Path does not exist"):
        skep("import", "--from", missing, "--queue", "q")
    with pytest.raises(NotFound, match="no queue 'nowhere'"):
        skep("export", "--queue", "nowhere", "--to", missing)
