import pytest


@pytest.fixture
def sql(arun, connect):
    """A connection to the test's database, around any proxy."""
    return arun(connect())
