"""Run the tasks of the archive: on Spark, or one after the other in this process.

A task is a value and a function of a module; both travel to executors as they are. The caller is
told how much has been done while the rest is still under way.
"""

import re
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar

from skep.model.errors import Refused, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Done = TypeVar("Done")

LOOK_S: Final = 0.5
"""How often to look how far a job on Spark has come."""

OnProgress = Callable[[int, int], None]
"""Is told messages and bytes that were done since it was last called."""


_RAISED: Final = re.compile(r"[a-z_]+(\.\w+)*\.\w+: |[A-Z]\w*(Error|Exception): ")
"""How the last line of a Python traceback begins."""


class TaskFailed(Refused):
    """A task failed on Spark, as often as it may."""

    code: ClassVar[str] = "task_failed"


class Measured(Protocol):
    """What a task returns."""

    @property
    def messages(self) -> int:
        """How many it dealt with."""
        ...

    @property
    def bytes(self) -> int:
        """How many bytes it wrote."""
        ...


class RunTasks(Protocol):
    """Runs tasks and returns what they return, in their order."""

    def __call__(
        self, tasks: Sequence[Any], work: Callable[[Any], Any], on_progress: OnProgress
    ) -> list[Any]:
        """Run all of them; fail with the first that fails for good."""
        ...


def run_here(
    tasks: Sequence[Task], work: Callable[[Task], Done], on_progress: OnProgress
) -> list[Done]:
    """Run tasks one after the other."""
    results: list[Done] = []
    for task in tasks:
        result: Any = work(task)
        on_progress(result.messages, result.bytes)
        results.append(result)
    return results


def run_on_spark(spark: "SparkSession") -> RunTasks:
    """Return what runs tasks on the executors of a session."""

    def run(tasks: Sequence[Any], work: Callable[[Any], Any], on_progress: OnProgress) -> list[Any]:
        if not tasks:
            return []
        context: Any = spark.sparkContext
        messages, size = context.accumulator(0), context.accumulator(0)

        def measured_work(task: Any) -> Any:
            result: Measured = work(task)
            messages.add(result.messages)
            size.add(result.bytes)
            return result

        job = _Job(lambda: context.parallelize(tasks, len(tasks)).map(measured_work).collect())
        told = (0, 0)
        while not job.is_done(LOOK_S):
            seen = (messages.value, size.value)
            on_progress(seen[0] - told[0], seen[1] - told[1])
            told = seen
        results = job.result()
        on_progress(
            sum(each.messages for each in results) - told[0],
            sum(each.bytes for each in results) - told[1],
        )
        return results

    return run


class _Job:
    """Something that blocks, run in a thread so that the terminal stays alive."""

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
    """Return what a task said last, out of all that Spark tells about its failure."""
    lines = [line.strip() for line in text.splitlines()]
    named = [line for line in lines if _RAISED.match(line)]
    # Chained errors come one after the other; Spark repeats them, so the first block counts.
    said = named[0] if named else next(iter(lines), "")
    return f"a task on Spark failed: {said}"
