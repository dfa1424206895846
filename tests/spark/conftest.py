"""One Spark session for the whole run, and logs to read from.

Starting a JVM takes seconds, and so does Spark's first look at a Python data source; tests share
the session and keep apart by their databases.
"""

import warnings

import pytest

from skep.spark.session import spark_session
from tests.spark.logs import Writer


@pytest.fixture(scope="session")
def spark():
    with warnings.catch_warnings():
        # Spark's own code opens sockets that it leaves to the end of the process.
        warnings.simplefilter("ignore")
        session = spark_session(
            "skep tests",
            master="local[2,2]",
            config={"spark.log.level": "OFF", "spark.driver.memory": "1g"},
        )
        yield session
        session.stop()


@pytest.fixture
def writer(connect, arun):
    """Somebody who pushes into the log of this test's database."""
    return Writer(arun(connect()), arun)


@pytest.fixture
def open_writer(connect, arun):
    """Open further writers, each with a connection of its own."""
    return lambda: Writer(arun(connect()), arun)


@pytest.fixture
def load(spark, database_url):
    """Read this test's log as a DataFrame."""

    def load(schema=None, **options):
        reader = spark.read.format("skep").option("url", database_url).options(**options)
        return (reader.schema(schema) if schema else reader).load()

    return load
