"""Strike a job on Spark again and again, in chosen ways and moments.

The kinds of strikes, all by kill -9:

- driver: all processes of the job, at any moment;
- staged: the same, after its tasks have written and while its commit is under way: the commit is
  held up by a lock meanwhile. Half of the time its session in PostgreSQL ends first, half of the
  time it goes on without the process that asked for it;
- commit: the same, as soon as PostgreSQL has committed, which Spark has not noted by then;
- worker: a process that runs the Python of tasks;
- executor: the JVM of an executor, on a cluster;
- postgres: the server.

Between strikes the job is started again if it has ended, and has to get on: something is committed
before the next one.
"""

import math
import os
import signal
import time
from abc import ABC, abstractmethod
from collections import Counter
from contextlib import suppress

import psycopg

from benchmarks.spark.victims import LedgerBroken

START_S = 600
"""Spark gives a Python worker ten seconds to start; on a busy machine a job needs several tries."""
_WAITING = (
    "select pid from pg_stat_activity where wait_event_type = 'Lock' and query like %s"
    " and datname = current_database()"
)


class Campaign(ABC):
    """Strikes one job; what is said about a job in general is in its subclasses."""

    KINDS = ("driver", "staged", "commit", "worker", "postgres")
    CLUSTER_KINDS = ("executor",)
    PROGRESS = ""
    """A query for a number that grows with every commit."""
    COMMIT = ""
    """How the statement of a commit is known."""

    def __init__(self, url, job, feed, *, chance, restart_postgres=None, cluster=None):
        self.url = url
        self.job, self.feed = job, feed
        self.chance = chance
        self._restart_postgres = restart_postgres
        self._cluster = cluster
        self.starts = 0
        self.done = Counter()
        self._last_progress = -1

    def run(self, kinds, on_strike=lambda _campaign: None, *, until_s=math.inf):
        """Strike, then let the job do the rest.

        Args:
            kinds: How to strike, one after the other.
            on_strike: Is told after each.
            until_s: No more strikes after this moment of the monotonic clock.
        """
        self.feed.start()
        try:
            for kind in kinds:
                if time.monotonic() > until_s:
                    break
                self._until_it_works()
                getattr(self, f"_strike_{kind}")()
                self.done[kind] += 1
                on_strike(self)
            self.feed.finish()
            self.job.kill()
            self.before_the_end()
            self.job.finish()
        finally:
            self.job.kill()

    def before_the_end(self):  # noqa: B027 (a job that needs none says nothing)
        """Prepare for the run that does all the rest."""

    def await_a_moment(self):
        """Wait for any moment of the job's work."""
        time.sleep(self.chance.uniform(0, 0.6))

    @abstractmethod
    def hold(self, connection):
        """Take a lock that a commit has to wait for, while nothing else does."""

    def progress(self):
        """Return how far the job has come, as far as that can be known now."""
        with suppress(psycopg.Error), psycopg.connect(self.url) as connection:
            self._last_progress = connection.execute(self.PROGRESS).fetchone()[0]
        return self._last_progress

    def _until_it_works(self):
        """Wait until something was committed since now; start the job if it has ended."""
        before = self.progress()
        giving_up_at = time.monotonic() + START_S
        while self.progress() <= before:
            if not self.job.is_running():
                self.job.start()
                self.starts += 1
            if time.monotonic() > giving_up_at:
                raise LedgerBroken(f"the job does not get on:\n{self.job.log()}")
            time.sleep(0.2)

    def _strike_driver(self):
        self.await_a_moment()
        self.job.kill()

    def _strike_staged(self):
        with (
            psycopg.connect(self.url, autocommit=True) as watch,
            psycopg.connect(self.url) as holder,
        ):
            self.hold(holder)
            session = self._waiting(watch)
            self.job.kill()
            if self.chance.random() < 0.5:
                watch.execute("select pg_terminate_backend(%s)", [session])
            holder.rollback()

    def _waiting(self, watch):
        """Return the session whose commit waits for the lock; start the job if it has ended."""
        giving_up_at = time.monotonic() + START_S
        while not (found := watch.execute(_WAITING, [f"%{self.COMMIT}%"]).fetchone()):
            if not self.job.is_running():
                self.job.start()
                self.starts += 1
            if time.monotonic() > giving_up_at:
                raise LedgerBroken(f"nothing is committed:\n{self.job.log()}")
            time.sleep(0.005)
        return found[0]

    def _strike_commit(self):
        with psycopg.connect(self.url, autocommit=True) as connection:
            before = connection.execute(self.PROGRESS).fetchone()
            while connection.execute(self.PROGRESS).fetchone() == before and self.job.is_running():
                time.sleep(0.002)
        self.job.kill()

    def _strike_worker(self):
        self.await_a_moment()
        giving_up_at = time.monotonic() + START_S
        while self.job.is_running() and not self.job.kill_worker(self.chance):
            if time.monotonic() > giving_up_at:
                raise LedgerBroken(f"no task runs Python:\n{self.job.log()}")
            time.sleep(0.05)

    def _strike_executor(self):
        self.await_a_moment()
        while not (executors := self._cluster.executors()):
            time.sleep(0.05)
        os.kill(self.chance.choice(executors), signal.SIGKILL)

    def _strike_postgres(self):
        self.await_a_moment()
        self._restart_postgres()
