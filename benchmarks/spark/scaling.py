"""One executor against two, on a standalone cluster here. `python -m benchmarks.spark.scaling`.

Executors have one core each. PostgreSQL, the driver and both executors share this machine, so the
figures show that work is spread, and on few cores not how far it would scale.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final

import typer
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.spark.bench import WARMUP_MESSAGES, Findings, SparkBench
from benchmarks.spark.cluster import standalone_cluster
from benchmarks.spark.meter import SparkMeter
from benchmarks.stack import POSTGRES_PARAMETERS
from skep.db.embedded.launcher import EmbeddedPostgres
from skep.db.schema.migrate import migrate
from skep.spark.runtime.session import LOOPBACK, spark_session

STEPS: Final = ("write", "stream", "read")
EXECUTORS: Final = (1, 2)


def main(
    messages: Annotated[int, typer.Option(min=1_000, help="Written and read.")] = 1_000_000,
) -> None:
    """Compare one executor with two."""
    console = Console(highlight=False)
    measured: dict[int, Findings] = {}
    with ExitStack() as until_the_end:
        home = Path(until_the_end.enter_context(tempfile.TemporaryDirectory(prefix="skep-bench-")))
        home.chmod(0o755)  # as root PostgreSQL runs under another account
        postgres = until_the_end.enter_context(
            EmbeddedPostgres(home / "postgres", parameters=POSTGRES_PARAMETERS)
        )
        uvloop.run(migrate(postgres.dsn))
        cluster = until_the_end.enter_context(
            standalone_cluster(home, workers=max(EXECUTORS), memory="2g")
        )
        for count in EXECUTORS:
            measured[count] = _measure(cluster.address, postgres, count, messages)
    table = Table("step", *(f"{count} executors, messages/s" for count in EXECUTORS), "times")
    for step in STEPS:
        seconds = [measured[count].median_s(step) or 0.0 for count in EXECUTORS]
        rates = (f"{messages / each:,.0f}" for each in seconds)
        table.add_row(step, *rates, f"{seconds[0] / seconds[-1]:.2f}")
    console.print(table)


def _measure(master: str, postgres: EmbeddedPostgres, count: int, messages: int) -> Findings:
    spark = spark_session(
        f"skep benchmark, {count}",
        master=master,
        config={
            "spark.log.level": "ERROR",
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.executor.memory": "1g",
            "spark.executor.cores": "1",
            "spark.cores.max": str(count),
            # As many tasks for one executor as for two, and of the same size.
            "spark.default.parallelism": str(max(EXECUTORS)),
        },
    )
    findings = Findings()
    try:
        with SparkMeter(postgres.pid) as meter:
            bench = SparkBench(spark, postgres.dsn, meter, None)
            bench.compare(WARMUP_MESSAGES, f"warm-up-{count}", Findings())
            bench.compare(messages, f"events-{count}", findings)
    finally:
        spark.stop()
    return findings


if __name__ == "__main__":
    typer.run(main)
