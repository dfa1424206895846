import pytest

from skep.client import AsyncClient, Client
from tests.client.support.mortal import MortalBroker


@pytest.fixture
def queen(broker, arun):
    """A client on asyncio of the shared broker."""
    client = AsyncClient(broker.url)
    yield client
    arun(client.close())


@pytest.fixture
def bee(broker):
    """A blocking client of the shared broker."""
    with Client(broker.url) as client:
        yield client


@pytest.fixture
def mortal(database_url):
    """A broker of this test alone, which may be killed and started again."""
    broker = MortalBroker(database_url)
    broker.start()
    yield broker
    broker.kill()
