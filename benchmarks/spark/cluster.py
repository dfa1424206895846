"""A cluster of Spark on this machine: a standalone master and workers, from the pip package.

Every process is started here, on the loopback address and on free ports, and ended here.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyspark

from benchmarks.errors import ServerNotReady
from benchmarks.meter import read_processes, tree_of
from skep.spark.runtime.java import find_java
from skep.spark.runtime.session import LOOPBACK

MASTER_CLASS: Final = "org.apache.spark.deploy.master.Master"
WORKER_CLASS: Final = "org.apache.spark.deploy.worker.Worker"
_READY_S_MAX: Final = 180.0
_ADDRESS: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = "Successfully registered with master"
_JAVA: Final = "java"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A master and its workers."""

    address: str
    worker_pids: list[int] = field(default_factory=list[int])

    def executors(self) -> list[int]:
        """Return the process ids of the executors that run now."""
        processes = read_processes()
        below = [each for pid in self.worker_pids for each in tree_of(pid, processes)]
        return [
            each.pid for each in below if each.name == _JAVA and each.pid not in self.worker_pids
        ]


@contextmanager
def standalone_cluster(home: Path, *, workers: int = 2, memory: str = "1g") -> Generator[Cluster]:
    """Run a cluster until the end of the block; every worker has one core.

    Args:
        home: A directory for logs and for what executors write.
        workers: How many.
        memory: What each may give to executors.
    """
    # Executors on this machine run what the driver runs; a real cluster has a Python of its own.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with ExitStack() as until_the_end:
        log = home / "master.log"
        options = ["--host", LOOPBACK, "--port", "0", "--webui-port", "0"]
        until_the_end.enter_context(_process(MASTER_CLASS, options, log))
        cluster = Cluster(_said(log, _ADDRESS))
        for number in range(workers):
            log = home / f"worker-{number}.log"
            options = ["--host", LOOPBACK, "--webui-port", "0", "--cores", "1", "--memory", memory]
            options += ["--work-dir", str(home / f"work-{number}"), cluster.address]
            process = until_the_end.enter_context(_process(WORKER_CLASS, options, log))
            cluster.worker_pids.append(process.pid)
            _said(log, re.compile(f"({_REGISTERED})"))
        yield cluster


@contextmanager
def _process(name: str, options: list[str], log: Path) -> Generator[subprocess.Popen[bytes]]:
    package = Path(pyspark.__file__).parent
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(package / "bin" / "spark-class"), name, *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "JAVA_HOME": str(find_java(os.environ)),
                "SPARK_HOME": str(package),
                "SPARK_LOCAL_IP": LOOPBACK,
                "SPARK_DAEMON_MEMORY": "256m",
            },
            # Its own group, so that its executors end with it and nothing else is hit.
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _said(log: Path, pattern: re.Pattern[str]) -> str:
    """Return what a process says when it is ready."""
    until_s = time.monotonic() + _READY_S_MAX
    while time.monotonic() < until_s:
        if found := pattern.search(log.read_text(errors="replace")):
            return found.group(1)
        time.sleep(0.1)
    raise ServerNotReady(f"a process of Spark is not ready: {log.read_text()[-2000:]}")
