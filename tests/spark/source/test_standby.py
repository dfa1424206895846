"""Reads from a real standby: of what it has replayed, and of nothing it has not."""

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import asyncpg
import pytest

from skep.db.schema.migrate import migrate
from skep.spark.runtime.postgres import forget_connections
from skep.spark.source import standby as standby_module
from skep.spark.source.readers import SkepReader
from skep.spark.source.standby import StandbyNotReady, Written, obstacle_of
from tests.faults.support.mortal_postgres import MortalPostgres, Standby
from tests.spark.support.archives import payloads_of, run_tasks
from tests.spark.support.logs import Writer
from tests.spark.support.queries import SCHEMA, Query

HERE = Written("0/100", 2, "7:1")
STATE = {"is_standby": True, "system": "7:1", "wanted": 256, "replayed": 256, "timeline": 2}
PAUSE = "select pg_wal_replay_pause()"
RESUME = "select pg_wal_replay_resume()"


@pytest.mark.parametrize(
    ("change", "why", "may_pass"),
    [
        ({"replayed": 255}, "it is 1 bytes behind", True),
        ({"timeline": 1}, "it follows timeline 1, the primary is on 2", True),
        ({"is_standby": False, "replayed": 999}, "it is no standby", False),
        ({"system": "7:2"}, "another database", False),
    ],
)
def test_a_standby_is_read_only_if_it_has_what_was_planned(change, why, may_pass):
    assert obstacle_of(STATE, HERE) is None
    assert obstacle_of({**STATE, "replayed": 300}, HERE) is None

    found = obstacle_of({**STATE, **change}, HERE)

    assert why in found.why
    assert found.may_pass == may_pass


@pytest.fixture
def servers(postgres_dir, arun):
    primary = MortalPostgres(postgres_dir / "primary")
    standby = Standby(primary, postgres_dir / "standby")
    with ExitStack() as stack:
        stack.callback(primary.stop)
        stack.callback(standby.stop)
        stack.callback(forget_connections)
        primary.start()
        arun(migrate(primary.dsn))
        standby.start()
        yield primary, standby


@pytest.fixture(autouse=True)
def none_avoided(monkeypatch):
    """Let each step ask the standby again."""
    monkeypatch.setattr(standby_module, "AVOIDED_S", 0)


@pytest.mark.slow
def test_tasks_read_from_the_standby_when_it_has_replayed_what_was_planned(servers, arun, caplog):
    primary, standby = servers
    read_url = primary.dsn.replace(f":{primary.port}/", f":{standby.port}/")
    options = {"url": primary.dsn, "queue": "orders", "readUrl": read_url}
    writer = Writer(arun(asyncpg.connect(primary.dsn)), arun)
    replica = Writer(arun(asyncpg.connect(read_url)), arun)

    def plan(**more):
        reader = SkepReader({**options, **more}, SCHEMA)
        return reader, reader.partitions()

    writer.push(1, 2)
    stream = Query(primary.dsn, readUrl=read_url)
    with caplog.at_level(logging.WARNING):
        assert stream.drain() == [1, 2]
    assert caplog.messages == []

    # Behind: wait, fall back, or fail.
    replica.execute(PAUSE)
    writer.push(3)
    assert payloads_of(run_tasks(*plan(readTimeout="200ms"))) == [1, 2, 3]
    assert "bytes behind. Reading from the primary." in caplog.messages[-1]
    with pytest.raises(StandbyNotReady, match=r"cannot be read after 0\.2 s: it is [\d,]+ bytes"):
        plan(readTimeout="200ms", readFallback="fail")
    with ThreadPoolExecutor(1) as pool:
        planned = pool.submit(plan, readTimeout="100s", readFallback="fail")
        replica.execute(RESUME)
        reader, tasks = planned.result()

    # Wrong addresses are not waited for.
    with pytest.raises(StandbyNotReady, match="it is no standby"):
        plan(readTimeout="100s", readFallback="fail", readUrl=primary.dsn)
    assert payloads_of(run_tasks(*plan(readUrl="postgresql://x@127.0.0.1:1/x"))) == [1, 2, 3]
    assert "cannot connect to" in caplog.messages[-1]

    # What was planned before is read although the primary is away.
    writer.close()
    forget_connections()
    primary.stop()
    assert payloads_of(run_tasks(reader, tasks)) == [1, 2, 3]
    replica.close()
