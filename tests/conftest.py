"""What all tests share, and in which order several processes take them.

`make test` runs two processes (pytest-xdist), each with a PostgreSQL and a broker of its own. A
file stays whole. Files that share something expensive stay together: those that use the Spark
session, and those of the dashboard, which share a browser and a built site.
"""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.dispositions import stop_handing_down_ignored_signals

stop_handing_down_ignored_signals()

# Brokers, workers and commands are processes of their own, hundreds of them. Where bytecode may not
# be written each would compile the whole package again, which takes a fifth of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Sparks of tests run for seconds: what the second compiler and the parallel collector cost at the
# start they never earn back (10 seconds of CPU for a first query, 5 without them).
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

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


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(items):
    on_spark = {item.path for item in items if "spark" in item.fixturenames}

    def group(item):
        if item.path in on_spark:
            return "Spark session"
        parts = item.path.relative_to(HERE).parts
        return parts[0] if parts[0] == "dashboard" else "/".join(parts)

    def place(item):
        folder = item.path.relative_to(HERE).parts[0]
        order = LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)
        return item.path not in on_spark, order

    items.sort(key=place)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))
