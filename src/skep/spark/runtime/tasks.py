"""Run tasks on Spark or in this process, and say what a failed one said.

A task is a value and a function of a module; both travel to executors as they are. The caller
learns how much is done while the rest is still under way.
"""

import re
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from skep.model.errors import Refused, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S: Final = 0.5
"""How often the progress of a job on Spark is read."""

OnProgress: TypeAlias = Callable[[int, int], None]
"""Called with the messages and bytes done since the last call."""
RunTasks: TypeAlias = Callable[[Sequence[Any], Callable[[Any], Any], OnProgress], list[Any]]
"""Runs a function for each task and returns its results in order, or fails with the first failure.
Results have `messages` and `bytes`, the amount of work done."""

_RAISED: Final = re.compile(r"[a-z_]+(\.\w+)*\.\w+: |[A-Z]\w*(Error|Exception): ")
"""How the last line of a Python traceback begins."""


class TaskFailed(Refused):
    """A task failed on Spark, as often as it may."""

    code: ClassVar[str] = "task_failed"


def run_here(
    tasks: Sequence[Any], work: Callable[[Any], Any], on_progress: OnProgress
) -> list[Any]:
    """Run tasks one after the other."""
    results: list[Any] = []
    for task in tasks:
        results.append(work(task))
        on_progress(results[-1].messages, results[-1].bytes)
    return results


def run_on_spark(spark: "SparkSession") -> RunTasks:
    """Return a function that runs tasks on the executors of a session."""

    def run(tasks: Sequence[Any], work: Callable[[Any], Any], on_progress: OnProgress) -> list[Any]:
        if not tasks:
            return []
        context: Any = spark.sparkContext
        messages, size = context.accumulator(0), context.accumulator(0)

        def measured_work(task: Any) -> Any:
            result = work(task)
            messages.add(result.messages)
            size.add(result.bytes)
            return result

        job = _Job(lambda: context.parallelize(tasks, len(tasks)).map(measured_work).collect())
        reported = (0, 0)
        while not job.is_done(POLL_S):
            done = (messages.value, size.value)
            on_progress(done[0] - reported[0], done[1] - reported[1])
            reported = done
        results = job.result()
        on_progress(
            sum(each.messages for each in results) - reported[0],
            sum(each.bytes for each in results) - reported[1],
        )
        return results

    return run


class _Job:
    """A blocking call, run in a thread so that the terminal stays alive."""

    def __init__(self, work: Callable[[], list[Any]]) -> None:
        self._work: Final = work
        self._results: list[Any] = []
        self._failure: Exception | None = None
        self._thread: Final = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._results = self._work()
        except Exception as failure:  # noqa: BLE001 (raised again where the result is asked for)
            self._failure = failure

    def is_done(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def result(self) -> list[Any]:
        if self._failure is not None:
            cause = last_cause(str(self._failure))
            is_away = f".{Unavailable.__name__}: " in cause
            raise (Unavailable if is_away else TaskFailed)(cause) from self._failure
        return self._results


def last_cause(text: str) -> str:
    """Return the last line of a task's traceback, from all that Spark says about its failure."""
    lines = [line.strip() for line in text.splitlines()]
    named = [line for line in lines if _RAISED.match(line)]
    # Chained errors come one after the other; Spark repeats them, so the first block counts.
    said = named[0] if named else next(iter(lines), "")
    return f"a task on Spark failed: {said}"


def task_counts(tracker: Any, group: str) -> tuple[int, int]:
    """Return how many tasks the jobs of a group have so far, and how many of them are done."""
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    known = [stage for stage in stages if stage]
    return (
        sum(stage.numTasks for stage in known),
        sum(stage.numCompletedTasks for stage in known),
    )
