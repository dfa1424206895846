"""`skep replay` as a person runs it, and as it is killed."""

import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from skep.cli.commands import app
from skep.model.errors import BadRequest

pytestmark = pytest.mark.slow

TIMEOUT_S = 300
WAITING = (
    "select pid from pg_stat_activity where query ~ 'commit_sink' and wait_event_type = 'Lock'"
)
STORED = """
  select p.name, p.head from skep.partition p join skep.queue q on q.id = p.queue_id
  where q.name = 'again' and p.head > 0 order by p.name
"""


def command(url, *arguments):
    return ["replay", "--database-url", url, "--queue", "orders", "--into", "again", *arguments]


def last_hour():
    now = datetime.now(UTC)
    return ["--from", (now - timedelta(hours=1)).isoformat(), "--to", now.isoformat()]


@pytest.fixture
def skep(spark, database_url):
    """Run `skep replay`; return what it printed, or raise what it raised."""

    def invoke(*arguments):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Spark's own, when a session is asked for again
            ended = CliRunner().invoke(app, command(database_url, *arguments))
        if ended.exception is not None and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        assert ended.exit_code == 0, ended.output
        return ended.stdout

    return invoke


@contextmanager
def started(url, *arguments):
    """Run `skep replay` in a process of its own, which is gone after the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "skep", *command(url, *arguments)], start_new_session=True
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def rows_while(process, writer, query):
    """Ask until there is an answer; the process must not end meanwhile."""
    giving_up_at = time.monotonic() + TIMEOUT_S
    while time.monotonic() < giving_up_at:
        if rows := writer.rows(query):
            return rows
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"ended with {process.wait(0.2)}")
    raise AssertionError("nothing happened")


def test_a_person_counts_replays_and_repeats(skep, writer):
    writer.push(1, 2, partition="a")
    writer.push(3, partition="b")
    span = last_hour()

    assert "Would replay 3 messages of 2 partitions" in skep(*span, "--dry-run")
    assert skep(*span) == "Replayed 3 messages\n"
    assert "Nothing to do" in skep(*span)
    assert "Replayed 1 message\n" in skep(*span, "--where", "partition = 'b'")


def test_times_are_checked_before_anything_is_started(skep):
    with pytest.raises(BadRequest, match="Invalid time"):
        skep("--from", "yesterday", "--to", "2026-01-01")


@pytest.mark.timeout(2 * TIMEOUT_S)
def test_killed_when_all_is_staged_it_has_added_nothing_and_is_repeated_whole(
    skep, writer, open_writer, database_url
):
    for number in range(20):
        writer.push(*range(100), partition=f"p{number % 4}")
    writer.partition("again")
    span = last_hour()
    guard = open_writer()
    guard.execute("begin; select from skep.queue where name = 'again' for update")

    with started(database_url, *span) as process:
        ((waiting,),) = rows_while(process, writer, WAITING)
        assert writer.value("select sum(messages) from skep.staged_segment") == 2_000
        os.killpg(process.pid, signal.SIGKILL)
    # PostgreSQL would go on without its client, and commit.
    assert writer.value("select pg_terminate_backend($1, 10000)", waiting)
    guard.execute("rollback")

    assert writer.rows(STORED) == []
    assert skep(*span) == "Replayed 2,000 messages\n"
    assert writer.rows(STORED) == [(f"p{number}", 500) for number in range(4)]
