"""Late commits: a hundred writers, a reader killed at random, and a ledger.

`python -m benchmarks.spark.late_commits` opens a hundred sessions. Each stores messages in
transactions that stay open for a random while, most of them over some micro-batches, and a fifth of
which is rolled back. Meanwhile a process reads the queue as a streaming query does: it notes where
a micro-batch ends, reads it, writes it down, and goes on; started again, it repeats the one that it
had noted. It is killed by kill -9 and started again all the while. At the end what it wrote down
must be what was committed, message by message, and every micro-batch that it read twice the same.
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
from collections import Counter
from pathlib import Path

import asyncpg
from pyspark.sql.types import StringType, StructField, StructType

from benchmarks.spark.victims import LedgerBroken, killable_database
from skep.model.envelopes import build_envelope
from skep.spark.source.readers import SkepStreamReader

QUEUE = "late"
PARTITIONS_PER_WRITER = 1.5
PUSHED_ON_AVERAGE = 50
SCHEMA = StructType([StructField("payload", StringType())])
_PROVISION = "select partition_id from skep.provision_partitions($1, $2)"
_PUSH = "select first from skep.push_segments($1, $2, $3, $4, $5, $6, false)"


class Writers:
    """Sessions that store numbered messages; knows which of them were committed."""

    def __init__(self, url, *, count, messages, seconds, seed):
        self._url, self._count, self._messages = url, count, messages
        self._pause_s = seconds * count * PUSHED_ON_AVERAGE / messages
        self._chance = random.Random(seed)
        self._next = 0
        self.committed = []
        self.rolled_back = 0

    async def run(self):
        """Write until enough is committed."""
        await asyncio.gather(*(self._write() for _ in range(self._count)))

    async def _write(self):
        connection = await asyncpg.connect(self._url)
        try:
            while len(self.committed) < self._messages:
                await self._transaction(connection)
        finally:
            await connection.close()

    async def _transaction(self, connection):
        name = f"p{self._chance.randrange(round(self._count * PARTITIONS_PER_WRITER))}"
        (partition,) = await connection.fetchrow(_PROVISION, [QUEUE], [name])
        transaction = connection.transaction()
        await transaction.start()
        stored = []
        for _ in range(self._chance.randint(1, 3)):
            numbers = self._numbers(self._chance.randint(1, 2 * PUSHED_ON_AVERAGE))
            await connection.execute(_PUSH, *_segment(partition, numbers))
            stored += numbers
            await asyncio.sleep(self._chance.expovariate(1 / self._pause_s))
        if self._chance.random() < 0.2:
            await transaction.rollback()
            self.rolled_back += len(stored)
        else:
            await transaction.commit()
            self.committed += stored

    def _numbers(self, count):
        self._next += count
        return list(range(self._next - count, self._next))


def _segment(partition, numbers):
    envelopes = [build_envelope(f"tx-{number}", str(number).encode()) for number in numbers]
    keys = b"".join((number + 1).to_bytes(16) for number in numbers)
    body = b"[" + b",".join(envelopes) + b"]"
    return [partition], [len(numbers)], [2**60], [None], [keys], [body]


class Reader:
    """A streaming query, in a directory that is its checkpoint and its sink."""

    def __init__(self, url, directory):
        self._directory = Path(directory)
        options = {"url": url, "queue": QUEUE, "maxMessagesPerTrigger": "1000"}
        self._reader = SkepStreamReader({**options, "minPartitions": "3"}, SCHEMA)

    def run(self):
        """Read until the end of the input says that there will be no more."""
        while True:
            is_last = (self._directory / "over").exists()
            number = len(list(self._directory.glob("done-*")))
            plan = self._directory / f"plan-{number}"
            if not plan.exists() and not self._plan(plan, number):
                if is_last:
                    return
                continue
            start, end, _ = json.loads(plan.read_text())
            self._note(f"read-{number}-{os.getpid()}", self._read(start, end))
            self._note(f"done-{number}", [])
            self._reader.commit(end)

    def _plan(self, plan, number):
        """Note what the next micro-batch is; return whether there is anything."""
        before = self._directory / f"plan-{number - 1}"
        start = json.loads(before.read_text())[1] if number else self._reader.initialOffset()
        end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
        if end != start:
            self._note(plan.name, [start, end, os.getpid()])
        return end != start

    def _read(self, start, end):
        tasks = self._reader.partitions(start, end)
        found = [batch for task in tasks for batch in self._reader.read(task)]
        return sorted(int(text) for batch in found for text in batch["payload"].to_pylist())

    def _note(self, name, value):
        """Write a file that is there as a whole or not at all."""
        unfinished = self._directory / f"unfinished-{os.getpid()}"
        unfinished.write_text(json.dumps(value))
        unfinished.rename(self._directory / name)


async def run(url, directory, *, writers=100, messages=200_000, seconds=120.0, seed=1):
    """Let all of them work, for about so many seconds; return what came of it, in words."""
    directory = Path(directory)
    connection = await asyncpg.connect(url)
    await connection.fetch(_PROVISION, [QUEUE], ["p0"])
    await connection.close()
    crowd = Writers(url, count=writers, messages=messages, seconds=seconds, seed=seed)
    work = asyncio.create_task(crowd.run())
    chance = random.Random(seed)
    kills = 0
    while not work.done():
        with _reading(url, directory) as process:
            await _middle_of_a_batch(directory, chance, work, process)
            process.send_signal(signal.SIGKILL)
        kills += 1
    await work
    (directory / "over").touch()
    with _reading(url, directory) as process:
        if await asyncio.to_thread(process.wait) != 0:
            raise LedgerBroken("the last reader failed")
    batches, taken_over = check(directory, crowd.committed)
    return (
        f"{writers} writers, {len(crowd.committed):,} messages committed and "
        f"{crowd.rolled_back:,} rolled back, {kills} kills of the reader, {batches} micro-batches "
        f"of which {taken_over} were taken over: each message once"
    )


def _reading(url, directory):
    command = [sys.executable, "-m", "benchmarks.spark.late_commits", "--read", url]
    return subprocess.Popen([*command, str(directory)], stdin=subprocess.DEVNULL)


async def _middle_of_a_batch(directory, chance, work, process):
    """Wait until a reader has got on and noted its next micro-batch, and then for any moment."""
    enough = len(list(directory.glob("plan-*"))) + chance.randint(1, 4)
    while len(list(directory.glob("plan-*"))) < enough and not work.done():
        if process.poll() is not None:
            raise LedgerBroken(f"a reader ended with {process.returncode}")
        await asyncio.sleep(0.001)
    await asyncio.sleep(chance.uniform(0, 0.02))


def check(directory, committed):
    """Compare what was read with what was committed.

    Returns:
        How many micro-batches there were, and how many of them were read by another process than
        the one that had planned them.
    """
    by_batch = {}
    taken_over = set()
    for path in sorted(Path(directory).glob("read-*")):
        found = json.loads(path.read_text())
        _, number, reader = path.name.split("-")
        if by_batch.setdefault(number, found) != found:
            raise LedgerBroken(f"micro-batch {number} was read again, and was another one")
        planner = json.loads((path.parent / f"plan-{number}").read_text())[2]
        if int(reader) != planner:
            taken_over.add(number)
    read = Counter(number for found in by_batch.values() for number in found)
    if read != Counter(committed):
        missing, more = Counter(committed) - read, read - Counter(committed)
        raise LedgerBroken(f"{missing.total()} messages are missing, {more.total()} too many")
    return len(by_batch), len(taken_over)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, default=100)
    parser.add_argument("--messages", type=int, default=200_000, help="to be committed")
    parser.add_argument("--seconds", type=float, default=120.0, help="to write for, about")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--read", nargs=2, metavar=("URL", "DIRECTORY"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.read:
        Reader(*chosen.read).run()
        return
    with (
        tempfile.TemporaryDirectory() as home,
        tempfile.TemporaryDirectory() as kept,
        killable_database(Path(home), max_connections=str(chosen.writers + 50)) as (url, _),
    ):
        work = run(
            url,
            kept,
            writers=chosen.writers,
            messages=chosen.messages,
            seconds=chosen.seconds,
            seed=chosen.seed,
        )
        print(asyncio.run(work))


if __name__ == "__main__":
    main()
