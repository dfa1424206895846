"""The archive as a service: PostgreSQL dies under it, comes back, and nothing is there twice."""

import asyncio
import contextlib
import logging
import signal
import subprocess
import sys
import threading
from urllib.parse import urlsplit

import asyncpg
import psutil
import pytest

from skep.db.access.sessions import WrongDatabase
from skep.db.schema.migrate import migrate
from skep.model.errors import Unavailable
from skep.spark.archive.archiver import ArchiveBusy, ArchivePlan, Archiver, archive_repeatedly
from skep.spark.archive.lake import Lake, explained
from skep.spark.runtime.postgres import forget_connections
from skep.spark.runtime.tasks import TaskFailed, run_here
from tests.spark.support.archives import Shop
from tests.spark.support.logs import Writer

DEADLINE_S = 120


class Rounds:
    """Rounds that fail as they are told, and a stop that comes when none is left."""

    def __init__(self, *outcomes):
        self._outcomes = list(outcomes)
        self.pauses = []

    def archive(self):
        outcome = self._outcomes.pop(0)
        if outcome is not None:
            raise outcome

    def wait(self, pause_s):
        self.pauses.append(pause_s)
        return not self._outcomes

    def run(self, before_waiting=lambda: None):
        archive_repeatedly(
            self.archive, self, every_s=300, before_waiting=before_waiting, pause_max_s=4
        )
        return self.pauses


def test_a_database_that_is_away_is_waited_for_longer_and_longer_up_to_a_bound(caplog):
    away = [Unavailable("it restarts")] * 5

    assert Rounds(*away, None, away[0], None).run() == [1, 2, 4, 4, 4, 300, 1, 300]
    said = [record.getMessage() for record in caplog.records]
    assert "it restarts" in said[0]
    assert "trying again in 1 s" in said[0]
    assert "is back" in said[5]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_a_lock_that_outlives_its_connection_is_waited_for_but_not_that_of_somebody_else():
    assert Rounds(Unavailable("gone"), ArchiveBusy(), None).run() == [1, 2, 300]
    with pytest.raises(ArchiveBusy):
        Rounds(None, ArchiveBusy()).run()


class Day:
    """A clock that goes on an hour with every round, and rounds that note when they were."""

    def __init__(self, *failures):
        self.hours = -1
        self.compacted = []
        self._failures = list(failures)

    def archive(self):
        self.hours += 1

    def compact(self):
        if self._failures:
            raise self._failures.pop(0)
        self.compacted.append(self.hours)

    def wait(self, pause_s):
        return self.hours == 10

    def run(self, **how):
        archive_repeatedly(
            self.archive,
            self,
            every_s=300,
            before_waiting=lambda: None,
            clock=lambda: 3600.0 * max(0, self.hours),
            **how,
        )
        return self.compacted


def test_the_lake_is_compacted_after_the_first_round_and_then_as_often_as_told():
    day = Day()

    assert day.run(compact=day.compact, compact_every_s=4 * 3600) == [0, 4, 8]


@pytest.mark.parametrize(
    "failure",
    [Unavailable("it restarts"), ArchiveBusy(), TaskFailed("out of memory"), OSError("disk full")],
)
def test_a_compaction_that_fails_is_told_and_tried_again_while_archiving_goes_on(failure, caplog):
    day = Day(failure, failure)

    pauses = {"compact_every_s": 4 * 3600, "compact_again_s": 2 * 3600}
    assert day.run(compact=day.compact, **pauses) == [4, 8]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert getattr(failure, "message", "OSError: disk full") in said[0]


def test_whoever_wants_no_compaction_gets_none():
    assert Day().run() == []


def test_nobody_waits_for_what_will_never_be_there():
    def refuse():
        raise WrongDatabase("no such login")

    with pytest.raises(WrongDatabase, match="no such login"):
        Rounds(Unavailable("refused")).run(before_waiting=refuse)


class Outages:
    """A PostgreSQL that can be killed, and is found at its old address again."""

    def __init__(self, build):
        self._build = build
        self._server = build()
        self._server.start()
        self.url = self._server.dsn

    def kill(self):
        """Kill every process of the server: one of its sessions could live for one more step."""
        postmaster = psutil.Process(self._server.pid)
        for process in [postmaster, *postmaster.children()]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def revive(self):
        self._server.stop()
        self._server = self._build(port=urlsplit(self.url).port)
        self._server.start()


@pytest.fixture
def postgres(durable_postgres):
    outages = Outages(durable_postgres)
    yield outages
    forget_connections()


@pytest.fixture
def open_shop(postgres, tmp_path):
    """Open a shop with a connection of its own: the one before has died with its server."""
    connections = []
    with asyncio.Runner() as runner:
        runner.run(migrate(postgres.url))

        def open_shop():
            connections.append(runner.run(asyncpg.connect(postgres.url)))
            return Shop(postgres.url, tmp_path / "lake", Writer(connections[-1], runner.run))

        yield open_shop
        for connection in connections:
            connection.terminate()
        runner.run(asyncio.sleep(0))


def push_read(shop, payloads):
    """Store messages that are old and read: a round archives them and deletes them."""
    for payload in payloads:
        shop.push_old(payload, partition=f"p{payload % 3}")
    shop.read_all()


@pytest.mark.slow
def test_killed_at_each_step_of_a_round_postgres_comes_back_to_a_whole_archive(postgres, open_shop):
    steps = ["planned", "copied", "added", "deleted", "committed"]
    shop = open_shop()
    push_read(shop, range(8))
    stop, outages = threading.Event(), []
    plan = ArchivePlan(
        url=shop.url, warehouse=shop.warehouse, messages_per_run=3, messages_per_task=1
    )

    def kill(step):
        if steps and step == steps[0]:
            steps.pop(0)
            postgres.kill()

    with Lake(shop.url, {}) as lake:
        archiver = Archiver(lake, plan, run_here, on_step=kill)

        def archive():
            with explained():
                archiver.archive()
            stop.set()

        def revive():
            outages.append(len(steps))
            postgres.revive()

        archive_repeatedly(archive, stop, every_s=1, before_waiting=revive, pause_first_s=0.01)

    forget_connections()
    shop = open_shop()
    assert outages == [4, 3, 2, 1, 0]
    assert shop.archived() == list(range(8))
    assert shop.live() == []
    assert shop.left_over() == []


@pytest.mark.slow
def test_the_command_says_that_postgres_is_away_and_goes_on_when_it_is_back(postgres, open_shop):
    shop = open_shop()
    push_read(shop, range(4))
    command = [sys.executable, "-m", "skep", "archive", "run", "--every", "1"]
    command += ["--database-url", shop.url, "--warehouse", shop.warehouse]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        giving_up = threading.Timer(DEADLINE_S, run.kill)
        giving_up.start()
        try:
            assert any("Archived 4 messages" in line for line in run.stdout)
            postgres.kill()
            assert any("cut short: the database of the archive" in line for line in run.stdout)
            postgres.revive()
            shop = open_shop()
            push_read(shop, range(4, 9))
            assert any("the database is back" in line for line in run.stdout)
            while len(shop.archived()) < 9:
                assert any("archived" in line for line in run.stdout)
            run.send_signal(signal.SIGTERM)
            assert run.wait(DEADLINE_S) == 0
        finally:
            giving_up.cancel()
            run.kill()

    assert shop.archived() == list(range(9))
    assert shop.live() == []


def test_the_command_does_not_wait_for_a_database_that_nobody_made(database_url, tmp_path):
    url = urlsplit(database_url)._replace(path="/nobody_made_it").geturl()
    command = [sys.executable, "-m", "skep", "archive", "run", "--every", "1"]
    command += ["--database-url", url, "--warehouse", str(tmp_path)]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode != 0
    assert 'database "nobody_made_it" does not exist' in ended.stderr
    assert "Traceback" not in ended.stderr
