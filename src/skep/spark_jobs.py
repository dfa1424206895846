"""A step of a chain that runs on Spark.

    @spark_job(types, "daily volume", timeout=timedelta(hours=2))
    def daily_volume(ctx: Ctx[Day, int], spark: SparkSession) -> int | Continue[int]:
        return spark.read.format("skep").load().filter(...).count()

The function runs in a thread of the worker, which is Spark's driver. While it does, the job's
progress is that of the tasks of its Spark jobs. When it is cancelled, timed out or lost, its Spark
jobs are cancelled, too. `run_query` does the same for a streaming query that ends by itself.

Needs the extra `spark`, and a driver in this process: not Spark Connect. The session is shared by
all steps of a process: the first one makes it, and what Spark prints goes to a file that the log
names.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from skep.jobs import Continue, Ctx, Job, JobTypes, Limits, Retry
from skep.spark.runtime.session import adopt_session, job_session
from skep.spark.runtime.tasks import repeating, task_counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

I = TypeVar("I")  # noqa: E741 -- input and output, as in Job[I, O]
O = TypeVar("O")  # noqa: E741

MakeSession: TypeAlias = "Callable[[], SparkSession]"

QUERY_POLL_S: Final = 1
STARTED_SHARE_MAX: Final = 0.99
"""The function may start another Spark job: it is done when it returns."""


def spark_job(
    types: JobTypes,
    name: str,
    *,
    session: MakeSession = job_session,
    retry: Retry | None = None,
    timeout: timedelta | None = None,
    limits: Limits | None = None,
    priority: int = 0,
) -> "Callable[[Callable[[Ctx[I, O], SparkSession], O | Continue[O]]], Job[I, O]]":
    """Declare the decorated function as a job that runs on Spark.

    `session` makes the Spark session, or returns the one there is. The other arguments are those
    of `JobTypes.sync_job`; at a timeout the Spark jobs are cancelled.
    """

    def decorate(step: "Callable[[Ctx[I, O], SparkSession], O | Continue[O]]") -> Job[I, O]:
        @wraps(step)
        def run(ctx: Ctx[I, O]) -> O | Continue[O]:
            spark = session()
            adopt_session(spark)
            with _watched(ctx, spark):
                result = step(ctx, spark)
            ctx.check()
            return result

        declare = types.sync_job(
            name, retry=retry, timeout=timeout, limits=limits, priority=priority
        )
        return declare(run)

    return decorate


def run_query(ctx: Ctx[Any, Any], query: "StreamingQuery") -> None:
    """Wait for a streaming query that ends by itself, such as one with `availableNow`.

    What it has read is the job's progress; a job that should stop stops it.

    Raises `OwnershipLost` if the job should stop, and what the query failed with.
    """
    rows = 0
    last_batch = -1
    while not query.awaitTermination(QUERY_POLL_S):
        if ctx.cancelled is not None:
            query.stop()
            ctx.check()
        for progress in query.recentProgress:
            if progress.batchId > last_batch:
                last_batch, rows = progress.batchId, rows + progress.numInputRows
        ctx.report(note=f"{rows:,} rows in {last_batch + 1} batches")


@contextmanager
def _watched(ctx: Ctx[Any, Any], spark: "SparkSession") -> Generator[None]:
    """Report what the Spark jobs of this thread do, and cancel them when the job should stop."""
    # An attempt that is to stop must not stop the next one, which may run in this very process.
    group = f"{ctx.job_id}/{ctx.attempt}"
    context = spark.sparkContext
    context.setJobGroup(group, ctx.facts.name, interruptOnCancel=True)

    def watch() -> None:
        if ctx.cancelled is not None:
            context.cancelJobGroup(group)  # each time: the function may start another
            return
        total, done = task_counts(context.statusTracker(), group)
        if total:
            ctx.report(min(done / total, STARTED_SHARE_MAX), f"{done} of {total} tasks")

    with repeating(watch):
        yield
