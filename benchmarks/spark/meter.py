"""Who used the CPU while Spark worked: its JVMs, the Python processes, PostgreSQL.

Everything is found below this process, which started all of it. Workers of Spark come and go, and
some are orphaned on their way, so no process knows at the end what they used: they are
looked at all the time, and the last look at each counts. What a process used after it is lost.
Looking takes time as well, on a machine with many processes; it is not counted.
"""

import os
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from benchmarks.meter import ProcessStat, own_cpu_seconds, read_processes, tree_of

LOOK_S: Final = 0.25
_JAVA: Final = "java"


@dataclass(frozen=True, slots=True)
class SparkReading:
    """What was used up to a moment."""

    at_s: float
    jvm_s: float
    python_s: float
    postgres_s: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What a step took."""

    messages: int
    seconds: float
    jvm_s: float
    python_s: float
    postgres_s: float

    @property
    def cpu_s(self) -> float:
        return self.jvm_s + self.python_s + self.postgres_s

    @classmethod
    def between(cls, before: SparkReading, after: SparkReading, messages: int) -> Self:
        return cls(
            messages,
            after.at_s - before.at_s,
            after.jvm_s - before.jvm_s,
            after.python_s - before.python_s,
            after.postgres_s - before.postgres_s,
        )


class SparkMeter:
    """Watches the processes below this one, inside of a `with` block."""

    def __init__(self, postmaster_pid: int) -> None:
        self._postmaster_pid: Final = postmaster_pid
        self._used_s: Final[dict[str, dict[int, float]]] = {"jvm": {}, "python": {}, "postgres": {}}
        self._looking_s = 0.0
        self._lock: Final = threading.Lock()
        self._is_over: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def read(self) -> SparkReading:
        """Take a reading."""
        self._look()
        with self._lock:
            totals = {kind: sum(used.values()) for kind, used in self._used_s.items()}
        return SparkReading(
            at_s=time.monotonic(),
            jvm_s=totals["jvm"],
            python_s=totals["python"] - self._looking_s,
            postgres_s=totals["postgres"],
        )

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        began_s = time.thread_time()
        processes = read_processes()
        servers = {each.pid for each in tree_of(self._postmaster_pid, processes)}
        below = {each.pid for each in tree_of(os.getpid(), processes)}
        with self._lock:
            known = {pid for used in self._used_s.values() for pid in used}
            for each in processes:
                if each.pid in below or each.pid in servers or each.pid in known:
                    used_s = self._used_s[_kind(each, servers)]
                    used_s[each.pid] = max(used_s.get(each.pid, 0.0), own_cpu_seconds(each))
            self._looking_s += time.thread_time() - began_s


def _kind(process: ProcessStat, servers: set[int]) -> str:
    if process.pid in servers:
        return "postgres"
    return "jvm" if process.name == _JAVA else "python"
