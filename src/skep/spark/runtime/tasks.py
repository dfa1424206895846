"""Run tasks on Spark, and say what a failed one said.

A task is a value and a function of a module; both travel to executors as they are. The caller
learns how much is done while the rest is still under way.
"""

import re
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

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


def run_on_spark(session: "Callable[[], SparkSession]") -> RunTasks:
    """Return a function that runs tasks on the executors of a session, made for the first task."""

    def run(tasks: Sequence[Any], work: Callable[[Any], Any], on_progress: OnProgress) -> list[Any]:
        if not tasks:
            return []
        context: Any = session().sparkContext
        messages, size = context.accumulator(0), context.accumulator(0)

        def measured_work(task: Any) -> Any:
            result = work(task)
            messages.add(result.messages)
            size.add(result.bytes)
            return result

        job: Future[list[Any]] = Future()

        def collect() -> None:
            try:
                job.set_result(context.parallelize(tasks, len(tasks)).map(measured_work).collect())
            except Exception as failure:  # noqa: BLE001 (raised again where the result is asked for)
                job.set_exception(failure)

        # In a thread, so that the terminal stays alive.
        threading.Thread(target=collect, daemon=True).start()
        reported = (0, 0)
        while not wait([job], POLL_S).done:
            done = (messages.value, size.value)
            on_progress(done[0] - reported[0], done[1] - reported[1])
            reported = done
        if (failure := job.exception()) is not None:
            cause = last_cause(str(failure))
            is_away = f".{Unavailable.__name__}: " in cause
            raise (Unavailable if is_away else TaskFailed)(cause) from failure
        results = job.result()
        on_progress(
            sum(each.messages for each in results) - reported[0],
            sum(each.bytes for each in results) - reported[1],
        )
        return results

    return run


def run_here(
    tasks: Sequence[Any], work: Callable[[Any], Any], on_progress: OnProgress
) -> list[Any]:
    """Run tasks one after the other in this process, without Spark."""
    results: list[Any] = []
    for task in tasks:
        results.append(work(task))
        on_progress(results[-1].messages, results[-1].bytes)
    return results


def last_cause(text: str) -> str:
    """Return the last line of a task's traceback, from all that Spark says about its failure."""
    lines = [line.strip() for line in text.splitlines()]
    named = [line for line in lines if _RAISED.match(line)]
    # Chained errors come one after the other; Spark repeats them, so the first block counts.
    said = named[0] if named else next(iter(lines), "")
    return f"a task on Spark failed: {said}"


@contextmanager
def repeating(work: Callable[[], None]) -> Generator[None]:
    """Call a function every now and then, in a thread, while the block runs."""
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.wait(POLL_S):
            work()

    watcher = threading.Thread(target=repeat, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def task_counts(tracker: Any, group: str) -> tuple[int, int]:
    """Return how many tasks the jobs of a group have so far, and how many of them are done."""
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    known = [stage for stage in stages if stage]
    return (
        sum(stage.numTasks for stage in known),
        sum(stage.numCompletedTasks for stage in known),
    )
