"""Pipelines and an archive as those who run them leave them on record, without Spark."""

import json
from datetime import UTC, datetime, timedelta

BEGIN = (
    "select run_id from skep.begin_pipeline($1, $2, 'h', '/data/pipelines', 'host:7', 'local[*]',"
    " false)"
)
REPORT = "select * from skep.report_pipeline($1, $2, $3, $4, $5, 812.5, 1200, 3, $6, $7)"
STILL_THERE = """
update skep.pipeline set seen_at = now() + interval '2 minutes' where run_id = $1
"""
ARCHIVE = """
insert into skep.archive (queue_id, system, upto, messages, archived_at)
select id, skep.system_identity(), pg_current_xact_id(), 120, now() from skep.queue where name = $1
"""


def batches(number):
    began = datetime.now(UTC) - timedelta(seconds=number)
    return [
        {
            "sink": "queue",
            "number": n,
            "startedAt": (began + timedelta(seconds=n)).isoformat(),
            "rows": 300 + 40 * (n % 7),
            "durationMs": 180 + 35 * (n % 5),
        }
        for n in range(number)
    ]


async def run_pipeline(broker, name, *, state="running", error=None, number=24):
    """Put a pipeline on record as one that runs, or did."""
    definition = {
        "name": name,
        "sources": {"orders": {"queue": "orders", "schema": "total double, at timestamp"}},
        "sql": "select window(at, '1 minute'), sum(total) as revenue from orders group by 1",
        "sinks": {"queue": {"queue": "revenue"}},
    }
    position = {"queue": [{"orders": "112:112:"}]}
    recent = batches(number)
    rows = sum(batch["rows"] for batch in recent)
    async with broker.sql() as sql:
        run_id = await sql.fetchval(BEGIN, name, json.dumps(definition))
        spelled = (json.dumps(position), number, rows, error, json.dumps(recent))
        await sql.fetch(REPORT, run_id, state, *spelled)
        # It counts as alive for as long as a test may look at it.
        await sql.execute(STILL_THERE, run_id)


async def archive(broker, client, queue):
    """Give a queue an archive that holds what it has stored so far."""
    await client.configure(queue, archiveAfterSeconds=60)
    async with broker.sql() as sql:
        await sql.execute(
            "update skep.queue set created_at = now() - interval '3 days' where name = $1", queue
        )
        await sql.execute(ARCHIVE, queue)
