"""Run tests of Spark on a cluster: `python -m tests.spark.on_cluster [FILE ...]`.

A master and two workers on the loopback address, each with an executor; without files all tests of
this directory run there. The suite itself runs some of them so, in `test_cluster_spark`.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.spark.cluster import standalone_cluster
from tests.spark.conftest import CLUSTER

ROOT = Path(__file__).parents[2]
STARTS_CLUSTERS = "test_cluster_spark.py"


def environment(cluster):
    """Let a process run on the cluster, and its executors find what this one finds."""
    return {
        **os.environ,
        CLUSTER: cluster.address,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }


def run_tests(cluster, files, *options, **how):
    """Run files of tests in a process of their own; a process has one session of Spark."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *files]
    return subprocess.run(command, cwd=ROOT, env=environment(cluster), check=False, **how)


def all_files():
    found = sorted(Path(__file__).parent.rglob("test_*.py"))
    return [str(file) for file in found if file.name != STARTS_CLUSTERS]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home, standalone_cluster(Path(home)) as cluster:
        sys.exit(run_tests(cluster, sys.argv[1:] or all_files()).returncode)
