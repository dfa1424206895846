"""What the data source for Spark is worth. `python -m benchmarks.spark`.

One run, one machine, the same messages: written and read through the data source, and by Spark's
JDBC source as a row each; then archived, and replayed from the archive. What counts is the ratio of
the two, taken back to back. JDBC is measured with all that helps it, such as being told how to
divide the table among as many tasks as there are cores, and as it comes. CPU time is told apart by
who used it: the JVM, the Python workers, PostgreSQL.

Spark needs a driver for JDBC, which no Python package has; on Debian it is in the package
libpostgresql-jdbc-java. Without it the comparison is left out, and the run says so.
"""

import os
import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import asyncpg
import typer
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.errors import ScenarioFailed
from benchmarks.spark.jdbc import INSERT_ROWS, JdbcTable, find_driver
from benchmarks.spark.meter import Cost, SparkMeter
from benchmarks.stack import POSTGRES_PARAMETERS
from skep.db.embedded.launcher import EmbeddedPostgres
from skep.db.schema.migrate import migrate
from skep.spark.archive.archiver import ArchivePlan, Archiver
from skep.spark.archive.lake import Lake
from skep.spark.runtime.session import DEFAULT_MASTER, spark_session
from skep.spark.runtime.tasks import run_on_spark
from skep.spark.transfer.replay import Replay, ReplayPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS: Final = 100
READ_GOAL: Final = 3.0
WRITE_GOAL: Final = 2.0
WARMUP_MESSAGES: Final = 20_000
QUEUE: Final = "events"
READ_COLUMNS: Final = (
    "partition string, transaction_id string, payload string, created_at timestamp, offset bigint"
)
_DRIVER_MEMORY: Final = "2g"
_ARCHIVE_NOW: Final = (
    "update skep.queue set archive_after_s = 1, dedup_window_s = 0 where name = $1"
)
_AGE: Final = (
    "update skep.segment s set created_at = s.created_at - interval '1 hour' "
    "from skep.queue q where q.name = $1 and s.queue_id = q.id"
)
_COMPLETE: Final = """
  update skep.consumer_group g set first_polled_at = now()
  from skep.queue q where q.id = g.queue_id and q.name = $1
"""
_CURSORS: Final = """
  insert into skep.cursor (partition_id, group_id, queue_id, acked)
  select p.id, g.id, q.id, p.head from skep.queue q
  join skep.partition p on p.queue_id = q.id
  join skep.consumer_group g on g.queue_id = q.id
  where q.name = $1 on conflict (partition_id, group_id) do update set acked = excluded.acked
"""


@dataclass(slots=True)
class Findings:
    """What was measured, by the name of the step; a step that is repeated has several costs."""

    costs: dict[str, list[Cost]] = field(default_factory=dict[str, list[Cost]])

    def add(self, step: str, cost: Cost) -> None:
        self.costs.setdefault(step, []).append(cost)

    def median_s(self, step: str) -> float | None:
        """Return how long a step took; None if it was left out."""
        costs = self.costs.get(step)
        return statistics.median(cost.seconds for cost in costs) if costs else None

    def median_cpu_s(self, step: str) -> float | None:
        """Return how much CPU time a step used; None if it was left out."""
        costs = self.costs.get(step)
        return statistics.median(cost.cpu_s for cost in costs) if costs else None


class SparkBench:
    """The steps, on one session and one database."""

    def __init__(
        self, spark: "SparkSession", url: str, meter: SparkMeter, jdbc: JdbcTable | None
    ) -> None:
        self._spark: Final = spark
        self._url: Final = url
        self._meter: Final = meter
        self._jdbc: Final = jdbc

    def compare(self, messages: int, queue: str, findings: Findings) -> None:
        """Write and read messages both ways, one way after the other."""
        rows, named = self._rows(messages), self._rows(messages, has_ids=True)
        findings.add("write", self._measured(messages, lambda: self._write(rows, queue)))
        self._write_by_jdbc("JDBC write", rows, findings)
        other = f"{queue}-named"
        findings.add(
            "write, ids given", self._measured(messages, lambda: self._write(named, other))
        )
        self._write_by_jdbc("JDBC write, ids given, no key", named, findings, has_key=False)
        self._write_by_jdbc("JDBC write as it comes, ids given", named, findings, is_helped=False)
        self._write_by_jdbc("JDBC write, ids given", named, findings)
        # The table has these rows now: both sides read the same, ids included.
        findings.add("read", self._measured(messages, lambda: self._read(other)))
        if self._jdbc is not None:
            jdbc = self._jdbc
            findings.add("JDBC read", self._measured(messages, lambda: jdbc.read(messages)))
        findings.add("stream", self._measured(messages, lambda: self._stream(other, messages)))
        if self._jdbc is not None:
            findings.add(
                "JDBC read, one task", self._measured(messages, self._jdbc.read_by_one_task)
            )

    def _write_by_jdbc(
        self,
        step: str,
        rows: "DataFrame",
        findings: Findings,
        *,
        has_key: bool = True,
        is_helped: bool = True,
    ) -> None:
        if self._jdbc is None:
            return
        jdbc = self._jdbc
        jdbc.create(has_key=has_key)
        write = jdbc.write if is_helped else jdbc.write_as_it_comes
        findings.add(step, self._measured(rows.count(), lambda: write(rows)))

    def archive(self, messages: int, queue: str, findings: Findings) -> None:
        """Move a queue to an archive."""
        uvloop.run(self._make_old(queue))
        with tempfile.TemporaryDirectory(prefix="skep-bench-lake-") as name:
            findings.add("archive", self._measured(messages, lambda: self._archive(name, messages)))
            findings.add("replay", self._measured(messages, lambda: self._replay(queue, messages)))

    def _measured(self, messages: int, work: Callable[[], None]) -> Cost:
        before = self._meter.read()
        work()
        return Cost.between(before, self._meter.read(), messages)

    def _rows(self, messages: int, *, has_ids: bool = False) -> "DataFrame":
        payload = "concat('{\"id\":', id, ',\"note\":\"', sha2(string(id), 256), '\"}')"
        columns = [f"concat('p', id % {PARTITIONS}) as partition", f"{payload} as payload"]
        if has_ids:
            columns.append("concat('order-', id) as transaction_id")
        return self._spark.range(messages).selectExpr(*columns)

    def _write(self, rows: "DataFrame", queue: str) -> None:
        rows.write.format("skep").mode("append").options(url=self._url, queue=queue).save()

    def _read(self, queue: str) -> None:
        reader = self._spark.read.format("skep").options(url=self._url, queue=queue)
        reader.schema(READ_COLUMNS).load().write.format("noop").mode("overwrite").save()

    def _stream(self, queue: str, messages: int) -> None:
        with tempfile.TemporaryDirectory(prefix="skep-bench-checkpoint-") as checkpoint:
            reader = self._spark.readStream.format("skep").options(url=self._url, queue=queue)
            query = (
                reader.schema(READ_COLUMNS)
                .load()
                .writeStream.format("noop")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            found = sum(progress["numInputRows"] for progress in query.recentProgress)
        if found != messages:
            raise ScenarioFailed(f"the stream brought {found:,} messages instead of {messages:,}")

    async def _make_old(self, queue: str) -> None:
        connection = await asyncpg.connect(self._url)
        try:
            for statement in (_ARCHIVE_NOW, _AGE, _COMPLETE, _CURSORS):
                await connection.execute(statement, queue)
        finally:
            await connection.close()

    def _archive(self, warehouse: str, messages: int) -> None:
        plan = ArchivePlan(url=self._url, warehouse=warehouse, queues=(QUEUE,))
        with Lake(self._url, {}) as lake:
            done = Archiver(lake, plan, run_on_spark(lambda: self._spark)).archive()
        if (done.messages, done.deleted) != (messages, messages):
            raise ScenarioFailed(f"archived {done.messages:,}, deleted {done.deleted:,}")

    def _replay(self, queue: str, messages: int) -> None:
        until = datetime.now(UTC)
        plan = ReplayPlan(
            url=self._url,
            queue=queue,
            into=f"{queue}-again",
            since=until - timedelta(days=2),
            until=until,
        )
        done = Replay(lambda: self._spark, plan).run()
        if done.messages != messages:
            raise ScenarioFailed(f"replayed {done.messages:,} messages instead of {messages:,}")


def main(
    messages: Annotated[int, typer.Option(min=1_000, help="Written, read, archived.")] = 5_000_000,
    repeat: Annotated[int, typer.Option(min=1, max=20, help="Comparisons; medians count.")] = 1,
    jdbc_driver: Annotated[
        Path | None, typer.Option(help="The jar of PostgreSQL's JDBC driver; else Debian's.")
    ] = None,
    jdbc_batch: Annotated[int, typer.Option(min=1, help="Rows of a JDBC insert.")] = INSERT_ROWS,
    master: Annotated[str, typer.Option(help="Where Spark runs.")] = DEFAULT_MASTER,
    archive: Annotated[bool, typer.Option(help="Also archive and replay.")] = True,
    postgres_bin: Annotated[
        Path | None, typer.Option(help="Directory of another PostgreSQL's programs.")
    ] = None,
) -> None:
    """Compare the data source with JDBC; measure the archive and replays."""
    console = Console(highlight=False)
    driver = find_driver(jdbc_driver)
    if driver is None:
        console.print("There is no JDBC driver (Debian: libpostgresql-jdbc-java): left out.")
    findings = Findings()
    with ExitStack() as until_the_end:
        # If a later step fails, what was measured is still shown.
        until_the_end.callback(lambda: _print(findings, console))
        home = Path(until_the_end.enter_context(tempfile.TemporaryDirectory(prefix="skep-bench-")))
        home.chmod(0o755)  # as root the server runs under another account
        postgres = until_the_end.enter_context(
            EmbeddedPostgres(
                home / "postgres", parameters=POSTGRES_PARAMETERS, binaries=postgres_bin
            )
        )
        uvloop.run(migrate(postgres.dsn))
        spark = spark_session("skep benchmark", master=master, config=_configuration(driver))
        until_the_end.callback(spark.stop)
        jdbc = None if driver is None else JdbcTable(spark, postgres.dsn, jdbc_batch)
        meter = until_the_end.enter_context(SparkMeter(postgres.pid))
        bench = SparkBench(spark, postgres.dsn, meter, jdbc)
        bench.compare(WARMUP_MESSAGES, "warm-up", Findings())
        for number in range(repeat):
            console.print(f"comparing, {number + 1} of {repeat}")
            bench.compare(
                messages, QUEUE if number == repeat - 1 else f"{QUEUE}-{number}", findings
            )
        if archive:
            console.print("archiving and replaying")
            bench.archive(messages, QUEUE, findings)


def _configuration(driver: Path | None) -> dict[str, str]:
    settings = {"spark.log.level": "ERROR", "spark.driver.memory": _DRIVER_MEMORY}
    if driver is not None:
        settings["spark.driver.extraClassPath"] = str(driver)
        settings["spark.executor.extraClassPath"] = str(driver)
    return settings


def _print(findings: Findings, console: Console) -> None:
    table = Table("step", "messages", "s", "messages/s", "JVM s", "Python s", "PostgreSQL s")
    for step, costs in findings.costs.items():
        for cost in costs:
            table.add_row(
                step,
                f"{cost.messages:,}",
                f"{cost.seconds:.1f}",
                f"{cost.messages / cost.seconds:,.0f}",
                *(f"{used:.1f}" for used in (cost.jvm_s, cost.python_s, cost.postgres_s)),
            )
    console.print(table)
    for title, step, other, goal in (
        ("streaming read", "stream", "JDBC read", READ_GOAL),
        ("against JDBC by one task", "stream", "JDBC read, one task", READ_GOAL),
        ("batch read", "read", "JDBC read", READ_GOAL),
        ("against JDBC by one task", "read", "JDBC read, one task", READ_GOAL),
        ("batch write", "write", "JDBC write", WRITE_GOAL),
        ("batch write against ids given", "write", "JDBC write, ids given", WRITE_GOAL),
        ("batch write, ids given", "write, ids given", "JDBC write, ids given", WRITE_GOAL),
        ("and no key", "write, ids given", "JDBC write, ids given, no key", WRITE_GOAL),
        (
            "batch write, ids given, against JDBC as it comes",
            "write, ids given",
            "JDBC write as it comes, ids given",
            WRITE_GOAL,
        ),
    ):
        ours, theirs = findings.median_s(step), findings.median_s(other)
        if ours is None or theirs is None:
            console.print(f"{title}: not compared")
            continue
        cpu = (findings.median_cpu_s(other) or 0) / (findings.median_cpu_s(step) or 1)
        verdict = "met" if theirs / ours >= goal else "missed"
        console.print(
            f"{title}: {theirs / ours:.2f} times JDBC in time, {cpu:.2f} times in CPU; goal "
            f"{goal:g}: {verdict}"
        )
    console.print(f"load average {os.getloadavg()[1]:.1f} over the last 5 minutes")
