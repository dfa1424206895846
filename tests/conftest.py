"""What all tests share, and in which order several processes take them.

`make test` runs two processes (pytest-xdist), each with a PostgreSQL, a broker and a Spark session
of its own. A file stays whole; the dashboard's files stay together, because they share a browser
and a built site.
"""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# Brokers, workers and commands are processes of their own, hundreds of them. Where bytecode may not
# be written each would compile the whole package again, which takes a fifth of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

pytest_plugins = [
    "tests.support.coroutines",
    "tests.support.postgres",
    "tests.support.broker",
    "tests.support.proxy",
]

# How long an example takes depends on what else the machine does.
settings.register_profile("skep", deadline=None)
settings.load_profile("skep")

HERE = Path(__file__).parent
LONGEST_FIRST = (
    "faults",
    "spark",
    "dashboard",
    "compat",
    "jobs",
    "cli",
    "client",
    "enqueue",
    "api",
)
"""Folders whose files take longest: begun last, one of them would leave a process without work."""


def pytest_collection_modifyitems(items):
    def place(item):
        folder = item.path.relative_to(HERE).parts[0]
        return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)

    items.sort(key=place)
    for item in items:
        parts = item.path.relative_to(HERE).parts
        together = parts[0] if parts[0] == "dashboard" else "/".join(parts)
        item.add_marker(pytest.mark.xdist_group(together))
