"""The fixtures that pytest finds through the entry point of the package."""

from collections.abc import Generator
from itertools import count

import pytest

from skep.client import Client
from skep.testing.broker import RunningBroker, running_broker

_numbers = count(1)


@pytest.fixture(scope="session")
def skep_broker() -> Generator[RunningBroker]:
    """A running broker with a database of its own, for all tests of this run."""
    with running_broker() as broker:
        yield broker


@pytest.fixture
def skep_client(skep_broker: RunningBroker) -> Generator[Client]:
    """A blocking client of the broker; `skep_broker.async_client()` makes one on asyncio."""
    with skep_broker.client() as client:
        yield client


@pytest.fixture
def skep_queue() -> str:
    """The name of a queue that no other test uses."""
    return f"test-queue-{next(_numbers)}"
