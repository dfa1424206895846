"""Durable job chains: typed steps that commit with the user's own transaction.

    declare   `JobTypes`, `Job`, `Ctx`, `Continue`, `Retry`, `Limits`, `consume`
    start     `JobClient`, `Start`, `Dedup`, `Chain`, `Ref`
    run       `Worker`, `WorkerApp`, `Schedule`, `OtelTracing` (needs `skep[otel]`)

The names here are the API; docs/reference/jobs.md states the promises. The rules are the SQL
functions `job_*` and `chain_*`, but for one: whether a failed attempt is retried is decided in
`worker.retry`.
"""

from typing import TYPE_CHECKING, Any

from skep.jobs.client.client import Chain, JobClient, Pending
from skep.jobs.client.inspection import ChainFilter, JobFilter
from skep.jobs.declare.codec import Ref
from skep.jobs.declare.context import Ctx
from skep.jobs.declare.declaration import Continue, Dedup, Job, JobTypes, Limits, Retry, Start
from skep.jobs.declare.queues import QueueMessage, consume
from skep.jobs.errors import (
    BlockerMissing,
    ChainCancelled,
    ChainClosed,
    ChainExists,
    ChainFailed,
    ChainNotFound,
    ChainReferenced,
    Fail,
    InvalidInput,
    InvalidOutput,
    JobNotFound,
    OwnershipLost,
    Reschedule,
    ResultTimeout,
)
from skep.jobs.schedules import Schedule, Scheduler
from skep.jobs.worker.worker import Worker, WorkerApp

if TYPE_CHECKING:
    from skep.jobs.worker.otel import OtelTracing

__all__ = [
    "BlockerMissing",
    "Chain",
    "ChainCancelled",
    "ChainClosed",
    "ChainExists",
    "ChainFailed",
    "ChainFilter",
    "ChainNotFound",
    "ChainReferenced",
    "Continue",
    "Ctx",
    "Dedup",
    "Fail",
    "InvalidInput",
    "InvalidOutput",
    "Job",
    "JobClient",
    "JobFilter",
    "JobNotFound",
    "JobTypes",
    "Limits",
    "OtelTracing",
    "OwnershipLost",
    "Pending",
    "QueueMessage",
    "Ref",
    "Reschedule",
    "ResultTimeout",
    "Retry",
    "Schedule",
    "Scheduler",
    "Start",
    "Worker",
    "WorkerApp",
    "consume",
]


def __getattr__(name: str) -> Any:
    if name == "OtelTracing":  # needs opentelemetry-api, which a bare install does not have
        from skep.jobs.worker.otel import OtelTracing  # noqa: PLC0415

        return OtelTracing
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
