"""A queue of a hundred thousand partitions: what a stream keeps of it, how long it plans."""

import json
import time

import pytest

from benchmarks.meter import cpu_seconds, read_processes
from skep.spark.runtime.postgres import database
from tests.spark.support.queries import Query

pytestmark = pytest.mark.slow

PARTITIONS = 100_000
STATEMENT_TIMEOUT_S = 300.0  # the default of a reader, whose session is looked at
FILL = f"""
  insert into skep.partition (queue_id, name, head) select q.id, 'p' || n, 1 from skep.queue q,
  generate_series(1, {PARTITIONS}) n where q.name = 'orders'; insert into skep.segment
  (partition_id, first, last, queue_id, created_at, keys, body) select p.id, 1, 1, p.queue_id,
  clock_timestamp(), decode(md5(p.name), 'hex'),
         convert_to('[{{"transactionId":"' || p.name
                    || '","traceId":null,"producerSub":null,"data":1}}]', 'UTF8')
  from skep.partition p where p.head = 1;
  analyze skep.partition, skep.segment
"""


@pytest.fixture
def stream(database_url, writer):
    writer.partition()
    writer.execute(FILL)
    return Query(database_url)


def busy_s(url):
    """Return how long this process and its session in PostgreSQL have worked."""
    pid = database(url, STATEMENT_TIMEOUT_S).rows("select pg_backend_pid() as pid")[0]["pid"]
    session = next(each for each in read_processes() if each.pid == pid)
    return time.process_time() + cpu_seconds(session)


def test_positions_are_small_and_plans_quick_with_a_hundred_thousand_partitions(
    stream, database_url
):
    stream.plan()
    before = busy_s(database_url)

    end = stream.plan()
    tasks = stream.reader.partitions(stream.start, end)

    # Both wait for each other, so this is how long it takes where nobody else is at work.
    assert busy_s(database_url) - before < 1.0
    assert len(json.dumps(end)) < 10_000
    assert sum(batch.num_rows for task in tasks for batch in stream.reader.read(task)) == PARTITIONS
