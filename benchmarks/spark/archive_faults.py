"""The campaign against `skep archive run`: everything is archived once, and leaves the log."""

import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psycopg

from benchmarks.spark.campaign import Campaign
from benchmarks.spark.victims import Feed, Job, LedgerBroken
from skep.spark.archive.archiver import ArchivePlan, Archiver
from skep.spark.archive.lake import Lake

QUEUE = "faults-old"
AGE_S = 1
_READ_ALL = f"""
  update skep.queue set archive_after_s = {AGE_S}, dedup_window_s = 0
  where name = '{QUEUE}' and archive_after_s is distinct from {AGE_S};
  update skep.consumer_group g set first_polled_at = now()
  from skep.queue q where q.id = g.queue_id and q.name = '{QUEUE}' and g.first_polled_at is null;
  insert into skep.cursor (partition_id, group_id, queue_id, acked)
  select p.id, g.id, q.id, p.head from skep.queue q
  join skep.partition p on p.queue_id = q.id
  join skep.consumer_group g on g.queue_id = q.id
  where q.name = '{QUEUE}' on conflict (partition_id, group_id) do update set acked = excluded.acked
"""
_IS_OPEN = "select exists (select from skep.archive_run)"


class ArchiveCampaign(Campaign):
    """Strikes the archive of a queue whose messages are old after a second, and read at once."""

    PROGRESS = "select coalesce(max(upto::text::bigint), 0) from skep.archive"
    COMMIT = "finish_archive"
    # What a compaction leaves when it is killed goes with the next one, which there may not be.
    FOREVER = ("--every", "1", "--compact-every", "0")

    def __init__(self, url, directory, *, master="local[2,4]", **tools):
        lake = str(Path(directory) / "lake")
        job = Job(directory, *self.command(url, lake, master))
        super().__init__(url, job, Feed(url, QUEUE, also=_READ_ALL), **tools)

    def command(self, url, lake, master):
        """Return how to archive: the command, its flags for ever, and those for one time."""
        command = ["skep", "archive", "run", "--database-url", url, "--warehouse", lake]
        return [*command, "--master", master, "--queue", QUEUE], self.FOREVER, ["--once"]

    def await_a_moment(self):
        """Wait until a run is under way, and for any moment of it."""
        while self.job.is_running() and not self._is_open():
            time.sleep(0.01)
        time.sleep(self.chance.uniform(0, 0.6))

    def hold(self, connection):
        """Lock the watermark while a run is under way: to plan one, it is needed as well."""
        while True:
            connection.execute("select from skep.archive for update")
            if connection.execute(_IS_OPEN).fetchone()[0]:
                return
            connection.rollback()
            if not self.job.is_running():
                self.job.start()
                self.starts += 1
            time.sleep(0.01)

    def before_the_end(self):
        time.sleep(AGE_S + 1)  # so that the last message is old as well

    def check(self):
        """Ask for every message; return what was found, in words."""
        with psycopg.connect(self.url) as connection:
            live = connection.execute("select count(*) from skep.segment").fetchone()[0]
        with Lake(self.url, {}) as lake:
            found = lake.table().scan(selected_fields=("transaction_id",)).to_arrow()
            files = len(lake.files())
            # What describes the table may be of a program that is about to commit it, for days.
            left = [each for each in lake.unreferenced() if "/metadata/" not in each]
        check_archive(found["transaction_id"].to_pylist(), self.feed.count)
        if live or left:
            raise LedgerBroken(
                f"{live} segments are left in the log, and files that no snapshot knows: {left}"
            )
        return f"{self.feed.count:,} messages in {files:,} files"

    def _is_open(self):
        with suppress(psycopg.Error), psycopg.connect(self.url) as connection:
            return connection.execute(_IS_OPEN).fetchone()[0]
        return False


class ArchiveHereCampaign(ArchiveCampaign):
    """The same without Spark: the driver copies."""

    KINDS = ("driver", "staged", "commit", "postgres")
    CLUSTER_KINDS = ()

    def command(self, url, lake, _master):
        return ["benchmarks.spark.archive_faults", url, lake], ["for-ever"], ["once"]


def run_here(tasks, work, on_progress):
    """Run tasks one after the other, in this process."""
    results = []
    for task in tasks:
        results.append(work(task))
        on_progress(results[-1].messages, results[-1].bytes)
    return results


def archive_here(url, warehouse, how_long):
    """Archive in this process, again and again, a second apart."""
    plan = ArchivePlan(url=url, warehouse=warehouse, queues=(QUEUE,), messages_per_task=100)
    with Lake(url, {}) as lake:
        archiver = Archiver(lake, plan, run_here)
        archiver.archive()
        while how_long == "for-ever":
            time.sleep(1)
            archiver.archive()


def check_archive(found, count):
    """Compare the transaction ids in an archive with what was pushed."""
    times = Counter(found)
    expected = {f"tx-{number}" for number in range(count)}
    if missing := expected - times.keys():
        raise LedgerBroken(f"{len(missing)} of {count} messages are missing")
    if wrong := [name for name, count in times.items() if count > 1 or name not in expected]:
        raise LedgerBroken(f"{len(wrong)} messages are there twice or were never pushed")


if __name__ == "__main__":
    archive_here(*sys.argv[1:])
