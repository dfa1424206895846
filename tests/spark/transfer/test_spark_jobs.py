"""A step that runs on Spark: its progress, its end, and its cancellation."""

import asyncio
import threading
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from skep.jobs import Continue, Ctx, JobClient, JobTypes, Retry, Worker
from skep.jobs.errors import ChainCancelled
from skep.spark_jobs import run_query, spark_job

TASKS = 4
PROGRESS = "select share, note from skep.job_progress where job_id = $1 and note like '%tasks'"


@pytest.fixture
def run_jobs(arun, database_url):
    """Start a worker for some types; return its client."""
    stack = AsyncExitStack()

    async def run_jobs(types):
        client = await stack.enter_async_context(JobClient(database_url))
        worker = Worker(client, [types], poll_s=1.0, lease_s=10)
        await worker.start()
        stack.push_async_callback(worker.stop, grace_s=1)
        return client

    yield run_jobs
    arun(stack.aclose())


async def test_a_step_runs_on_spark_and_the_chain_goes_on(spark, run_jobs):
    types = JobTypes("pipeline")

    @types.job("tell")
    async def tell(ctx: Ctx[int, str]) -> str:
        return f"{ctx.input} rows"

    @spark_job(types, "count", session=lambda: spark)
    def count(ctx: Ctx[int, str], spark) -> str | Continue[str]:
        return Continue(tell, spark.range(ctx.input).count())

    client = await run_jobs(types)

    assert await (await client.start(count, 1000)).result(timeout=60) == "1000 rows"


async def test_a_step_writes_to_a_queue(spark, run_jobs, connect, database_url):
    types = JobTypes("pipeline")

    @spark_job(types, "fill", session=lambda: spark, retry=Retry(max_attempts=1))
    def fill(ctx: Ctx[int, int], spark) -> int:
        rows = spark.range(ctx.input).selectExpr("'a' as partition", "id as payload")
        rows.write.format("skep").mode("append").options(url=database_url, queue="filled").save()
        return ctx.input

    client, sql = await run_jobs(types), await connect()

    assert await (await client.start(fill, 3)).result(timeout=60) == 3
    assert await sql.fetchval("select head from skep.partition where name = 'a'") == 3


async def test_the_tasks_of_spark_are_the_progress_of_the_job(spark, run_jobs, connect):
    types, may_end = JobTypes("pipeline"), threading.Event()

    @spark_job(types, "two stages", session=lambda: spark)
    def two_stages(ctx: Ctx[None, int], spark) -> int:
        rows = spark.sparkContext.parallelize(range(TASKS), TASKS).map(lambda n: n + 1).sum()
        may_end.wait(60)
        return rows

    client, sql = await run_jobs(types), await connect()
    chain = await client.start(two_stages, None)

    while (row := await sql.fetchrow(PROGRESS, chain.id)) is None or row["share"] < 0.99:
        pass
    may_end.set()

    assert row["note"] == f"{TASKS} of {TASKS} tasks"
    assert await chain.result(timeout=60) == 10


def dawdle(numbers):
    """Work that takes long, in a process of Spark."""
    yield from numbers
    threading.Event().wait(600)


async def test_cancelling_the_job_cancels_the_work_on_spark(spark, run_jobs):
    types, is_running, ended = JobTypes("pipeline"), threading.Event(), threading.Event()

    @spark_job(types, "dawdle", session=lambda: spark, retry=Retry(max_attempts=1))
    def slow(ctx: Ctx[None, int], spark) -> int:
        is_running.set()
        try:
            return spark.sparkContext.parallelize(range(2), 2).mapPartitions(dawdle).count()
        finally:
            ended.set()

    client = await run_jobs(types)
    chain = await client.start(slow, None)
    await asyncio.to_thread(is_running.wait, 60)

    await client.cancel(chain.id)

    assert await asyncio.to_thread(ended.wait, 60)
    with pytest.raises(ChainCancelled):
        await chain.result(timeout=20)


async def test_a_step_that_takes_too_long_is_cancelled_on_spark(spark, run_jobs):
    types, ended = JobTypes("pipeline"), threading.Event()

    @spark_job(
        types,
        "late",
        session=lambda: spark,
        retry=Retry(max_attempts=1),
        timeout=timedelta(seconds=2),
    )
    def late(ctx: Ctx[None, int], spark) -> int:
        try:
            return spark.sparkContext.parallelize(range(2), 2).mapPartitions(dawdle).count()
        finally:
            ended.set()

    client = await run_jobs(types)
    await client.start(late, None)

    assert await asyncio.to_thread(ended.wait, 60)


async def test_a_streaming_query_that_ends_reports_its_rows(spark, run_jobs, tmp_path):
    types = JobTypes("pipeline")
    spark.range(50).write.parquet(str(tmp_path / "in"))

    @spark_job(types, "stream", session=lambda: spark)
    def stream(ctx: Ctx[None, str], spark) -> str:
        rows = spark.readStream.schema("id long").parquet(str(tmp_path / "in"))
        query = (
            rows.writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        run_query(ctx, query)
        return f"{spark.read.parquet(str(tmp_path / 'out')).count()} rows"

    client = await run_jobs(types)

    assert await (await client.start(stream, None)).result(timeout=100) == "50 rows"
