"""How a worker process gets and gives back memory.

A call carries megabytes and thousands of objects that live for some milliseconds. Neither should be
searched for cycles, nor fetched from the kernel anew each time.
"""

import ctypes
import gc
from contextlib import suppress
from typing import Final

GC_ALLOCATIONS: Final = 100_000
"""Surviving allocations between two collections of the youngest objects."""

BLOCK_BYTES_MAX: Final = 4 * 1024 * 1024
"""Larger blocks than a call needs go back to the kernel one by one: tables of the key cache."""

FREE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Free memory that the process keeps, at the end of its heap."""

# Parameters of glibc's mallopt.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3


def calm_collector() -> None:
    """Make the cycle collector rare.

    Reference counts free what a request allocates; the collector would only walk the objects in
    flight again and again. Objects that exist by now are permanent and are excluded.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, 50, 100)


def keep_freed_memory() -> bool:
    """Let the allocator keep what a call frees for the next one; tell whether it can.

    The kernel clears every page that it hands out, which was a tenth of the CPU of large pushes.
    """
    with suppress(AttributeError, OSError, TypeError):  # this is not glibc
        mallopt = ctypes.CDLL(None).mallopt
        is_kept: int = mallopt(_MMAP_THRESHOLD, BLOCK_BYTES_MAX)
        return bool(is_kept and mallopt(_TRIM_THRESHOLD, FREE_BYTES_MAX))
    return False
