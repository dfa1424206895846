"""Options and columns of a writer are checked before anything is written."""

import pytest
from pyspark.sql.types import StructType

from skep.spark.sink.columns import check_write_schema
from skep.spark.sink.options import Version, write_options
from skep.spark.sink.writer import CannotOverwrite, SkepStreamWriter, SkepWriter
from skep.spark.source.columns import InvalidColumns
from skep.spark.source.options import InvalidOption

URL = "postgresql://user@host/name"


def options(**given):
    return write_options({"url": URL} | given)


def test_defaults_are_careful():
    found = options(queue="hive")

    assert (found.on_error, found.payload, found.version) == ("fail", "json", None)
    assert found.message_bytes_max == 16 << 20
    assert (found.full_timeout_s, found.statement_timeout_s) == (60.0, 300.0)


def test_every_option_is_taken():
    found = options(
        path="hive",
        onError="dead-letter",
        deadLetterQueue="strays",
        payload="text",
        maxMessageBytes="5",
        txnAppId="app",
        txnVersion="7",
        queueFullTimeout="2m",
        encryptionKeys="k",
        encryptionKeyFile="file",
        statementTimeout="5s",
        checkpointLocation="ignored",
    )

    assert (found.queue, found.dead_letter_queue) == ("hive", "strays")
    assert (found.on_error, found.payload) == ("dead-letter", "text")
    assert (found.message_bytes_max, found.full_timeout_s) == (5, 120.0)
    assert found.version == Version("app", 7)
    assert (found.encryption_keys, found.encryption_key_file) == ("k", "file")
    assert found.statement_timeout_s == 5.0


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"qeue": "hive"}, "unknown option 'qeue'; did you mean queue?"),
        ({"startingOffsets": "latest"}, "unknown option 'startingOffsets'"),
        ({"queue": "a", "path": "b"}, "give the option queue or a path, not both"),
        ({"queue": ""}, "the option queue names no queue"),
        ({"queue": "n" * 256}, "the option queue: the name is longer than 255 characters"),
        ({"onError": "ignore"}, "the option onError must be one of fail, dead-letter"),
        ({"txnAppId": "a"}, "give both of txnAppId and txnVersion"),
        ({"txnAppId": "", "txnVersion": "1"}, "txnAppId must be a name of 1 to 150 characters"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "txnVersion must be a whole number that grows"),
        ({"maxMessageBytes": "0"}, "maxMessageBytes must be a whole number, at least 1"),
        ({"url": "mysql://x"}, "the option url must begin with postgresql://"),
    ],
)
def test_what_is_wrong_is_refused_by_name(given, complaint):
    with pytest.raises(InvalidOption) as raised:
        options(**given)
    assert complaint in raised.value.message


def schema(text):
    return StructType.fromJson(_parse_ddl(text))


def _parse_ddl(text):
    fields = []
    for part in text.split("; "):
        name, kind = part.split(" ", 1)
        fields.append({"name": name, "type": kind, "nullable": True, "metadata": {}})
    return {"type": "struct", "fields": fields}


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ("queue string", "there is no column payload to write"),
        ("payload string", "say where to write to"),
        ("queue string; payload string; id string", "there is no column 'id' to write"),
        ("queue integer; payload string", "the column 'queue' must be a string, not int"),
        ("queue string; payload string; deliver_at string", "'deliver_at' must be a timestamp"),
        ("queue string; payload string; headers string", "'headers' must be a map of strings"),
    ],
)
def test_columns_that_cannot_be_written_are_refused(columns, complaint):
    with pytest.raises(InvalidColumns) as raised:
        check_write_schema(schema(columns), options())
    assert complaint in raised.value.message


def test_a_log_is_appended_to():
    columns = schema("payload string")
    given = {"url": URL, "queue": "hive"}
    for kind in (SkepWriter, SkepStreamWriter):
        with pytest.raises(CannotOverwrite, match="append"):
            kind(given, columns, overwrite=True)
        kind(given, columns, overwrite=False)


def test_a_stream_has_a_version_of_its_own():
    given = {"url": URL, "queue": "hive", "txnAppId": "a", "txnVersion": "1"}
    with pytest.raises(InvalidOption, match="not for streams"):
        SkepStreamWriter(given, schema("payload string"), overwrite=False)
