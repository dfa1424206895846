"""What a worker process runs: the jobs of a program, and what belongs to them.

`skep worker module:app` names one of these, or a `JobTypes` where there is nothing else to say.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from skep.jobs.client.client import JobClient
from skep.jobs.declare.declaration import JobTypes, Middleware
from skep.jobs.schedules import Schedule
from skep.jobs.worker.tracing import Tracing


@dataclass(frozen=True, slots=True)
class WorkerApp:
    """Jobs and what belongs to them.

    Attributes:
        registries: whose jobs are run.
        schedules: what is started by the clock; put when a worker starts.
        middleware: wraps every attempt; the first is the outermost.
        tracing: who is told of attempts, such as `skep.jobs.worker.otel.OtelTracing()`.
        lifespan: entered before the first job and left after the last; handlers find there what
            they share, such as a pool of connections.
    """

    registries: Sequence[JobTypes]
    schedules: Sequence[Schedule[Any]] = ()
    middleware: Sequence[Middleware] = ()
    tracing: Tracing | None = None
    lifespan: Callable[[JobClient], AbstractAsyncContextManager[None]] | None = None
