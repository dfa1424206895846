"""A real cluster: a master and two workers, each with an executor of its own.

A process has one session of Spark, and that of this run is local; so what is to be shown on the
cluster runs in processes of its own, which use the tests and fixtures there are.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import time
import venv
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest

import pyspark_skep
import skep
from benchmarks.meter import read_processes, tree_of
from benchmarks.spark.cluster import standalone_cluster
from benchmarks.spark.victims import QUICK_START
from skep.spark.runtime.java import find_java
from tests.spark.on_cluster import environment, run_tests
from tests.spark.support.pipelines import messages_of
from tests.support.sizes import sized

PAGE = Path(__file__).parents[3] / "docs" / "operations" / "spark-clusters.md"
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
    # The Python of the driver plans, and must not be what executors run.
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ "$SPARK_EXECUTOR_DIRS" ] || exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    job = subprocess.Popen(
        [sys.executable, "-c", JOB, cluster.address, database_url, str(tmp_path)],
        env=environment(cluster) | {"PYSPARK_DRIVER_PYTHON": str(python)},
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


def blocks_of_page():
    """Return the code blocks of the page on clusters."""
    return [block.partition("\n")[2] for block in PAGE.read_text().split("```")[1::2]]


def packed_environment(directory):
    """Pack an environment that has Skep of its own, and shares the other packages of this one."""
    home = directory / "packed"
    venv.create(home, symlinks=True)
    (site,) = home.glob("lib/python3*/site-packages")
    for package in (skep, pyspark_skep):
        shutil.copytree(Path(package.__file__).parent, site / package.__name__)
    (site / "shared.pth").write_text(sysconfig.get_path("purelib"))
    archive = directory / "environment.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(home, ".")
    return archive


WHERE_SKEP_IS = """
import skep
found = spark.range(0, 2, 1, 2).rdd.map(lambda _: __import__("skep").__file__).distinct().collect()
print("executors", found)
"""


def test_the_command_line_of_the_page_brings_its_environment_along(
    cluster, database_url, writer, tmp_path
):
    for number in range(6):
        writer.push(number, partition="ab"[number % 2])
    writer.partition("counts")
    command, program = (
        next(block for block in blocks_of_page() if block.startswith(beginning))
        for beginning in ("spark-submit --master spark:", "from pyspark.sql")
    )
    packed_environment(tmp_path)
    (tmp_path / "partitions.py").write_text(program + WHERE_SKEP_IS)
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.driver.host 127.0.0.1\nspark.driver.bindAddress 127.0.0.1\n"
        "spark.executor.memory 512m\nspark.sql.shuffle.partitions 2\n"
    )
    words = shlex.split(command.replace("\\\n", "").replace("spark://spark:7077", cluster.address))
    submit = Path(pyspark.__file__).parent / "bin" / words[0]

    ended = subprocess.run(
        [submit, *words[1:]],
        cwd=tmp_path,
        env={
            **os.environ,
            "JAVA_HOME": str(find_java(os.environ)),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "SKEP_DATABASE_URL": database_url,
            "SPARK_CONF_DIR": str(tmp_path),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        timeout=TIMEOUT_S,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr[-4000:]
    assert "/environment/lib/" in ended.stdout
    assert messages_of(writer, "counts") == [("a", {"count": 3}), ("b", {"count": 3})]


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
