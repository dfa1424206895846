"""Streams over a server that went back: transaction ids they have seen are given out again."""

import asyncpg
import pytest

from skep.db.schema.migrate import migrate
from skep.spark.runtime.postgres import forget_connections
from skep.spark.source.positions import InvalidPosition
from tests.faults.support.mortal_postgres import KILL, MortalPostgres, Standby
from tests.spark.support.logs import Writer
from tests.spark.support.queries import Query


@pytest.fixture
def pair(postgres_dir, arun):
    primary = MortalPostgres(postgres_dir / "primary")
    primary.start()
    standby = Standby(primary, postgres_dir / "standby")
    arun(migrate(primary.dsn))
    yield primary, standby
    standby.stop()
    primary.stop()
    forget_connections()


def test_a_failover_to_a_late_standby_is_noticed_by_streams_that_had_read_what_it_lost(pair, arun):
    primary, standby = pair
    url = primary.dsn
    writer = Writer(arun(asyncpg.connect(url)), arun)
    writer.push(1)
    early, group, ahead = Query(url), Query(url, consumerGroup="billing"), Query(url)
    assert [each.drain() for each in (early, group, ahead)] == [[1], [1], [1]]
    standby.start()
    url = url.replace(f":{primary.port}/", f":{standby.port}/")
    behind = Writer(arun(asyncpg.connect(url)), arun)
    behind.execute("alter system set primary_conninfo = ''")
    behind.execute("select pg_reload_conf()")
    while behind.value("select count(*) from pg_stat_wal_receiver"):
        pass
    for number in (2, 3, 4):
        writer.push(number)
    assert ahead.drain() == [2, 3, 4]

    primary.end(KILL)
    standby.promote()
    for number in (20, 30, 40):
        behind.push(number)

    seen = f"'{ahead.start['seen']}'::pg_snapshot"
    reused = "select count(*) from skep.segment where first > 1 and pg_visible_in_snapshot(xid,"
    assert behind.value(f"{reused} {seen})") > 0
    # What the first position has seen is here, so none of its ids comes again.
    early.restart(url=url)
    assert early.drain() == [20, 30, 40]
    # Also if that was removed since: the group's commit is here, and was later.
    behind.execute("delete from skep.segment where first = 1")
    group.restart(url=url)
    assert group.drain() == [20, 30, 40]
    ahead.restart(url=url)
    with pytest.raises(InvalidPosition, match="timeline of the server is 1, the present one 2"):
        ahead.step()
    ahead.restart(onTimelineChange="reread", maxMessagesPerTrigger="1")
    assert ahead.drain() == [20, 30, 40]
    ahead.restart(onTimelineChange="fail")
    behind.push(50)
    assert ahead.drain() == [50]
    behind.close()


def test_files_put_back_from_a_copy_are_noticed_by_the_newest_segment(database_url, writer):
    writer.push(1)
    stream = Query(database_url)
    stream.drain()
    # As if the position were an hour old, and its newest id had been given out again since.
    for name in ("newest", "taken"):
        stream.start[name] -= 3_600_000_000

    with pytest.raises(InvalidPosition, match="an earlier time, lost them"):
        stream.step()
    stream.restart(onTimelineChange="reread")
    assert stream.drain() == [1]
    assert stream.step() is None
    forget_connections()
