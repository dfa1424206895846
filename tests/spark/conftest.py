"""One Spark session for the whole run, and logs to read from.

Starting a JVM takes seconds, and so does Spark's first look at a Python data source; tests share
the session and keep apart by their databases.
"""

import os
import warnings

import pytest

from skep.spark.runtime.session import LOOPBACK, spark_session
from tests.spark.support.logs import Writer

CLUSTER = "SKEP_TEST_SPARK_MASTER"
"""The variable that makes these tests run on a cluster; test_cluster_spark.py sets it."""


@pytest.fixture(scope="session")
def spark():
    with warnings.catch_warnings():
        # Spark's own code opens sockets that it leaves to the end of the process.
        warnings.simplefilter("ignore")
        session = spark_session(
            "skep tests",
            master=os.environ.get(CLUSTER, "local[2,2]"),
            config={"spark.log.level": "OFF", "spark.driver.memory": "1g"} | _of_cluster(),
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


def _of_cluster():
    """Return what a session needs to reach executors of a cluster on this machine."""
    if CLUSTER not in os.environ:
        return {}
    return {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
    }
