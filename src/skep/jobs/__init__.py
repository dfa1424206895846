"""Durable job chains: typed steps that commit with the user's own transaction.

    declare   `JobTypes`, `Job`, `Ctx`, `Continue`, `Retry`, `Limits`
    start     `JobClient`, `Start`, `Dedup`, `Chain`, `Ref`
    run       `Worker`, `WorkerApp`, `Schedule`

What is promised is in docs/reference/jobs.md; the rules themselves are the SQL functions `job_*`
and `chain_*`.
"""

from skep.jobs.client.client import Chain, JobClient, Pending
from skep.jobs.client.inspection import ChainFilter, JobFilter
from skep.jobs.declare.app import WorkerApp
from skep.jobs.declare.codec import Ref
from skep.jobs.declare.context import Ctx
from skep.jobs.declare.declaration import Continue, Dedup, Job, JobTypes, Limits, Start
from skep.jobs.errors import Fail, Reschedule
from skep.jobs.retry import Retry
from skep.jobs.schedules import Schedule, Scheduler
from skep.jobs.worker.worker import Worker

__all__ = [
    "Chain",
    "ChainFilter",
    "Continue",
    "Ctx",
    "Dedup",
    "Fail",
    "Job",
    "JobClient",
    "JobFilter",
    "JobTypes",
    "Limits",
    "Pending",
    "Ref",
    "Reschedule",
    "Retry",
    "Schedule",
    "Scheduler",
    "Start",
    "Worker",
    "WorkerApp",
]
