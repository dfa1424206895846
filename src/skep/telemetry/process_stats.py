"""What a process costs: processor time and memory."""

import resource
import sys
from pathlib import Path
from typing import Final, NamedTuple

_STATM: Final = Path("/proc/self/statm")


class ProcessStats(NamedTuple):
    """What this process has used so far, and uses now."""

    cpu_user_s: float
    cpu_system_s: float
    rss_bytes: int
    virtual_bytes: int
    """0 where the system does not tell."""


def read_process_stats() -> ProcessStats:
    """Ask the system about this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    try:
        virtual, resident = _STATM.read_text().split()[:2]
    except OSError:
        # Elsewhere only the largest size so far is to be had, in bytes on macOS.
        unit = 1 if sys.platform == "darwin" else 1024
        return ProcessStats(usage.ru_utime, usage.ru_stime, usage.ru_maxrss * unit, 0)
    page = resource.getpagesize()
    return ProcessStats(usage.ru_utime, usage.ru_stime, int(resident) * page, int(virtual) * page)
