"""A real cluster: a master and two workers, each with an executor of its own.

A process has one session of Spark, and that of this run is local; so what is to be shown on the
cluster runs in processes of its own, which use the tests and fixtures there are.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from benchmarks.meter import read_processes, tree_of
from benchmarks.spark.cluster import standalone_cluster
from benchmarks.spark.victims import QUICK_START
from tests.spark.on_cluster import environment, run_tests
from tests.support.sizes import sized

READ = "tests/spark/source/test_batch_read.py"
STREAM = "tests/spark/source/test_stream_read.py"
WRITE = "tests/spark/sink/test_writer.py"
SUITE = sized(
    (
        f"{READ}::test_every_message_is_a_row_with_all_that_is_known_of_it",
        f"{READ}::test_the_log_is_cut_into_as_many_tasks_as_asked_for_and_read_once",
        f"{STREAM}::test_a_query_goes_on_from_its_checkpoint_in_limited_batches",
        f"{WRITE}::test_a_task_that_fails_when_half_is_staged_and_is_repeated_writes_its_rows_once",
    ),
    large=(READ, STREAM, WRITE),
)
TIMEOUT_S = 400

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * TIMEOUT_S)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", QUICK_START)  # executors take their own from nowhere else
        with standalone_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
            yield cluster


def test_what_reads_streams_and_writes_locally_does_so_on_a_cluster(cluster):
    ended = run_tests(
        cluster,
        SUITE,
        "-x",
        f"--timeout={TIMEOUT_S}",
        timeout=TIMEOUT_S,
        capture_output=True,
        text=True,
    )

    assert ended.returncode == 0, ended.stdout[-4000:]


JOB = """
import os, sys, threading
from pathlib import Path
from skep.spark.runtime.session import spark_session

master, url, directory = sys.argv[1:]
spark = spark_session("killed", master=master, config={
    "spark.log.level": "OFF", "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "512m"})

def held(rows):
    from pyspark import TaskContext
    task = TaskContext.get()
    for number, row in enumerate(rows):
        yield row
        if number == 15_000 and task.partitionId() == 1 and task.attemptNumber() == 0:
            Path(directory, "pid").write_text(str(os.getpid()))
            Path(directory, "pid").rename(Path(directory, "half"))
            threading.Event().wait()  # ends with the executor

rows = spark.range(0, 40_000, 1, 2).selectExpr("concat('p', id % 7) partition", "id payload")
rows = spark.createDataFrame(rows.rdd.mapPartitions(held), rows.schema, verifySchema=False)
rows.write.format("skep").mode("append").options(url=url, queue="orders").save()
found = spark.read.format("skep").options(url=url, queue="orders", minPartitions="2").load()
print("read", found.selectExpr("count(distinct payload)", "count(*)").collect()[0])
spark.stop()
"""


def test_an_executor_killed_in_the_middle_of_a_task_costs_nothing(
    cluster, database_url, writer, tmp_path
):
    job = subprocess.Popen(
        [sys.executable, "-c", JOB, cluster.address, database_url, str(tmp_path)],
        env=environment(cluster),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        await_file(tmp_path / "half", job)
        assert len(cluster.executors()) == 2
        pid = int((tmp_path / "half").read_text())
        os.kill(executor_of(pid, cluster), signal.SIGKILL)
        said, _ = job.communicate(timeout=TIMEOUT_S)
    finally:
        job.kill()
        job.wait()

    assert job.returncode == 0
    assert "read Row(count(DISTINCT payload)=40000, count(1)=40000)" in said
    assert writer.rows("select messages, duplicates, rejected from skep.sink") == [(40_000, 0, 0)]
    assert writer.value("select count(*) from skep.segment where partition_id < 0") == 0


def await_file(path, process):
    """Wait until a file is there; the process must not end before."""
    giving_up_at = time.monotonic() + TIMEOUT_S
    while not path.exists():
        assert time.monotonic() < giving_up_at
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"ended with {process.wait(0.2)}")


def executor_of(pid, cluster):
    """Return the executor that a Python worker belongs to."""
    processes = read_processes()
    return next(
        executor
        for executor in cluster.executors()
        if any(each.pid == pid for each in tree_of(executor, processes))
    )
