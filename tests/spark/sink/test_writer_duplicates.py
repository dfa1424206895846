"""Duplicates of a write: found as a push finds them, whoever else pushes at the same time."""

import threading

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep.spark.runtime.postgres import database, forget_connections
from skep.spark.sink import commit as sink_commit
from skep.spark.sink.commit import Committed, commit
from skep.spark.sink.duplicates import Findings, find_duplicates
from skep.spark.sink.options import write_options
from skep.spark.sink.staging import Stager

WAITING = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"


class Sink:
    """Writes rows, named by transaction ids, into a queue, and tells what is there."""

    def __init__(self, url, writer):
        self.options = write_options({"url": url, "queue": "hive"})
        self.writer = writer
        self._writes = 0

    def stage(self, *names, write_id=None, task=0, partitions=None):
        """Stage rows as one task; of names that are None the writer makes one up."""
        columns = {
            "payload": pa.array(["1"] * len(names), pa.string()),
            "partition": pa.array(partitions or ["a"] * len(names), pa.string()),
            "transaction_id": pa.array(names, pa.string()),
        }
        rows = pa.RecordBatch.from_pydict(columns)
        return Stager(self.options, write_id or self._next(), 0, task).stage([rows])

    def _next(self):
        self._writes += 1
        return f"write-{self._writes}"

    def commit(self, *tasks):
        return commit(self.options, list(tasks), is_passing=True)

    def write(self, *names, **columns):
        return self.commit(self.stage(*names, **columns))

    def find(self, *tasks, **limits):
        opened = database(self.options.url, self.options.statement_timeout_s)
        attempts = [task.place.attempt for task in tasks]
        return find_duplicates(opened, tasks[0].place, attempts, **limits)

    def names(self, partition="a"):
        rows = self.writer.rows(
            "select e ->> 'transactionId' from skep.partition p"
            " join skep.segment s on s.partition_id = p.id"
            " cross join lateral json_array_elements(convert_from(s.body, 'UTF8')::json)"
            " with ordinality e(e, position)"
            " where p.name = $1 order by s.first, e.position",
            partition,
        )
        return [name for (name,) in rows]


@pytest.fixture
def sink(database_url, writer):
    yield Sink(database_url, writer)
    forget_connections()


def duplicates(findings):
    return [(each.number, each.indexes) for each in findings.duplicates]


def test_what_is_stored_or_was_before_in_the_write_is_dropped_and_the_rest_keeps_its_order(sink):
    sink.write("b", "d")

    committed = sink.write("a", "b", "c", "a", "d", "e")

    assert committed == Committed(False, 3, 0, 3, 0)
    assert sink.names() == ["b", "d", "a", "c", "e"]


def test_of_two_tasks_with_the_same_id_the_first_one_keeps_it(sink):
    second = sink.stage("x", "z", write_id="w", task=1)
    first = sink.stage("x", "y", write_id="w", task=0)

    assert sink.commit(second, first).duplicates == 1

    assert sink.names() == ["x", "y", "z"]


def test_a_partition_is_told_with_its_head_its_window_and_the_oldest_match(sink):
    sink.write("a", "b")
    sink.write("c")
    task = sink.stage("new", "b", "c")

    (partition,) = sink.find(task).partitions

    assert (partition.queue, partition.partition, partition.head, partition.oldest) == (
        "hive",
        "a",
        3,
        2,
    )
    assert partition.since != "-infinity"


def test_of_a_partition_that_does_not_exist_nothing_is_stored_and_twins_are_found(sink):
    findings = sink.find(sink.stage("x", "y", "x"))

    assert [
        (partition.id, partition.head, partition.since) for partition in findings.partitions
    ] == [(None, 0, "-infinity")]
    assert duplicates(findings) == [(0, [2])]


def test_ids_that_were_made_up_cost_no_look_into_the_log(sink, monkeypatch):
    monkeypatch.setattr(sink_commit, "find_duplicates", None)

    assert sink.write(None, None).messages == 2
    with pytest.raises(TypeError):
        sink.write(None, "given")


def test_portions_of_partitions_find_what_one_look_finds(sink):
    partitions = ["a", "b", "c", "d"]
    for partition in partitions:
        sink.write("x", "y", partitions=[partition] * 2)
    names = ["x", "new", "new", *"123456789"]
    task = sink.stage(*names * 4, partitions=[partition for partition in partitions for _ in names])

    whole, parts = sink.find(task), sink.find(task, keys_max=len(names) * 3 // 2)

    assert duplicates(whole) == [(number, [0, 2]) for number in range(4)]
    assert duplicates(parts) == duplicates(whole)
    assert [partition.head for partition in parts.partitions] == [2] * 4


def test_a_partition_with_too_many_ids_is_left_to_postgres(sink, monkeypatch):
    sink.write("x")
    task = sink.stage("x", "y", "y")
    findings = sink.find(task, keys_max=2)
    monkeypatch.setattr(sink_commit, "find_duplicates", lambda *_: findings)

    assert findings == Findings()
    assert sink.commit(task).duplicates == 2
    assert sink.names() == ["x", "y"]


def pushed_meanwhile(sink, monkeypatch, push):
    """Let something happen between the look of the driver and its commit."""

    def find_and_push(*arguments):
        findings = find_duplicates(*arguments)
        push()
        return findings

    monkeypatch.setattr(sink_commit, "find_duplicates", find_and_push)


@pytest.mark.parametrize(
    "stored", [(), ("old",)], ids=["in a new partition", "in a partition with messages"]
)
def test_what_was_pushed_between_look_and_commit_is_found(sink, monkeypatch, stored):
    if stored:
        sink.write(*stored)
    task = sink.stage("x", "old", "y", "x")
    other = sink.stage("x", "z")
    pushed_meanwhile(sink, monkeypatch, lambda: commit_without_look(sink, other))

    assert sink.commit(task).messages == (1 if stored else 2)

    assert sink.names() == (["old", "x", "z", "y"] if stored else ["x", "z", "old", "y"])


def commit_without_look(sink, task):
    place = task.place
    sql = "select * from skep.commit_sink($1, 0, true, $2, $3)"
    sink.writer.rows(sql, place.write_id, [place.attempt], task.rows)


def test_what_was_deleted_between_look_and_commit_is_no_duplicate_any_more(sink, monkeypatch):
    sink.write("x")
    task = sink.stage("x", "y")
    clear = "update skep.partition set tail = head + 1; delete from skep.segment where queue_id > 0"
    pushed_meanwhile(sink, monkeypatch, lambda: sink.writer.execute(clear))

    assert sink.commit(task) == Committed(False, 2, 0, 0, 0)


def test_a_push_that_holds_the_partition_while_the_driver_looks_wins(
    sink, open_writer, database_url
):
    sink.write("old")
    pusher, watcher = open_writer(), open_writer()
    rival = Sink(database_url, pusher)
    first, second = rival.stage("x", "y", write_id="rival"), sink.stage("y", "z")
    outcome = []
    pusher.execute("begin")
    commit_without_look(rival, first)  # not committed yet: the look does not see it
    thread = threading.Thread(target=lambda: outcome.append(sink.commit(second)))
    thread.start()
    while not watcher.value(WAITING):
        assert thread.is_alive()
    pusher.execute("commit")
    thread.join(60)

    assert outcome == [Committed(False, 1, 0, 1, 0)]
    assert sink.names() == ["old", "x", "y", "z"]


NAMES = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(writes=st.lists(st.tuples(NAMES, NAMES), max_size=3))
def test_after_writes_each_id_is_there_once_in_the_order_of_its_first_row(sink, writes):
    sink.writer.execute("delete from skep.segment; update skep.partition set tail = head + 1")
    expected = {}
    for tasks in writes:
        write_id = sink._next()
        staged = [
            sink.stage(*names, write_id=write_id, task=task) for task, names in enumerate(tasks)
        ]
        sink.commit(*staged)
        expected |= dict.fromkeys(name for names in tasks for name in names)

    assert sink.names() == list(expected)
