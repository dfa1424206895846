import os
import shutil
import sys
from random import SystemRandom

import pytest

from skep.db.schema.migrate import migrate
from tests.faults.support.mortal_postgres import MortalPostgres
from tests.support.postgres import make_reachable_directory

STARVED_S = 300
"""How long a test may take that starts and kills real processes, where others use the machine too.
Starting one takes a second here and a minute there; only what hangs must not go on for ever."""


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == "faults" and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(STARVED_S))


@pytest.fixture
def sql(arun, connect):
    """A connection to the test's database, around any proxy."""
    return arun(connect())


@pytest.fixture
def seed():
    """What chance goes by; SKEP_FAULT_SEED repeats a run."""
    seed = os.environ.get("SKEP_FAULT_SEED") or str(SystemRandom().randrange(1 << 32))
    sys.stdout.write(f"SKEP_FAULT_SEED={seed}\n")
    return seed


@pytest.fixture(scope="session")
def durable_server():
    """A server that survives a crash, made once: initdb takes longer than most tests."""
    directory = make_reachable_directory()
    server = MortalPostgres(directory / "pg")
    yield server
    server.stop()
    shutil.rmtree(directory)


@pytest.fixture
def postgres(durable_server, arun):
    """The durable server, running and with the schema; tests keep apart by their queues."""
    durable_server.start()
    arun(migrate(durable_server.dsn))
    return durable_server
