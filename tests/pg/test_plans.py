"""The cost of one call does not depend on how many lanes there are.

Plans are made when a session first needs them, from whatever the statistics say at that moment,
and kept. So the same calls are metered in sessions that made their plans at different moments.
"""

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

import pytest

from tests.pg.log import ALWAYS, Ack, Log, Poll, Vouch

LANES = 20_000
ROWS_MAX = 60
BLOCKS_MAX = 150
"""A call touches two lanes. Reading one index from end to end takes more than this."""

LEASE = UUID(int=7)


@dataclass(frozen=True)
class Cost:
    """What a call had to read: rows by scan or by index, and blocks of any kind."""

    rows: int
    blocks: int
    full_scans: int

    @property
    def is_small(self):
        return self.rows <= ROWS_MAX and self.blocks <= BLOCKS_MAX and not self.full_scans


class MeteredLog(Log):
    """A log whose calls return nothing, because they are only explained; the costs are kept."""

    cost = Cost(0, 0, 0)

    async def rows(self, query, *arguments):
        async with self.connection.transaction():
            before = await self._counters()
            explained = await self.connection.fetchval(
                f"explain (analyze, buffers, format json) {query}", *arguments
            )
            after = await self._counters()
        [plan] = json.loads(explained)
        blocks = sum(plan["Plan"][f"Shared {way} Blocks"] for way in ("Hit", "Read"))
        self.cost = Cost(after[0] - before[0], blocks, after[1] - before[1])
        return []

    async def _counters(self):
        """Return the rows read so far, in tables or indexes, and the sequential scans."""
        return await self.connection.fetchrow(
            """
            select sum(pg_stat_get_xact_tuples_returned(c.oid))
                     + sum(pg_stat_get_xact_tuples_fetched(c.oid)),
                   sum(pg_stat_get_xact_numscans(c.oid)) filter (where c.relkind = 'r')
            from pg_class c
            where c.relnamespace = 'skep'::regnamespace and c.relkind in ('r', 'i')
            """
        )


async def costs(log, group, lanes):
    """Return the cost of each call of the hot path."""
    a, b = lanes
    known = Vouch(1 << 60, ALWAYS)
    lots = {a: "p", b: "q"}
    acks = [Ack(a, 2, LEASE, group="bees"), Ack(b, 1, LEASE, group="bees")]
    nack = Ack(a, 1, LEASE, "failed", group="bees")
    calls = {
        "push": lambda: log.push_lots(lots, {a: known, b: known}),
        "push, probed": lambda: log.push_lots(lots, {a: Vouch(1, ALWAYS), b: known}),
        "pop": lambda: log.pop(group, Poll(lanes=2, lease_id=LEASE)),
        "pop, acknowledged at once": lambda: log.pop(group, Poll(lanes=2, auto_ack=True)),
        "pop of lanes by name": lambda: log.pop_partitions(
            group, Poll(partition_id=a), Poll(partition_id=b)
        ),
        "renew": lambda: log.rows("select * from skep.renew_leases($1, $2)", [LEASE], [600]),
        "release": lambda: log.rows(
            "select skep.release_claims($1, $2, $3)", [a, b], [group, group], [LEASE, LEASE]
        ),
        "ack": lambda: log.ack(*acks),
        "nack": lambda: log.ack(nack, acks[1]),
        "next of a group": lambda: next_available(log, group, 0),
        "next of a lane": lambda: next_available(log, group, a),
        "confirm": lambda: log.rows(
            "select * from skep.confirm_duplicates($1, $2, $3)", [a, b], [1, 1], [b"x", b"y"]
        ),
        "read keys": lambda: log.rows("select * from skep.read_keys($1, 10)", [a, b]),
    }
    found = {}
    for name, call in calls.items():
        async with rolled_back(log):
            if name in {"renew", "release", "ack", "nack"}:
                await log.pop_partitions(
                    group, *(Poll(partition_id=id_, lease_id=LEASE) for id_ in lanes)
                )
            await call()
            found[name] = log.cost
    return found


def next_available(log, group, partition):
    return log.rows("select * from skep.next_available($1, $2)", [group], [partition])


@asynccontextmanager
async def rolled_back(log):
    transaction = log.connection.transaction()
    await transaction.start()
    yield
    await transaction.rollback()


async def fill(log):
    """Create lanes with two messages each: a third are ready, a third leased, a third idle."""
    await log.execute(
        """
        insert into skep.partition (queue_id, name, head, pushed_at)
        select q.id, n::text, 2, skep.now()
        from skep.queue q, generate_series(1, %d) n where q.name = 'hive';

        insert into skep.segment (partition_id, first, last, queue_id, created_at, keys, body)
        select p.id, 1, 2, p.queue_id, skep.now(), decode(repeat(md5(p.name), 2), 'hex'), '[1,2]'
        from skep.partition p where p.name ~ '^[0-9]';

        insert into skep.cursor (
          partition_id, group_id, queue_id, acked, leased_from, leased, lease_id, available_at)
        select p.id, g.id, p.queue_id, (p.id %% 3 = 2)::int * 2, 0,
               case when p.id %% 3 = 1 then 2 end, gen_random_uuid(),
               case p.id %% 3 when 0 then skep.now() + p.id * interval '1 microsecond'
                              when 1 then skep.now() + interval '1 hour' end
        from skep.partition p join skep.consumer_group g using (queue_id)
        where p.name ~ '^[0-9]';
        """
        % LANES
    )


async def ready_lanes(log):
    rows = await log.connection.fetch(
        "select id from skep.partition where id % 3 = 0 order by id desc limit 2"
    )
    return sorted(row["id"] for row in rows)


PLANNED = (
    "with two lanes, never analyzed",
    "with two lanes, analyzed",
    "with all lanes, never analyzed",
    "with all lanes, analyzed",
)


@pytest.mark.slow
@pytest.mark.parametrize("planned", PLANNED)
async def test_a_call_reads_only_the_lanes_it_is_about(connect, planned):
    log = await MeteredLog.open(connect)
    group, first_lanes = await begin(Log(log.connection))
    if planned == "with two lanes, analyzed":
        await log.execute("vacuum analyze")
    if planned.startswith("with two lanes"):
        await costs(log, group, first_lanes)
    await fill(log)
    await log.set_clock(log.now.replace(minute=30))
    if planned == "with all lanes, analyzed":
        await log.execute("vacuum analyze")
    lanes = await ready_lanes(log)
    await costs(log, group, lanes)  # makes the plans, and fills the caches of the session

    found = await costs(log, group, lanes)
    print(found)

    assert {name: cost for name, cost in found.items() if not cost.is_small} == {}


async def begin(log):
    """Create a group and two lanes with messages, and keep PostgreSQL from analyzing later."""
    group = await log.subscribe("hive", "bees")
    lanes = await log.provision("hive", "first", "second")
    await log.push_lots(dict.fromkeys(lanes, "xy"))
    for table in ("partition", "segment", "cursor", "queue", "consumer_group"):
        await log.execute(f"alter table skep.{table} set (autovacuum_enabled = off)")
    return group, lanes
