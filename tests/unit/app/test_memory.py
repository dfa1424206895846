"""What a process does with the memory that it freed."""

import platform
import subprocess
import sys

# Blocks as large as the bodies of a call, freed and taken again; the pages the kernel clears are
# counted. Without the setting it is all of them. In a process of its own, which it changes.
_CALLS = """
import resource
from skep.app.processes.memory import keep_freed_memory

def carry():
    return [b"x" * 1_000_000 for _ in range(8)]

is_kept = keep_freed_memory()
carry()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    carry()
print(is_kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
_PAGES_USED = 20 * 8 * 1_000_000 // 4096


def test_calls_reuse_the_memory_of_calls_before() -> None:
    said = subprocess.check_output([sys.executable, "-c", _CALLS], text=True).split()
    is_glibc = platform.libc_ver()[0] == "glibc"
    assert said[0] == str(is_glibc)
    assert not is_glibc or int(said[1]) < _PAGES_USED // 40
