"""What tasks stage and the driver commits, against a real database and without Spark's help."""

import json

import pyarrow as pa
import pytest

from skep.model.errors import QueueFull, Refused, Unavailable
from skep.spark.runtime.postgres import CannotRead, forget_connections
from skep.spark.sink import commit as sink_commit
from skep.spark.sink import staging as staging_module
from skep.spark.sink.commit import (
    Committed,
    QueueChanged,
    RejectedRows,
    StagingLost,
    abort,
    commit,
)
from skep.spark.sink.options import write_options
from skep.spark.sink.staging import Stager

KEY = "2b" * 32


@pytest.fixture
def options(database_url):
    """Options of a writer to this test's database."""
    yield lambda **given: write_options({"url": database_url, "queue": "hive"} | given)
    forget_connections()


@pytest.fixture
def stage(options):
    """Stage payloads, JSON as text, as one task."""

    def stage(*payloads, epoch=0, task=0, write_id="w", given=None, **columns):
        rows = pa.RecordBatch.from_pydict({"payload": pa.array(payloads, pa.string()), **columns})
        return Stager(given or options(), write_id, epoch, task).stage([rows])

    return stage


@pytest.fixture
def payloads(writer):
    def payloads():
        rows = writer.rows(
            "select convert_from(body, 'UTF8') from skep.segment where partition_id > 0"
            " order by first"
        )
        return [message["data"] for (body,) in rows for message in json.loads(body)]

    return payloads


def staged_rows(writer):
    tables = ("staged_segment", "staged_message", "staged_reject")
    bodies = writer.value("select count(*) from skep.segment where partition_id < 0")
    return bodies + sum(writer.value(f"select count(*) from skep.{table}") for table in tables)


def test_a_commit_that_is_called_twice_stores_once(options, stage, payloads):
    tasks = [stage("1", "2", task=0), stage("3", task=1)]

    first = commit(options(), tasks, is_passing=False)
    second = commit(options(), tasks, is_passing=False)

    assert first == Committed(False, 3, 0, 0, 0)
    assert second is not None
    assert second.is_repeated
    assert payloads() == [1, 2, 3]


def test_a_repeated_epoch_does_not_even_stage(options, stage, writer):
    commit(options(), [stage("1", epoch=4)], is_passing=False)

    assert stage("1", epoch=4).rows == 0
    assert stage("1", epoch=3).rows == 0
    assert stage("1", epoch=5).rows == 1
    assert staged_rows(writer) == 2  # a segment, and what is known of it


def test_rows_are_in_the_order_of_their_tasks_whoever_was_quicker(options, stage, payloads):
    second = stage("3", "4", task=1)
    first = stage("1", "2", task=0)

    commit(options(), [second, first], is_passing=True)

    assert payloads() == [1, 2, 3, 4]


def test_an_attempt_that_did_not_finish_leaves_nothing_in_the_log(options, stage, payloads, writer):
    stage("1")
    good = stage("1")

    commit(options(), [good], is_passing=True)

    assert payloads() == [1]
    assert staged_rows(writer) == 0


def test_an_abort_throws_staging_away_also_when_it_comes_twice_or_after_the_commit(
    options, stage, payloads, writer
):
    task = stage("1")
    for _ in range(2):
        abort(options(), [None, task])
    assert staged_rows(writer) == 0

    again = stage("1")
    commit(options(), [again], is_passing=True)
    abort(options(), [again])
    abort(options(), [None])

    assert payloads() == [1]


def test_an_abort_that_cannot_reach_the_database_leaves_the_cause_to_spark(stage, options, caplog):
    task = stage("1")

    abort(options(url="postgresql://nobody@127.0.0.1:1/none"), [task])

    assert "left to be swept" in caplog.text


def test_no_tasks_are_nothing_to_commit(options):
    assert commit(options(), [], is_passing=True) is None


def test_staging_that_a_crash_took_away_is_noticed(options, stage, payloads, writer):
    task = stage("1")
    writer.execute("truncate skep.staged_segment")

    with pytest.raises(StagingLost, match=r"1 of 1 staged rows are gone.* run it again"):
        commit(options(), [task], is_passing=True)

    assert payloads() == []


def test_rows_that_cannot_be_stored_are_named_and_nothing_is(options, stage, payloads, writer):
    tasks = [stage("1", "{", task=0), stage("2", task=1), stage(*"[" * 9, task=2)]

    with pytest.raises(RejectedRows) as raised:
        commit(options(), tasks, is_passing=True)

    assert raised.value.message.startswith(
        "at least 10 rows cannot be stored, and nothing was: task 0, row 1 (queue hive, "
        "transaction id 'spark:w:0:0:1'): payload is not JSON: Input data was truncated; task 2, "
    )
    assert raised.value.message.count("task 2") == 4
    abort(options(), tasks)
    assert (payloads(), staged_rows(writer)) == ([], 0)


def test_rejects_can_become_dead_letters_of_their_queue(options, stage, payloads, writer):
    given = options(onError="dead-letter")

    found = commit(given, [stage("1", "{", "3", given=given)], is_passing=True)

    assert found == Committed(False, 2, 0, 0, 1)
    assert payloads() == [1, 3]
    ((envelope, error, queue),) = writer.rows(
        "select d.envelope::text, d.error, q.name from skep.dead_letter d"
        " join skep.queue q on q.id = d.queue_id"
    )
    assert (json.loads(envelope)["data"], queue) == ("{", "hive")
    assert error == "payload is not JSON: Input data was truncated"


def test_a_reject_without_a_queue_goes_to_the_one_that_is_named_for_it(
    options, database_url, writer
):
    rows = pa.RecordBatch.from_pydict(
        {"payload": pa.array(["1"]), "queue": pa.array(["n" * 256], pa.string())}
    )
    nowhere = write_options({"url": database_url, "onError": "dead-letter"})
    named = write_options(
        {"url": database_url, "onError": "dead-letter", "deadLetterQueue": "strays"}
    )

    with pytest.raises(Refused, match="name one by the option deadLetterQueue"):
        commit(nowhere, [Stager(nowhere, "a", 0, 0).stage([rows])], is_passing=True)
    commit(named, [Stager(named, "b", 0, 0).stage([rows])], is_passing=True)

    assert writer.rows(
        "select q.name, d.error from skep.dead_letter d join skep.queue q on q.id = d.queue_id"
    ) == [("strays", "queue is longer than 255 characters")]


def test_duplicates_are_dropped_and_counted(options, stage, payloads):
    ids = pa.array(["a", "b", "a"])

    first = commit(options(), [stage("1", "2", "3", transaction_id=ids)], is_passing=False)
    second = commit(
        options(), [stage("1", "2", "3", transaction_id=ids, write_id="v")], is_passing=False
    )

    assert first == Committed(False, 2, 0, 1, 0)
    assert second == Committed(False, 0, 0, 3, 0)
    assert payloads() == [1, 2]


def test_encrypted_queues_get_sealed_messages_or_none(options, stage, writer):
    writer.partition("hive")
    writer.execute("update skep.queue set encryption_enabled = true")

    with pytest.raises(Refused, match="no encryption key"):
        commit(options(), [stage('"tea"')], is_passing=True)
    given = options(encryptionKeys=KEY)
    commit(given, [stage('"tea"', given=given, write_id="v")], is_passing=True)

    (body,) = writer.rows("select body from skep.segment where partition_id > 0")[0]
    assert body.startswith(b'[{"enc":"')
    assert b"tea" not in body


def test_a_queue_that_asks_for_more_than_when_its_rows_were_staged_refuses_them(
    options, stage, writer, payloads
):
    task = stage("1")
    writer.partition("hive")
    writer.execute("""update skep.queue set json_schema = '{"type": "string"}'""")

    with pytest.raises(QueueChanged, match=r"queue hive was reconfigured.*run it again"):
        commit(options(), [task], is_passing=True)
    assert payloads() == []

    with pytest.raises(RejectedRows, match="the value is not of type"):
        commit(options(), [stage("1")], is_passing=True)


def test_other_changes_of_a_queue_do_no_harm(options, stage, writer, payloads):
    task = stage("1")
    writer.partition("hive")
    writer.execute("update skep.queue set version = version + 1, lease_time_s = 9")

    commit(options(), [task], is_passing=True)

    assert payloads() == [1]


def test_a_full_queue_is_waited_for_and_then_refused(options, stage, writer):
    writer.push("old", queue="hive")
    writer.execute("update skep.queue set max_size = 1")

    with pytest.raises(QueueFull, match=r"did not make room in 0\.01 s"):
        commit(options(queueFullTimeout="10ms"), [stage("1")], is_passing=True)


def test_a_queue_that_gets_room_in_time_takes_the_rows(
    options, stage, writer, payloads, monkeypatch
):
    writer.push("old", queue="hive")
    writer.execute("update skep.queue set max_size = 1")
    pauses = []

    def make_room(seconds):
        pauses.append(seconds)
        writer.execute("update skep.queue set max_size = 2")

    monkeypatch.setattr(sink_commit, "sleep", make_room)

    found = commit(options(), [stage("1")], is_passing=True)

    assert found == Committed(False, 1, 0, 0, 0)
    assert len(pauses) == 1
    assert payloads() == ["old", 1]


def test_rows_for_later_wait_outside_the_log(options, stage, writer, payloads):
    soon = writer.value("select clock_timestamp() + interval '1 hour'")
    moments = pa.array([None, soon], pa.timestamp("us", "UTC"))

    found = commit(options(), [stage("1", "2", deliver_at=moments)], is_passing=True)

    assert found == Committed(False, 1, 1, 0, 0)
    assert payloads() == [1]
    ((envelope, deliver_at),) = writer.rows("select envelope, deliver_at from skep.scheduled")
    assert (json.loads(envelope)["data"], deliver_at) == (2, soon)


def test_large_rows_are_worked_on_in_pieces(options, stage, payloads, monkeypatch):
    monkeypatch.setattr(staging_module, "GATHERED_BYTES", 100)
    texts = [json.dumps("x" * 40 + str(number)) for number in range(20)]

    task = stage(*texts)
    commit(options(), [task], is_passing=True)

    assert task.rows == 5
    assert payloads() == [json.loads(text) for text in texts]


def test_a_lost_database_fails_the_task_so_that_spark_repeats_it(options):
    rows = pa.RecordBatch.from_pydict({"payload": pa.array(["1"])})

    with pytest.raises(Unavailable, match="cannot connect"):
        Stager(options(url="postgresql://nobody@127.0.0.1:1/none"), "w", 0, 0).stage([rows])


def test_a_commit_whose_answer_was_lost_is_asked_for_again(options, stage, payloads, writer):
    task = stage("1")
    # The connection of this process is cut; the first try finds out, the second opens another.
    writer.value(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where pid <> pg_backend_pid() and datname = current_database()"
    )

    found = commit(options(), [task], is_passing=True)

    assert found is not None
    assert payloads() == [1]


def test_what_postgresql_refuses_is_said_as_it_is(options, stage, writer):
    task = stage("1")
    writer.execute("alter table skep.segment add constraint never check (partition_id < 0)")

    with pytest.raises(CannotRead, match="never"):
        commit(options(), [task], is_passing=True)
