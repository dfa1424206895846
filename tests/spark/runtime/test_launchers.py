"""The Python in front of workers: it leaves out Spark's copy of PySpark, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from skep.spark.runtime import launchers as subject
from skep.spark.runtime.launchers import worker_python


@pytest.fixture
def program(tmp_path):
    return worker_python({}, cache=tmp_path / "cache with a space")


def printed(program, script, *arguments, path=""):
    done = subprocess.run(
        [program, "-c", script, *arguments],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("", ""),
        ("/spark/python/lib/pyspark.zip:/spark/python/lib/py4j-0.10.9.9-src.zip", ""),
        ("/mine:/spark/lib/pyspark.zip:/my own:/spark/lib/py4j-1-src.zip", "/mine:/my own"),
        ("/my-pyspark.zip.d:/py4j-tools", "/my-pyspark.zip.d:/py4j-tools"),
    ],
)
def test_the_copy_is_taken_out_of_the_path_and_all_else_is_kept(program, path, kept):
    script = "import os; print(os.environ.get('PYTHONPATH', ''))"

    assert printed(program, script, path=path) == kept


def test_it_is_this_python_with_the_arguments_as_they_were_given(program):
    script = "import sys; print(sys.prefix, sys.argv[1:])"

    assert printed(program, script, "two words", "*") == f"{sys.prefix} ['two words', '*']"


def test_it_is_written_once(tmp_path):
    first = worker_python({}, cache=tmp_path)
    written_at = Path(first).stat().st_mtime_ns

    assert worker_python({}, cache=tmp_path) == first
    assert Path(first).stat().st_mtime_ns == written_at


def test_it_lies_in_the_cache_of_the_user(tmp_path):
    program = worker_python({"XDG_CACHE_HOME": str(tmp_path)})

    assert Path(program).is_relative_to(tmp_path / "skep")


def test_another_spark_than_the_installed_one_keeps_its_modules(tmp_path):
    assert worker_python({"SPARK_HOME": "/opt/spark"}, cache=tmp_path) == sys.executable


def test_a_pyspark_that_only_the_path_leads_to_keeps_it(tmp_path, monkeypatch):
    (tmp_path / "pyspark.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pyspark")

    assert worker_python({}, cache=tmp_path) == sys.executable


def test_a_package_that_is_missing_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(subject, "_PACKAGES", ("a_package_that_nobody_has",))

    assert worker_python({}, cache=tmp_path) == sys.executable


def test_without_a_place_to_write_python_is_started_as_it_is(tmp_path):
    (tmp_path / "file").touch()

    assert worker_python({}, cache=tmp_path / "file") == sys.executable


def test_local_workers_use_the_installed_pyspark(spark):
    (file,) = spark.sparkContext.parallelize([0], 1).map(lambda _: pyspark.__file__).collect()

    # What is installed where the workers of a cluster run, nobody here knows.
    is_local = spark.sparkContext.master.startswith("local")
    assert (file == pyspark.__file__) == is_local
