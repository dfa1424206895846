"""The worker that runs the replays ordered from a broker.

    skep worker skep.replay_worker:app

It is Spark's driver, on all cores of its machine; `replay_app` makes one for another master. The
database is that of the worker. The settings of this machine say where the archive lies and which
encryption keys to use, as for `skep replay`.

An attempt that died has stored nothing, or everything: the next one finds out which.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from skep.jobs import Ctx, Fail, JobClient, JobTypes, Retry, WorkerApp
from skep.jobs.service.replays import MAX_ATTEMPTS, REPLAY_JOB, ReplayOrder, ReplayResult
from skep.model.errors import BadRequest, Refused
from skep.settings import Settings, load_settings
from skep.spark.runtime.encryption_keys import key_options
from skep.spark.runtime.session import DEFAULT_MASTER, job_session
from skep.spark.transfer.conditions import check_condition
from skep.spark.transfer.replay import Replay, ReplayPlan
from skep.spark.transfer.single_write import JobFailed
from skep.spark_jobs import spark_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETRY: Final = Retry(max_attempts=MAX_ATTEMPTS, initial_s=5)


def replay_app(
    *,
    master: str = DEFAULT_MASTER,
    session: "Callable[[], SparkSession] | None" = None,
    settings: Settings | None = None,
) -> WorkerApp:
    """Make the program of a worker that runs replays.

    `session` makes the session, or returns the one there is, instead of a master. Without
    `settings`, those of this machine count.
    """
    types = JobTypes("replays")
    place: dict[str, Any] = {}
    """What the worker adds to the plan of a replay, known once it runs."""

    @spark_job(
        types,
        REPLAY_JOB,
        session=session or (lambda: job_session("skep replays", master=master)),
        retry=RETRY,
    )
    def replay(ctx: Ctx[ReplayOrder, ReplayResult], spark: Any) -> ReplayResult:
        return _run(ReplayPlan(**place, **msgspec.structs.asdict(ctx.input)), spark)

    @asynccontextmanager
    async def know_place(client: JobClient) -> AsyncGenerator[None]:
        known = settings or load_settings().settings
        place.update(url=client.dsn, storage=known.archive_storage, keys=key_options(known))
        yield

    return WorkerApp([types], lifespan=know_place)


def _run(plan: ReplayPlan, spark: "SparkSession") -> ReplayResult:
    """Run a replay; what would be refused every time is not tried again."""
    try:
        if plan.where is not None:
            check_condition(spark, plan.where)
        done = Replay(lambda: spark, plan).run()._asdict()
        del done["scheduled"]
        return ReplayResult(**done)
    except JobFailed:
        raise  # a task failed: the database may have been away
    except (BadRequest, Refused) as error:
        raise Fail(error.message) from None


app: Final = replay_app()
