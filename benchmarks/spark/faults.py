"""Kill things under jobs on Spark, and check every message by ledger.

`python -m benchmarks.spark.faults --kills 20` strikes so often in each way (see `spark.campaign`) a
pipeline queue -> window -> queue and table, and then an archive; executors are killed on a
standalone cluster of two workers. Messages are pushed all the while. At the end every message must
be in exactly one window, and every window there once; in the archive every message must be there
once, none in the live log, and no file without a reference. `--during archive-here` archives in the
driver itself, without Spark, whose start is most of what a strike takes.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import psycopg

from benchmarks.spark.archive_faults import ArchiveCampaign, ArchiveHereCampaign
from benchmarks.spark.campaign import Campaign
from benchmarks.spark.cluster import standalone_cluster
from benchmarks.spark.victims import Feed, Job, LedgerBroken, killable_database
from skep.spark.archive.lake import Lake
from skep.spark.archive.result_table import find_result_table

SOURCE, SINK, TABLE, NAME = "faults-in", "faults-out", "faults-table", "faults"
LOCAL = "local[2,4]"
WINDOW_S = 2

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
sink: {{queue: {SINK}, table: {TABLE}}}
trigger: {{every: 500ms}}
"""
_EPOCHS = """
  select coalesce(max((regexp_match(metadata_location, '/(\\d+)-[^/]*$'))[1]::bigint), -1)
  from skep_lake.iceberg_tables
"""


class PipelineCampaign(Campaign):
    """Strikes a pipeline queue -> window -> queue and table, when it commits to the queue."""

    PROGRESS = "select coalesce(max(epoch), -1) from skep.sink"
    COMMIT = "commit_sink"
    LOCKED = "skep.sink"

    def __init__(self, url, directory, *, master=LOCAL, **tools):
        definition = Path(directory) / "faults.yaml"
        definition.write_text(DEFINITION)
        command = [
            "skep",
            "pipeline",
            "run",
            str(definition),
            "--database-url",
            url,
            "--master",
            master,
        ]
        command += ["--checkpoint", str(Path(directory) / "checkpoint")]
        command += ["--warehouse", str(Path(directory) / "lake")]
        job = Job(directory, command, [], ["--available-now"])
        super().__init__(url, job, Feed(url, SOURCE), **tools)

    def hold(self, connection):
        connection.execute(f"lock table {self.LOCKED} in share mode")

    def before_the_end(self):
        self.feed.close_windows()

    def check(self):
        """Ask for every message; return what was found, in words."""
        return (
            f"{self.feed.count:,} messages in {check_ledger(self.url, self.feed.count):,} windows"
        )


class TableCampaign(PipelineCampaign):
    """The same, when it commits to the table."""

    PROGRESS = _EPOCHS
    COMMIT = "UPDATE iceberg_tables"
    LOCKED = "skep_lake.iceberg_tables"


CAMPAIGNS = {
    "pipeline": PipelineCampaign,
    "pipeline-table": TableCampaign,
    "archive": ArchiveCampaign,
    "archive-here": ArchiveHereCampaign,
}
DEFAULT_CAMPAIGNS = ("pipeline", "pipeline-table", "archive")


def check_ledger(url, count):
    """Compare the windows in the sinks with what was pushed; return how many there are."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "select p.name, convert_from(s.body, 'UTF8') from skep.segment s"
            " join skep.queue q on q.id = s.queue_id"
            " join skep.partition p on p.id = s.partition_id where q.name = %s",
            [SINK],
        ).fetchall()
    in_queue = [(partition, each["data"]) for partition, body in rows for each in json.loads(body)]
    with Lake(url, {}) as lake:
        found = find_result_table(lake, TABLE).scan().to_arrow().to_pylist()
    check_windows([(row["partition"], row) for row in found], count)
    return check_windows(in_queue, count)


def check_windows(windows, count):
    """Compare the windows in a sink with what was pushed; return how many there are."""
    starts = [(partition, data["window_start"]) for partition, data in windows]
    if len(starts) != len(set(starts)):
        raise LedgerBroken(f"{len(starts) - len(set(starts))} windows are there twice")
    found = sorted(number for _, data in windows for number in data["ids"])
    if found != list(range(count)):
        missing = len(set(range(count)) - set(found))
        raise LedgerBroken(f"{missing} of {count} messages are missing, {len(found)} were found")
    return len(windows)


def strike(during, kinds, chance, *, on_cluster, minutes):
    """Run one campaign on a database of its own, and tell what came of it."""
    began = time.monotonic()
    with ExitStack() as until_the_end:
        home = Path(until_the_end.enter_context(tempfile.TemporaryDirectory()))
        url, restart = until_the_end.enter_context(killable_database(home))
        tools = {"chance": chance, "restart_postgres": restart}
        if on_cluster:
            cluster = until_the_end.enter_context(standalone_cluster(home))
            tools |= {"cluster": cluster, "master": cluster.address}
        campaign = CAMPAIGNS[during](url, home, **tools)
        until_s = began + 60 * minutes
        campaign.run(kinds, lambda each: _tell(each, len(kinds), began), until_s=until_s)
        found = campaign.check()
    kills = ", ".join(f"{count} {kind}" for kind, count in sorted(campaign.done.items()))
    seconds = time.monotonic() - began
    print(
        f"{during}: killed {kills}; {campaign.starts} starts; {found}, each once; {seconds:.0f} s"
    )


def _tell(campaign, total, began):
    seconds = time.monotonic() - began
    line = f"{sum(campaign.done.values())} of {total} strikes, {campaign.starts} starts"
    print(f"{line}, {campaign.feed.count:,} messages, {seconds:.0f} s", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of each kind")
    kinds = (*Campaign.KINDS, "executor")
    parser.add_argument("--kind", choices=kinds, action="append", help="only these kinds")
    parser.add_argument("--during", choices=CAMPAIGNS, action="append", help="only this one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--minutes", type=float, default=10_000, help="strike no longer than this in a campaign"
    )
    chosen = parser.parse_args()
    # Ending a campaign ends its jobs and servers as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    for during in chosen.during or DEFAULT_CAMPAIGNS:
        for on_cluster in (False, True):
            known = (*CAMPAIGNS[during].KINDS, *CAMPAIGNS[during].CLUSTER_KINDS)
            wanted = [
                each
                for each in chosen.kind or known
                if each in known and (each == "executor") == on_cluster
            ]
            strikes = wanted * chosen.kills  # in turn, so that there is some of each at any time
            chance = random.Random(chosen.seed)
            if strikes:
                strike(during, strikes, chance, on_cluster=on_cluster, minutes=chosen.minutes)


if __name__ == "__main__":
    main()
