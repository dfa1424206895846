import os
import subprocess
import sys
from pathlib import Path

import pytest

import skep.spark
from skep.settings.fields import usable_cores
from skep.spark.pipelines.pipeline import Pipeline
from skep.spark.runtime.java import SUITABLE, java_version
from skep.spark.runtime.session import (
    READING_CORES,
    cores_of,
    prepare_environment,
    reading_cores,
    session_settings,
)


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[3]", 3), ("local[3,4]", 3), ("local[*,4]", usable_cores())],
)
def test_a_local_master_has_as_many_shuffle_partitions_as_cores(master, cores):
    settings = session_settings(master, ui=False, progress=False)

    assert cores_of(master) == cores
    assert settings["spark.sql.shuffle.partitions"] == str(cores)
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.io.compression.codec"] == "lz4"


def test_a_cluster_keeps_its_own_addresses_and_shuffles_as_it_likes():
    settings = session_settings("spark://master:7077", ui=True, progress=True)

    assert "spark.driver.bindAddress" not in settings
    assert "spark.python.daemon.module" not in settings
    assert "spark.sql.shuffle.partitions" not in settings
    assert settings["spark.io.compression.codec"] == "zstd"
    assert (settings["spark.ui.enabled"], settings["spark.ui.showConsoleProgress"]) == (
        "true",
        "true",
    )


@pytest.mark.parametrize(
    ("master", "config", "cores"),
    [
        ("local[3]", {}, 3),
        ("spark://master:7077", {}, 0),
        ("spark://master:7077", {"spark.cores.max": "12"}, 12),
        ("yarn", {"spark.executor.instances": "4", "spark.executor.cores": "5"}, 20),
        ("yarn", {"spark.default.parallelism": "7", "spark.cores.max": "12"}, 7),
    ],
)
def test_what_plans_knows_the_cores_of_the_cluster_and_not_of_its_own_machine(
    monkeypatch, master, config, cores
):
    for name in (READING_CORES, "JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, os.environ.get(name, ""))

    prepare_environment(master, config)

    assert reading_cores(master, config) == cores
    assert os.environ[READING_CORES] == str(cores)


def test_executors_of_a_cluster_run_the_python_of_the_cluster(monkeypatch):
    monkeypatch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", READING_CORES):
        monkeypatch.setenv(name, "")  # to be taken back after the test
        monkeypatch.delenv(name)
    master, setting = "spark://master:7077", "spark.sql.execution.pyspark.python"

    prepare_environment(master)

    assert "PYSPARK_PYTHON" not in os.environ
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert session_settings(master, ui=False, progress=False)[setting] == "python3"
    theirs = {"spark.pyspark.python": "./environment/bin/python"}
    prepare_environment(master, theirs)
    assert os.environ["PYSPARK_PYTHON"] == theirs["spark.pyspark.python"]
    settings = session_settings(master, ui=False, progress=False, config=theirs)
    assert settings[setting] == theirs["spark.pyspark.python"]


def test_executors_find_our_modules_where_the_driver_does(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "somewhere")

    settings = session_settings("local[1]", ui=False, progress=False)

    assert settings["spark.executorEnv.PYTHONPATH"] == "somewhere"


def test_what_somebody_chose_is_left_alone_and_the_rest_is_set(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "their-python")
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    monkeypatch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))

    prepare_environment("spark://master:7077")
    assert "SPARK_LOCAL_IP" not in os.environ
    prepare_environment("local[2]")

    assert os.environ["PYSPARK_PYTHON"] == "their-python"
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert java_version(Path(os.environ["JAVA_HOME"])) in SUITABLE
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")  # to be taken back after the test


def test_a_session_runs_this_python_in_utc_and_without_pages(spark):
    context = spark.sparkContext

    (prefix,) = context.parallelize([0], 1).map(lambda _: sys.prefix).collect()
    assert prefix == sys.prefix
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert context.uiWebUrl is None
    assert spark.sql("select 1 + 1").collect()[0][0] == 2


def test_workers_are_forked_from_a_process_that_has_imported_what_they_need(spark):
    names = spark.sparkContext.parallelize([0], 1).map(
        lambda _: sys.modules["__main__"].__spec__.name
    )

    # On a cluster they come from Spark's own: see `session_settings`.
    is_local = spark.sparkContext.master.startswith("local")
    assert names.collect() == ["skep.spark.runtime.worker_daemon" if is_local else "pyspark.daemon"]


def test_the_front_door_has_what_it_promises():
    assert {name for name in skep.spark.__all__ if getattr(skep.spark, name, None) is None} == set()
    assert skep.spark.Pipeline is Pipeline
    with pytest.raises(AttributeError, match="no attribute 'pipeline'"):
        _ = skep.spark.pipeline


def test_without_pyspark_the_front_door_says_what_to_install():
    program = """
import sys
sys.modules["pyspark"] = None
import skep.spark
for use in (lambda: skep.spark.PipelineRun, lambda: skep.spark.spark_session()):
    try:
        use()
    except skep.spark.Refused as error:
        print(error.message)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    hint = "PySpark is not installed: `pip install skep[spark]`"
    assert done.stdout.splitlines() == [hint, hint], done.stderr


def test_a_spark_that_does_not_start_leaves_its_reasons_in_the_log(tmp_path):
    java = tmp_path / "java"
    (java / "bin").mkdir(parents=True)
    (java / "release").write_text('JAVA_VERSION="17.0.1"\n')
    (java / "bin" / "java").write_text("#!/bin/sh\necho no memory for this machine\nexit 1\n")
    (java / "bin" / "java").chmod(0o755)
    log = tmp_path / "logs" / "spark.log"
    program = (
        f"from pathlib import Path; import skep.spark as s; s.spark_session(log=Path({str(log)!r}))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "JAVA_HOME": str(java)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert f"Refused: Spark did not start; {log} says why" in done.stderr
    assert "no memory for this machine" not in done.stdout + done.stderr
    assert "no memory for this machine" in log.read_text()
