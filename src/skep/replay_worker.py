"""The worker that runs the replays which were ordered from a broker.

    skep worker skep.replay_worker:app

It is Spark's driver, on all cores of its machine. `replay_app` makes one for another master. The
database is that of the worker; where the archive lies and with which keys messages are sealed say
the settings of this machine, as for `skep replay`.

An attempt that died has stored nothing, or everything: the next one finds out which.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from skep.jobs import Ctx, Fail, JobClient, JobTypes, Retry, WorkerApp
from skep.jobs.service.replays import MAX_ATTEMPTS, REPLAY_JOB, ReplayOrder, ReplayResult
from skep.model.errors import BadRequest, Defect, Refused
from skep.settings import Settings, load_settings
from skep.spark.runtime.encryption_keys import key_options
from skep.spark.runtime.session import DEFAULT_MASTER, spark_session
from skep.spark.transfer.conditions import check_condition
from skep.spark.transfer.jobs import JobFailed, Outcome
from skep.spark.transfer.replay import Replay, ReplayPlan
from skep.spark_jobs import spark_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETRY: Final = Retry(max_attempts=MAX_ATTEMPTS, initial_s=5)


@dataclass(slots=True)
class _Place:
    """Where a worker replays; known once it runs."""

    url: str | None = None
    settings: Settings | None = None

    def plan(self, order: ReplayOrder) -> ReplayPlan:
        if self.url is None or self.settings is None:
            raise Defect("the worker has not begun")
        return ReplayPlan(
            url=self.url,
            queue=order.queue,
            into=order.into,
            since=order.since,
            until=order.until,
            where=order.where,
            partition=order.partition,
            name=order.name,
            keeps_ids=order.keeps_ids,
            may_decrypt=order.may_decrypt,
            on_error=order.on_error,
            storage=self.settings.archive_storage,
            keys=key_options(self.settings),
        )


def replay_app(
    *,
    master: str = DEFAULT_MASTER,
    session: "Callable[[], SparkSession] | None" = None,
    settings: Settings | None = None,
) -> WorkerApp:
    """Make the program of a worker that runs replays.

    Args:
        master: Where Spark runs.
        session: Makes the session, or returns the one there is; instead of a master.
        settings: Those of this machine, unless they are given.
    """
    types, place = JobTypes("replays"), _Place()

    @spark_job(
        types,
        REPLAY_JOB,
        session=session or (lambda: spark_session("skep replays", master=master)),
        retry=RETRY,
    )
    def replay(ctx: Ctx[ReplayOrder, ReplayResult], spark: Any) -> ReplayResult:
        return _run(place.plan(ctx.input), spark)

    @asynccontextmanager
    async def know_place(client: JobClient) -> AsyncGenerator[None]:
        place.url, place.settings = client.dsn, settings or load_settings().settings
        yield

    return WorkerApp([types], lifespan=know_place)


def _run(plan: ReplayPlan, spark: "SparkSession") -> ReplayResult:
    """Run a replay; what would be refused every time is not tried again."""
    try:
        if plan.where is not None:
            check_condition(spark, plan.where)
        return _result(Replay(lambda: spark, plan).run())
    except JobFailed:
        raise  # a task failed: the database may have been away
    except (BadRequest, Refused) as error:
        raise Fail(error.message) from None


def _result(done: Outcome) -> ReplayResult:
    return ReplayResult(
        messages=done.messages,
        duplicates=done.duplicates,
        rejected=done.rejected,
        is_repeated=done.is_repeated,
        committed_at=done.committed_at,
    )


app: Final = replay_app()
