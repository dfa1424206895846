"""Who used the CPU while Spark worked: its JVMs, the Python processes, PostgreSQL.

Everything is found below this process, which started all of them. What a JVM inherited from
children that ended is Python's: nothing else is started by it.
"""

import os
import time
from dataclasses import dataclass
from typing import Final, Self

from benchmarks.meter import ProcessStat, cpu_seconds, read_processes, tree_of

_JAVA: Final = "java"
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


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
    """Reads what the processes below this one have used."""

    def __init__(self, postmaster_pid: int) -> None:
        self._postmaster_pid: Final = postmaster_pid

    def read(self) -> SparkReading:
        """Take a reading."""
        processes = read_processes()
        postgres = tree_of(self._postmaster_pid, processes)
        servers = {process.pid for process in postgres}
        others = [each for each in tree_of(os.getpid(), processes) if each.pid not in servers]
        jvms = [each for each in others if each.name == _JAVA]
        inherited_s = sum(each.ended_children_ticks for each in jvms) / _TICKS_PER_S
        jvm_s = _total_s(jvms) - inherited_s
        return SparkReading(
            at_s=time.monotonic(),
            jvm_s=jvm_s,
            python_s=_total_s(others) - jvm_s,
            postgres_s=_total_s(postgres),
        )


def _total_s(processes: list[ProcessStat]) -> float:
    return sum(cpu_seconds(process) for process in processes)
