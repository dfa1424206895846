"""The cost of one call does not depend on how many partitions there are.

PostgreSQL plans a statement when a session first runs it, from what it knows of the tables at that
moment, and keeps the plan. So the calls are metered in sessions that made their plans at different
moments, the worst being the first minute of a new installation that then grows in a burst.
"""

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest

from tests.sql.support.log import ALWAYS, Ack, Guarantee, Log, Poll

PARTITIONS = 20_000

# A call about two partitions reads up to 35 rows in 60 blocks. To read the smallest index from end
# to end takes 55 blocks more, even if no row in it qualifies.
ROWS_MAX = 50
BLOCKS_MAX = 80

KNOWN = Guarantee(1 << 60, ALWAYS)


@dataclass(frozen=True)
class Cost:
    """What a call had to read."""

    rows: int
    blocks: int
    full_scans: int

    @property
    def is_small(self):
        return self.rows <= ROWS_MAX and self.blocks <= BLOCKS_MAX and not self.full_scans


class MeteredLog(Log):
    """A log whose calls answer nothing, because they are explained, and leave their cost behind."""

    cost = Cost(0, 0, 0)
    lease = UUID(int=0)

    async def rows(self, query, *arguments):
        async with self.connection.transaction():
            before = await self._counters()
            explained = await self.connection.fetchval(
                f"explain (analyze, buffers, format json) {query}", *arguments
            )
            after = await self._counters()
        [plan] = json.loads(explained)
        blocks = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
        self.cost = Cost(after[0] - before[0], blocks, after[1] - before[1])
        return []

    async def _counters(self):
        """Return the rows this session has read in tables and indexes, and its table scans."""
        row = await self.connection.fetchrow(
            """
            select sum(pg_stat_get_xact_tuples_returned(c.oid)
                       + pg_stat_get_xact_tuples_fetched(c.oid)),
                   sum(pg_stat_get_xact_numscans(c.oid)) filter (where c.relkind = 'r')
            from pg_class c
            where c.relnamespace = 'skep'::regnamespace and c.relkind in ('r', 'i')
            """
        )
        return [int(count) for count in row]


def calls_on_ready_partitions(log, group, a, b):
    writes = {a: "p", b: "q"}
    waiting = {a: (group, Poll()), b: (group, Poll())}
    keys = [b"x" * 16, b"y" * 16]
    return {
        "push": lambda: log.push_writes(writes, {a: KNOWN, b: KNOWN}),
        "push, guaranteed": lambda: log.push_guaranteed(writes, {a: None, b: None}),
        "push, handed over": lambda: log.hand_over(writes, {a: None, b: None}, waiting),
        "push, to a poll": lambda: log.hand_over({a: writes[a]}, {a: None}, {a: waiting[a]}),
        "push, contested": lambda: log.push_contested(writes, {a: 1, b: 1}),
        "push, probed": lambda: log.push_writes(writes, {a: Guarantee(1, ALWAYS), b: KNOWN}),
        "pop": lambda: log.pop(group, Poll(partitions=2)),
        "pop, acknowledged at once": lambda: log.pop(group, Poll(partitions=2, auto_ack=True)),
        "pop, planned partition by partition": lambda: pop_by_rules(log, group),
        "pop by name": lambda: log.pop_partitions(
            group, Poll(partition_id=a), Poll(partition_id=b)
        ),
        "undo, acknowledged at once": lambda: undo_acknowledged_at_once(log, group),
        "fetch by offset": lambda: by_names(
            log,
            "fetch_segments('{{1,1}}', {}, {}, '{{1,2}}', '{{999,999}}', '{{999}}')",
            a,
            b,
        ),
        "find an offset by time": lambda: by_names(
            log, "offsets_at({}, {}, array[skep.now(), skep.now() - interval '1 day'])", a, b
        ),
        "list what has changed": lambda: log.rows(
            "select * from skep.changed_partitions('{hive}', array[skep.now() - interval '1 day'],"
            " (select array[q.id] from skep.queue q where q.name = 'hive'), $1, '{2}', 10)",
            [a],
        ),
        "next of a group": lambda: next_available(log, group, 0),
        "next of a partition": lambda: next_available(log, group, a),
        "confirm": lambda: log.rows(
            "select * from skep.confirm_duplicates($1, $2, $3)", [a, b], [1, 1], keys
        ),
        "read window": lambda: log.rows(
            "select * from skep.read_window($1, $2, $3, 10)", [a, b], [0, 0], [None, None]
        ),
    }


def by_names(log, call, a, b):
    """Call a function about two partitions of the queue by their names."""
    names = (
        "(select array_agg(p.name order by i.id) from unnest($1::bigint[]) i(id) cross join lateral"
        " (select p.name from skep.partition p where p.id = i.id offset 0) p)"
    )
    return log.rows("select * from skep." + call.format("'{hive,hive}'", names), [a, b])


async def pop_by_rules(log, group):
    await log.set_options("hive", delayed_processing_s=1, max_deliveries=3)
    await log.pop(group, Poll(partitions=2))


def next_available(log, group, partition):
    return log.rows("select * from skep.next_available($1, $2)", [group], [partition])


async def ack_one_by_one(log, *acks):
    await log.set_options("hive", ack_mode="individual")
    await log.ack(*acks)


def calls_on_leased_partitions(log, group, a, b):
    def ack(partition, offset, status="completed"):
        return Ack(partition, offset, log.lease, status, group="bees")

    return {
        "ack": lambda: log.ack(ack(a, 2), ack(b, 1)),
        "nack": lambda: log.ack(ack(a, 1, "failed"), ack(b, 1)),
        "ack, one by one": lambda: ack_one_by_one(log, ack(a, 2), ack(b, 1)),
        "ack by key": lambda: log.ack(ack(a, None), ack(b, 1)),
        "renew": lambda: log.rows("select * from skep.renew_leases($1, $2)", [log.lease], [600]),
        "release": lambda: log.rows(
            "select skep.release_claims($1, $2, $3)", [a, b], [group] * 2, [log.lease] * 2
        ),
        "undo": lambda: undo(log, group, log.lease),
        "undo, of any group": lambda: undo(log, None, log.lease),
        "undo, claimed nothing": lambda: undo(log, group, UUID(int=8)),
    }


def undo(log, group, lease):
    return log.rows("select skep.undo_claims($1, $2)", group, [lease])


async def undo_acknowledged_at_once(log, group):
    await log.pop(group, Poll(partitions=2, auto_ack=True, lease_id=log.lease))
    await undo(log, group, log.lease)


async def costs(log, group, partitions):
    """Return the cost of each call of the hot path; the log stays as it is."""
    found = {}
    for name, call in calls_on_ready_partitions(log, group, *partitions).items():
        async with rolled_back(log):
            await call()
            found[name] = log.cost
    for name, call in calls_on_leased_partitions(log, group, *partitions).items():
        async with rolled_back(log):
            polls = [Poll(partition_id=partition, lease_id=log.lease) for partition in partitions]
            await log.pop_partitions(group, *polls)
            await call()
            found[name] = log.cost
    return found


@asynccontextmanager
async def rolled_back(log):
    """Undo what is called, with a lease of its own.

    What is undone leaves dead rows. Under one lease, the last call would read those of all others.
    """
    log.lease = uuid4()
    transaction = log.connection.transaction()
    await transaction.start()
    yield
    await transaction.rollback()


async def begin(log):
    """Create a group and two partitions with messages, and switch off automatic analyze."""
    group = await log.subscribe("hive", "bees")
    partitions = await log.provision("hive", "first", "second")
    await log.push_writes(dict.fromkeys(partitions, "xy"))
    for table in ("partition", "segment", "cursor", "queue", "consumer_group"):
        await log.execute(f"alter table skep.{table} set (autovacuum_enabled = off)")
    return group, partitions


async def grow(log):
    """Add partitions with two messages each: a third are ready, a third leased, a third idle.

    Return two that are ready.
    """
    await log.execute(
        """
        insert into skep.partition (queue_id, name, head, pushed_at)
        select q.id, n::text, 2, skep.now() from skep.queue q, generate_series(1, $1) n
        """,
        PARTITIONS,
    )
    await log.execute(
        """
        insert into skep.segment (partition_id, first, last, queue_id, created_at, keys, body)
        select p.id, 1, 2, p.queue_id, skep.now(), decode(repeat(md5(p.name), 2), 'hex'), '[1,2]'
        from skep.partition p where p.name ~ '^[0-9]'
        """
    )
    await log.execute(
        """
        insert into skep.cursor (
          partition_id, group_id, queue_id, acked, leased_from, leased, lease_id, available_at)
        select p.id, g.id, p.queue_id, case p.id % 3 when 2 then 2 else 0 end, 0,
               case p.id % 3 when 1 then 2 end, gen_random_uuid(),
               case p.id % 3 when 0 then skep.now() + p.id * interval '1 microsecond'
                             when 1 then skep.now() + interval '1 hour' end
        from skep.partition p join skep.consumer_group g using (queue_id)
        where p.name ~ '^[0-9]'
        """
    )
    rows = await log.connection.fetch(
        "select id from skep.partition where id % 3 = 0 order by id desc limit 2"
    )
    return [row["id"] for row in rows]


PLANNED = (
    "with two partitions, never analyzed",
    "with two partitions, analyzed",
    "with all partitions, never analyzed",
    "with all partitions, analyzed",
)


@pytest.mark.slow
@pytest.mark.parametrize("planned", PLANNED)
async def test_a_call_reads_only_the_partitions_it_is_about(connect, planned):
    log = await MeteredLog.open(connect)
    group, first_partitions = await begin(Log(log.connection))
    if planned == "with two partitions, analyzed":
        await log.execute("vacuum analyze")
    if planned.startswith("with two partitions"):
        await costs(log, group, first_partitions)
    partitions = await grow(log)
    await log.advance(1800)
    if planned == "with all partitions, analyzed":
        await log.execute("vacuum analyze")
    await costs(
        log, group, partitions
    )  # what is planned by now stays, and the session's caches fill

    found = await costs(log, group, partitions)

    assert {name: cost for name, cost in found.items() if not cost.is_small} == {}


async def test_the_meter_notices_when_all_partitions_are_read(connect):
    log = await MeteredLog.open(connect)
    group, _ = await begin(Log(log.connection))
    await grow(log)

    await log.rows("select from skep.cursor where group_id = $1 and leased_from = 7", group)

    assert not log.cost.is_small
