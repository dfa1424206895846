"""What is struck by the campaigns on Spark: jobs in process groups, and the feed that they work on.

A job is a command of `skep` that runs Spark, started again whenever it has ended. Its messages are
numbered, so that afterwards a ledger can ask for each of them.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import psycopg

from skep.db.embedded.launcher import EmbeddedPostgres
from skep.db.schema.migrate import migrate
from skep.model.envelopes import build_envelope

PARTITIONS = ("a", "b", "c")
PUSHED_AT_ONCE = 10
STEP_MS = 200
CLOSING_MS = 4_000_000_000_000
FINISH_S = 3600
FINISH_TRIES = 5
TASK_WORKER = b"pyspark.worker"
"""What the command of such a process says, and of the one they are forked from. Planners, which
Spark starts beside them, say otherwise."""
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that are killed soon after they started."""


class LedgerBroken(Exception):
    """A message is missing, or is there more than once."""


class Feed:
    """Pushes numbered messages until it is told to end; knows how many there are."""

    def __init__(self, url, queue, *, pause_s=0.3, also="select 1"):
        """Prepare.

        Args:
            url: The database.
            queue: Where to.
            pause_s: Between two pushes.
            also: A statement that belongs to every push, such as to read what is there.
        """
        self._url, self._queue, self._pause_s, self._also = url, queue, pause_s, also
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.count = 0

    def start(self):
        self._push(self._numbered())
        self._thread.start()

    def finish(self):
        self._is_over.set()
        self._thread.join()

    def close_windows(self):
        """Push what ends every window before it."""
        self._push([{"at": CLOSING_MS, "id": -1}])

    def _run(self):
        while not self._is_over.wait(self._pause_s):
            self._push(self._numbered())

    def _numbered(self):
        numbers = range(self.count, self.count + PUSHED_AT_ONCE)
        return [{"at": number * STEP_MS, "id": number} for number in numbers]

    def _push(self, payloads):
        """Store messages; a database that is away is waited for.

        A push whose answer was lost is asked for again only if nothing of it is there.
        """
        is_new = True
        while True:
            try:
                with psycopg.connect(self._url) as connection:
                    if is_new or not self._is_stored(connection, payloads[0]["id"]):
                        self._store(connection, payloads)
                    connection.execute(self._also)
            except psycopg.Error:
                is_new = False
                time.sleep(0.2)
            else:
                self.count += PUSHED_AT_ONCE if payloads[0]["id"] >= 0 else 0
                return

    def _is_stored(self, connection, number):
        """Tell by the heads of the partitions, which stay when segments move to the archive."""
        query = (
            "select coalesce(sum(p.head), 0) from skep.partition p"
            " join skep.queue q on q.id = p.queue_id where q.name = %s"
        )
        return connection.execute(query, [self._queue]).fetchone()[0] > (
            number if number >= 0 else self.count
        )

    def _store(self, connection, payloads):
        name = PARTITIONS[payloads[0]["id"] // PUSHED_AT_ONCE % len(PARTITIONS)]
        provision = "select partition_id from skep.provision_partitions(%s, %s)"
        (partition,) = connection.execute(provision, [[self._queue], [name]]).fetchone()
        envelopes = [
            build_envelope(f"tx-{each['id']}", json.dumps(each).encode()) for each in payloads
        ]
        keys = b"".join((each["id"] + 10).to_bytes(16) for each in payloads)
        body = b"[" + b",".join(envelopes) + b"]"
        connection.execute(
            "select first from skep.push_segments(%s, %s, %s, %s, %s::bytea[], %s::bytea[], false)",
            [[partition], [len(payloads)], [2**60], [None], [keys], [body]],
        )


class Job:
    """A module run in a process group of its own, such as a command of `skep`."""

    def __init__(self, directory, command, forever, once):
        """Prepare.

        Args:
            directory: For its log.
            command: The module, and what it is told.
            forever: Flags with which it runs until it is killed.
            once: Flags with which it does what there is, and ends.
        """
        self._log = Path(directory) / "job.log"
        self._command, self._forever, self._once = command, forever, once
        self._process = None

    def is_running(self):
        return self._process is not None and self._process.poll() is None

    def start(self):
        self._start(self._forever)

    def _start(self, flags):
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *self._command, *flags],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "JDK_JAVA_OPTIONS": QUICK_START, "SPARK_LOCAL_IP": "127.0.0.1"},
                start_new_session=True,
            )

    def kill(self):
        """End the Python process and the JVM at once; workers of tasks find out by themselves."""
        if self.is_running():
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def kill_worker(self, chance):
        """Kill one of the processes that run the Python of tasks; return whether there was one."""
        workers = [pid for pid in _session(self._process.pid) if TASK_WORKER in _command(pid)]
        if workers:
            os.kill(chance.choice(workers), signal.SIGKILL)
        return bool(workers)

    def finish(self):
        """Run until all there is has been done; a few times if it fails, as Spark may by itself."""
        try:
            for _ in range(FINISH_TRIES):
                self._start(self._once)
                if self._process.wait(FINISH_S) == 0:
                    return
        finally:
            self.kill()
        raise LedgerBroken(f"the last run failed:\n{self.log()}")

    def log(self):
        return self._log.read_text(errors="replace")[-4000:]


@contextmanager
def killable_database(directory, **parameters):
    """Yield the address of a migrated database, and what kills and revives its server.

    Args:
        directory: For its files.
        parameters: Of the server.
    """
    directory.chmod(0o711)  # the server of root runs as another account
    server = EmbeddedPostgres(directory / "postgres", parameters=parameters)
    server.start()

    def restart():
        os.kill(server.pid, signal.SIGKILL)
        server.stop()
        server.start()

    try:
        asyncio.run(migrate(server.dsn))
        yield server.dsn, restart
    finally:
        server.stop()


def _session(leader):
    """Return the processes of a session; Spark's daemons make groups of their own in it."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader:
            yield int(path.parent.name)


def _command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
