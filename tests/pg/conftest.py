import pytest
from tests.pg.log import Log


@pytest.fixture
def log(arun, connect):
    """A session with the log of this test's database."""
    return arun(Log.open(connect))
