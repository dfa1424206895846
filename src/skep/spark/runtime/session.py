"""Spark sessions that work at once: the right Java and Python, loopback, UTC, sound defaults.

Everything can be overridden by `config`. What has to be in the environment before the first
session of a process starts its JVM is put there; afterwards Spark reads it no more.
"""

import logging
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from skep.model.errors import Refused
from skep.settings.fields import process_environment, set_process_variables, usable_cores
from skep.spark.runtime.java import find_java
from skep.spark.runtime.launchers import default_cache, worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER: Final = "local[*,4]"
"""All cores, and four attempts for each task: plain `local[*]` gives up at the first failure,
which would end a query when PostgreSQL is restarted."""

LOG_BYTES_MAX: Final = 16 << 20
"""A larger log is begun anew by the next start."""

LOOPBACK: Final = "127.0.0.1"

READING_CORES: Final = "SPARK_SKEP_CORES"
"""The variable that tells what plans, in a process of its own, how many tasks run at a time: 0
where that is up to a cluster. In sessions made by others it is not set."""

_log = logging.getLogger(__name__)
_starting: Final = threading.Lock()
"""Steps of jobs run in threads, and a process has one Java."""

_PYTHON: Final = "spark.pyspark.python"
"""Spark reads this setting only where it is submitted to."""
_NO_CONFIG: Final[Mapping[str, str]] = {}

_ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.io.compression.codec": "zstd",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.log.level": "WARN",
}
_LOCAL: Final = {
    # Names of hosts need not resolve, and no other machine has to reach this driver.
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    # Not on clusters: there a job may bring Skep along after the process was started.
    "spark.python.daemon.module": "skep.spark.runtime.worker_daemon",
    # What is shuffled stays on this machine: a smaller size is not worth the time it takes.
    "spark.io.compression.codec": "lz4",
}


def spark_session(
    name: str = "skep",
    *,
    master: str = DEFAULT_MASTER,
    config: Mapping[str, str] | None = None,
    ui: bool = False,
    progress: bool = False,
    log: Path | None = None,
) -> "SparkSession":
    """Return the session of this process; start one if there is none.

    Args:
        name: What it is called in Spark's pages and logs.
        master: Where it runs: `local[...]`, `spark://...` or any other that Spark knows.
        config: Settings of Spark's that go before ours.
        ui: Serve Spark's web pages; jobs that end by themselves do not need them.
        progress: Show the progress of stages in the terminal.
        log: Where Java and Spark write what they would print, if this session starts them.

    Raises:
        Refused: PySpark is not installed, or Spark did not start.
        NoJava: There is no Java to run it with.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 (heavy, and an extra)
    except ImportError as error:
        raise Refused("PySpark is not installed: `pip install skep[spark]`") from error
    prepare_environment(master, config or {})
    builder = SparkSession.builder.appName(name).master(master)
    settings = session_settings(master, ui=ui, progress=progress, config=config)
    settings |= dict(config or {})
    if log is not None:
        _start_java({"spark.app.name": name, "spark.master": master, **settings}, log)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def job_session(name: str = "skep worker", *, master: str = DEFAULT_MASTER) -> "SparkSession":
    """Return the session of this process for a step of a job; the first call starts it.

    What Java and Spark print goes to a file that the log names: the worker's output is its own.
    """
    log = log_path(name)
    with _starting:
        if not _has_java():
            _log.info("starting Spark in a Java process, which takes a while; its log: %s", log)
        return spark_session(name, master=master, log=log)


def _has_java() -> bool:
    context: Any = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return context is not None and context._gateway is not None  # noqa: SLF001 (no public way)


def log_path(name: str) -> Path:
    """Return the file for what Spark prints in an application of this name."""
    return (
        default_cache(process_environment())
        / "spark"
        / f"{quote(name.replace(' ', '-'), safe='')}.log"
    )


def _start_java(settings: Mapping[str, str], log: Path) -> None:
    """Start Spark's Java with its output in a file, unless this process has one."""
    from pyspark import SparkConf, SparkContext, java_gateway  # noqa: PLC0415
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415

    if _has_java():
        return
    context: Any = SparkContext
    launcher: Any = java_gateway
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it tells of every call back from Java
    configuration = SparkConf().setAll(list(settings.items()))
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.is_file() and log.stat().st_size > LOG_BYTES_MAX:
        log.unlink()
    with log.open("a") as file:
        try:
            gateway = launcher.launch_gateway(configuration, {"stdout": file, "stderr": file})
        except PySparkRuntimeError as error:
            raise Refused(f"Spark did not start; {log} says why") from error
    context(conf=configuration, gateway=gateway)


def adopt_session(spark: "SparkSession") -> None:
    """Make a session the one of this thread, which has none if another thread started it.

    Spark looks up the formats of what is written in the session of the thread.
    """
    session: Any = spark
    # PySpark has no public way.
    java_class = getattr(session._jvm, "org.apache.spark.sql.classic.SparkSession")  # noqa: SLF001
    java_class.setActiveSession(session._jsparkSession)  # noqa: SLF001


def session_settings(
    master: str, *, ui: bool, progress: bool, config: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the settings of Spark for a session at that master."""
    settings = {
        **_ALWAYS,
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": str(progress).lower(),
    }
    if master.startswith("local"):
        # One shuffle partition per core; the default of 200 is for clusters.
        settings |= _LOCAL | {"spark.sql.shuffle.partitions": str(cores_of(master))}
    else:
        # Spark gives tasks of data sources the Python of the driver, unless this names another.
        python = (config or {}).get(_PYTHON) or process_environment().get("PYSPARK_PYTHON")
        settings["spark.sql.execution.pyspark.python"] = python or "python3"
    if path := process_environment().get("PYTHONPATH"):
        settings["spark.executorEnv.PYTHONPATH"] = path
    return settings


def prepare_environment(master: str, config: Mapping[str, str] = _NO_CONFIG) -> None:
    """Set the Python, Java and address for Spark, unless the environment does; raise `NoJava`."""
    environment = process_environment()
    if master.startswith("local"):
        # Without it the workers take the `python3` that is first on the path.
        defaults = {"SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": worker_python(environment)}
    else:
        # What plans runs on this machine, what reads and writes on those of the cluster.
        defaults = {"PYSPARK_DRIVER_PYTHON": sys.executable}
    chosen = {name: text for name, text in defaults.items() if name not in environment}
    if python := config.get(_PYTHON):
        chosen["PYSPARK_PYTHON"] = python
    chosen[READING_CORES] = str(reading_cores(master, config))
    set_process_variables({"JAVA_HOME": str(find_java(environment)), **chosen})


def reading_cores(master: str, config: Mapping[str, str]) -> int:
    """Return how many tasks run at a time, as far as that is known before they run; else 0."""
    if master.startswith("local"):
        return cores_of(master)
    known = [config.get(name, "") for name in ("spark.default.parallelism", "spark.cores.max")]
    executors, cores = (config.get(f"spark.executor.{name}", "") for name in ("instances", "cores"))
    if executors.isdigit() and cores.isdigit():
        known.insert(1, str(int(executors) * int(cores)))
    return next((int(text) for text in known if text.isdigit()), 0)


def cores_of(master: str) -> int:
    """Return how many tasks a local master runs at a time."""
    count = master.partition("[")[2].rstrip("]").partition(",")[0]
    if count == "*":
        return usable_cores()
    return int(count) if count.isdigit() else 1
