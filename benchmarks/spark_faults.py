"""Kill things under a pipeline queue -> window -> queue, and check every message by ledger.

`python -m benchmarks.spark_faults --kills 20` kills, so often each: the driver at any moment, the
driver between the sink's commit and Spark's, the worker process of a task, and PostgreSQL. Between
kills the pipeline is started again if it has ended. Messages are pushed all the while. At the end
every message must be in exactly one window, and every window there once.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from skep.db.embedded import EmbeddedPostgres
from skep.db.migrate import migrate
from skep.model.envelopes import build_envelope

SOURCE, SINK, NAME = "faults-in", "faults-out", "faults"
KINDS = ("driver", "commit", "worker", "postgres")
LANES = ("a", "b", "c")
PUSHED_AT_ONCE = 10
STEP_MS = 200
WINDOW_S = 2
START_S = 600
CLOSING_MS = 4_000_000_000_000

DEFINITION = f"""
name: {NAME}
sources:
  messages:
    queue: {SOURCE}
    schema: at BIGINT, id BIGINT
    eventTime: timestamp_millis(payload.at)
    watermark: 5s
window:
  kind: tumbling
  size: {WINDOW_S}s
  aggregate: {{ids: collect_list(payload.id)}}
sink: {{queue: {SINK}}}
trigger: {{every: 100ms}}
"""


class LedgerBroken(Exception):
    """A message is missing, or is there more than once."""


class Feed:
    """Pushes numbered messages until it is told to end; knows how many there are."""

    def __init__(self, url, pause_s=0.1):
        self._url, self._pause_s = url, pause_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.count = 0

    def start(self):
        self._push(self._numbered())
        self._thread.start()

    def finish(self):
        """End, and push what closes every window."""
        self._is_over.set()
        self._thread.join()
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
        while True:
            try:
                with psycopg.connect(self._url) as connection:
                    if not self._is_stored(connection, payloads[0]["id"]):
                        self._store(connection, payloads)
            except psycopg.Error:
                time.sleep(0.2)
            else:
                self.count += PUSHED_AT_ONCE if payloads[0]["id"] >= 0 else 0
                return

    def _is_stored(self, connection, number):
        key = self._key(number)
        query = "select exists (select from skep.segment where substring(keys, 1, 16) = %s)"
        return connection.execute(query, [key]).fetchone()[0]

    def _store(self, connection, payloads):
        lane = LANES[payloads[0]["id"] // PUSHED_AT_ONCE % len(LANES)]
        provision = "select partition_id from skep.provision_partitions(%s, %s)"
        (partition,) = connection.execute(provision, [[SOURCE], [lane]]).fetchone()
        envelopes = [
            build_envelope(f"tx-{each['id']}", json.dumps(each).encode()) for each in payloads
        ]
        keys = b"".join(self._key(each["id"]) for each in payloads)
        body = b"[" + b",".join(envelopes) + b"]"
        connection.execute(
            "select first from skep.push_segments(%s, %s, %s, %s, %s::bytea[], %s::bytea[], false)",
            [[partition], [len(payloads)], [2**60], [None], [keys], [body]],
        )

    @staticmethod
    def _key(number):
        return (number + 10).to_bytes(16)


class Driver:
    """`skep pipeline run` in a process group of its own."""

    def __init__(self, url, directory):
        self._url, self._directory = url, Path(directory)
        self._definition = self._directory / "faults.yaml"
        self._definition.write_text(DEFINITION)
        self._process = None

    def is_running(self):
        return self._process is not None and self._process.poll() is None

    def start(self, *flags):
        command = [sys.executable, "-m", "skep", "pipeline", "run", str(self._definition)]
        command += ["--database-url", self._url, "--master", "local[2,4]", *flags]
        command += ["--checkpoint", str(self._directory / "checkpoint")]
        with (self._directory / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def kill(self):
        """End the Python process, the JVM and all workers, as a machine that loses power does."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill_worker(self):
        """Kill a process that runs the Python of tasks; return whether there was one."""
        for pid in _group(self._process.pid):
            if b"pyspark.daemon" in _command(pid):
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def finish(self):
        """Run until all there is has been read."""
        self.start("--available-now")
        if self._process.wait(START_S) != 0:
            raise LedgerBroken(f"the last run failed:\n{self.log()}")

    def log(self):
        return (self._directory / "driver.log").read_text(errors="replace")[-4000:]


class Faults:
    """Strikes a pipeline again and again."""

    def __init__(self, url, directory, *, chance, restart_postgres=None):
        self._url = url
        self._chance = chance
        self._restart_postgres = restart_postgres
        self.driver = Driver(url, directory)
        self.feed = Feed(url)
        self.restarts = 0
        self._last_epoch = -1

    def run(self, kinds):
        """Kill one thing after the other; return what the ledger says."""
        self.feed.start()
        try:
            for kind in kinds:
                self._until_it_works()
                getattr(self, f"_strike_{kind}")()
            self.feed.finish()
            if self.driver.is_running():
                self.driver.kill()
            self.driver.finish()
        finally:
            if self.driver.is_running():
                self.driver.kill()
        return check_ledger(self._url, self.feed.count)

    def _until_it_works(self):
        """Wait until a micro-batch was written since now; start the driver if it has ended."""
        before = self._epoch()
        giving_up_at = time.monotonic() + START_S
        while self._epoch() <= before:
            if not self.driver.is_running():
                self.driver.start()
                self.restarts += 1
            if time.monotonic() > giving_up_at:
                raise LedgerBroken(f"the pipeline does not get on:\n{self.driver.log()}")
            time.sleep(0.1)

    def _epoch(self):
        """Return the last micro-batch that was written, as far as that can be known now."""
        with suppress(psycopg.Error), psycopg.connect(self._url) as connection:
            query = "select coalesce(max(epoch), -1) from skep.sink"
            self._last_epoch = connection.execute(query).fetchone()[0]
        return self._last_epoch

    def _strike_driver(self):
        time.sleep(self._chance.uniform(0, 0.6))
        self.driver.kill()

    def _strike_commit(self):
        """Kill as soon as the sink has committed: Spark has not noted it by then."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            query = "select coalesce(max(epoch), -1) from skep.sink"
            before = connection.execute(query).fetchone()[0]
            while connection.execute(query).fetchone()[0] == before and self.driver.is_running():
                time.sleep(0.002)
        self.driver.kill()

    def _strike_worker(self):
        while self.driver.is_running() and not self.driver.kill_worker():
            time.sleep(0.05)

    def _strike_postgres(self):
        time.sleep(self._chance.uniform(0, 0.6))
        self._restart_postgres()


def check_ledger(url, count):
    """Compare the windows in the sink with what was pushed; return how many there are."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "select p.name, convert_from(s.body, 'UTF8') from skep.segment s"
            " join skep.queue q on q.id = s.queue_id"
            " join skep.partition p on p.id = s.partition_id where q.name = %s",
            [SINK],
        ).fetchall()
    windows = [(lane, each["data"]) for lane, body in rows for each in json.loads(body)]
    starts = [(lane, data["window_start"]) for lane, data in windows]
    if len(starts) != len(set(starts)):
        raise LedgerBroken(f"{len(starts) - len(set(starts))} windows are there twice")
    found = sorted(number for _, data in windows for number in data["ids"])
    if found != list(range(count)):
        missing = len(set(range(count)) - set(found))
        raise LedgerBroken(f"{missing} of {count} messages are missing, {len(found)} were found")
    return len(windows)


def _group(leader):
    """Return the processes of a group."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == leader:
            yield int(path.parent.name)


def _command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@contextmanager
def _database(directory):
    """Yield the address of a migrated database, and what kills and revives its server."""
    directory.chmod(0o711)  # the server of root runs as another account
    server = EmbeddedPostgres(directory / "postgres")
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of each kind")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only these kinds")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    kinds = [kind for kind in chosen.kind or KINDS for _ in range(chosen.kills)]
    chance = random.Random(chosen.seed)
    chance.shuffle(kinds)
    with tempfile.TemporaryDirectory() as name, _database(Path(name)) as (url, restart):
        faults = Faults(url, name, chance=chance, restart_postgres=restart)
        began = time.monotonic()
        windows = faults.run(kinds)
    print(
        f"{len(kinds)} kills, {faults.restarts} starts, {faults.feed.count:,} messages in "
        f"{windows:,} windows, each once; {time.monotonic() - began:.0f} s"
    )


if __name__ == "__main__":
    main()
