"""Where a worker process begins. Small on purpose: the supervisor imports it too."""

import signal
import sys
from types import FrameType
from typing import NoReturn

from skep.app.processes.assignment import ReportReady, WorkerAssignment
from skep.telemetry.logs import configure_logging


def work(assignment: WorkerAssignment, report_ready: ReportReady) -> None:
    """Be one worker of the broker until SIGTERM."""
    # Imported here, in the worker: the supervisor names this function but never needs the
    # broker's modules, which would treble its memory.
    from skep.app.processes.worker import run_worker_process  # noqa: PLC0415

    settings = assignment.settings
    configure_logging(level=settings.log_level, style=settings.log_format, worker=assignment.index)
    # uvicorn takes the signal over while it serves, and afterwards repeats it for the handler it
    # found. As an exception it unwinds, so that the broker is closed; by default it would kill.
    signal.signal(signal.SIGTERM, _leave)
    run_worker_process(assignment, report_ready)


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)
