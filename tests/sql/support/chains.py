"""Job chains as a test sees them: the SQL functions with Python arguments, and what they answer.

A `Chains` is one session whose clock stands still until the test moves it. Every argument of a
function that a test does not care about has a default here.
"""

import json
from datetime import timedelta
from uuid import UUID

from skep.jobs.identifiers import new_id
from tests.sql.support.log import NOON

TABLES = (
    "job_type, chain, job, open_job, blocker, job_attempt, job_progress, chain_key, job_worker, "
    "job_schedule"
)
STATE = """
select skep.job_state(j.state, o.open_blockers, o.worker_id, o.due_at, skep.now())
from skep.job j left join skep.open_job o on o.job_id = j.id where j.id = $1
"""
STRANDED = """
select o.job_id from skep.open_job o
where o.open_blockers <> (
  select count(*) from skep.blocker b join skep.chain c on c.id = b.chain_id
  where b.job_id = o.job_id and skep.job_awaits(c.state, b.on_failure))
"""
"""Jobs whose count of open blockers is wrong; among them any that waits for nothing."""


class Chains:
    def __init__(self, connection):
        self.connection = connection
        self.now = NOON

    @classmethod
    async def open(cls, connection):
        chains = cls(connection)
        await chains.advance(0)
        return chains

    async def clear(self):
        await self.connection.execute(
            f"truncate {', '.join('skep.' + name for name in TABLES.split(', '))}"
        )

    async def advance(self, seconds=0.0, *, to=None):
        self.now = to or self.now + timedelta(seconds=seconds)
        await self.connection.execute(f"set skep.fake_now = '{self.now.isoformat()}'")

    async def rows(self, query, *arguments):
        return await self.connection.fetch(query, *arguments)

    async def value(self, query, *arguments):
        return await self.connection.fetchval(query, *arguments)

    async def type_ids(self, *names):
        rows = await self.rows("select id, name from skep.job_type_ensure($1)", list(names))
        by_name = {row["name"]: row["id"] for row in rows}
        return [by_name[name] for name in names]

    async def start_all(self, *items, notify=False):
        """Start chains, each given as keyword arguments; return rows of chain_start."""
        blocked = [
            (number, blocker, item.get("on_failure", "wait"))
            for number, item in enumerate(items, start=1)
            for blocker in item.get("blockers", ())
        ]

        def column(name, default=None):
            return [item.get(name, default) for item in items]

        return await self.rows(
            "select * from skep.chain_start($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,"
            " $13, $14, $15, $16, $17, $18::text[], $19)",
            [item.get("id") or new_id() for item in items],
            column("type", "work"),
            [json.dumps(item.get("input")) for item in items],
            column("priority", 0),
            column("due_at"),
            column("delay_s"),
            column("max_attempts", 3),
            column("limit_key"),
            column("deadline_s"),
            column("parent"),
            column("trace"),
            column("key"),
            column("any", False),
            column("window_s"),
            column("instead_of"),
            [each[0] for each in blocked],
            [each[1] for each in blocked],
            [each[2] for each in blocked],
            notify,
        )

    async def start(self, name="work", **item):
        """Start one chain and return its id."""
        ((_, chain_id, outcome),) = await self.start_all({"type": name, **item})
        assert outcome == "started"
        return chain_id

    async def enroll(self, lease_s=30):
        worker_id = new_id()
        await self.value("select skep.job_worker_enroll($1, 'test', $2)", worker_id, lease_s)
        return worker_id

    async def claim_rows(self, worker_id, *types, limit=10):
        ids = await self.type_ids(*(types or ("work",)))
        return await self.rows("select * from skep.job_claim($1, $2, $3)", worker_id, ids, limit)

    async def claim(self, worker_id, *types, limit=10):
        """Claim, and return the rows of jobs alone."""
        rows = await self.claim_rows(worker_id, *types, limit=limit)
        return [row for row in rows if row["job_id"] is not None]

    async def settle_all(self, worker_id, *items, wait=True):
        """Settle jobs, each given as keyword arguments; return rows of job_settle."""
        blocked = [
            (number, blocker, item.get("on_failure", "wait"))
            for number, item in enumerate(items, start=1)
            for blocker in item.get("blockers", ())
        ]

        def column(name, default=None):
            return [item.get(name, default) for item in items]

        return await self.rows(
            "select * from skep.job_settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,"
            " $13, $14, $15, $16, $17, $18::text[], $19)",
            worker_id,
            column("job_id"),
            column("attempt", 1),
            column("outcome", "completed"),
            [json.dumps(item.get("output")) for item in items],
            column("error"),
            column("delay_s"),
            column("due_at"),
            [
                item.get("next_id") or (new_id() if item.get("next_type") else None)
                for item in items
            ],
            column("next_type"),
            [json.dumps(item.get("next_input")) for item in items],
            column("next_priority", 0),
            column("next_max_attempts", 3),
            column("next_limit_key"),
            column("next_trace"),
            [each[0] for each in blocked],
            [each[1] for each in blocked],
            [each[2] for each in blocked],
            wait,
        )

    async def settle(self, worker_id, job_id, outcome="completed", *, attempt=1, **item):
        """Settle one job; return what became of it."""
        item = {"job_id": job_id, "outcome": outcome, "attempt": attempt, **item}
        (row,) = await self.settle_all(worker_id, item)
        return row["outcome"]

    async def run(self, worker_id, *types, outcome="completed", **item):
        """Claim everything there is and settle it; return the ids of the jobs."""
        jobs = await self.claim(worker_id, *types, limit=1000)
        if jobs:
            items = [
                {"job_id": job["job_id"], "attempt": job["attempt"], "outcome": outcome, **item}
                for job in jobs
            ]
            await self.settle_all(worker_id, *items)
        return [job["job_id"] for job in jobs]

    async def go_on(self, worker_id, job_id, next_type="work", *, attempt=1, **item):
        """Continue a chain; return the id of its next job."""
        next_id = new_id()
        outcome = await self.settle(
            worker_id,
            job_id,
            "continued",
            attempt=attempt,
            next_id=next_id,
            next_type=next_type,
            **item,
        )
        assert outcome == "settled"
        return next_id

    async def state(self, job_id: UUID):
        return await self.value(STATE, job_id)

    async def chain_state(self, chain_id: UUID):
        return await self.value("select state from skep.chain where id = $1", chain_id)

    async def last_job(self, chain_id: UUID):
        return await self.value("select last_job_id from skep.chain where id = $1", chain_id)

    async def stranded(self):
        return [row[0] for row in await self.rows(STRANDED)]
