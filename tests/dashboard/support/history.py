"""What workers reported in the past, written by the function that writes their reports."""

import json
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from skep.broker.stats.samples import LAG_COUNTERS, encode_sample, observe
from skep.telemetry.histograms import LAG_BOUNDS_MS
from skep.telemetry.meters import COUNTERS, QueueCounters

REGISTER = "select worker_id from skep.register_worker($1, 6632, $2, 1)"
RECORD = "select skep.record_metrics($1, $2, $3, $4, $5)"
GROUP_MINUTE = """
insert into skep.group_minute (group_id, at, backlog, lag_s)
select g.id, $3, $4, $5 from skep.consumer_group g join skep.queue q on q.id = g.queue_id
where q.name = $1 and g.name = $2
on conflict (group_id, at) do update set backlog = excluded.backlog, lag_s = excluded.lag_s
"""
SPREAD = ((0.6, 0.5), (0.3, 1), (0.08, 2), (0.02, 4))
"""Shares of messages, and by what their lag differs from the usual one."""


def minutes_ago(minutes):
    return datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=minutes)


@dataclass
class Activity:
    """What happened in a queue in a minute."""

    pushed: int = 0
    popped: int = 0
    lag_ms: int = 0
    failed: int = 0
    dead: int = 0
    parked: int = 0

    def row(self, queue):
        lags = [0] * (len(LAG_BOUNDS_MS) + 1)
        for share, factor in SPREAD:
            place = sum(bound < self.lag_ms * factor for bound in LAG_BOUNDS_MS)
            lags[place] += round(self.popped * share)
        counters = QueueCounters(
            push_requests=self.pushed,
            push_messages=self.pushed,
            push_bytes=200 * self.pushed,
            pop_requests=self.popped // 10,
            pop_messages=self.popped,
            pop_bytes=200 * self.popped,
            redelivered=self.failed,
            ack_requests=self.popped // 10,
            ack_success=self.popped - self.failed,
            ack_failed=self.failed,
            dead_letters=self.dead,
            lag_ms_sum=self.popped * self.lag_ms,
        )
        lag_ms_max = max(factor for _, factor in SPREAD) * self.lag_ms
        return {"queue": queue, **asdict(counters), "lag_ms_max": lag_ms_max, "lag_counts": lags}


class Worker:
    """A worker that reports as those of a broker do."""

    def __init__(self, sql, worker_id):
        self._sql = sql
        self._id = worker_id

    @classmethod
    async def register(cls, sql, hostname, number):
        return cls(sql, await sql.fetchval(REGISTER, hostname, number))

    async def report(self, ago, activities, gauges):
        """Report a minute: what happened by queue, and values that were seen."""
        rows = [activity.row(queue) for queue, activity in activities.items()]
        counters = Counter()
        for row in rows:
            counters.update({name: row[name] for name in COUNTERS})
            counters.update(dict(zip(LAG_COUNTERS, row["lag_counts"], strict=True)))
        seen = {**gauges, "lag_ms_max": [row["lag_ms_max"] for row in rows]}
        parked = {queue: each.parked for queue, each in activities.items() if each.parked}
        sample = encode_sample(observe(counters, seen)).decode()
        spelled = (sample, json.dumps(rows), json.dumps(parked))
        await self._sql.execute(RECORD, self._id, minutes_ago(ago), *spelled)


async def group_lag(sql, queue, group, lags):
    """Say how far behind a group was, in messages and seconds by how many minutes ago."""
    await sql.executemany(
        GROUP_MINUTE, [(queue, group, minutes_ago(ago), *lag) for ago, lag in lags.items()]
    )
