"""Staged messages as a test sees them: the SQL functions with Python arguments."""

from typing import NamedTuple

from tests.sql.support.log import NOTHING, body_of, envelope, keys_of

ANY_SIZE = 1 << 40


class Read(NamedTuple):
    snapshot: str
    read_at: object
    commit_number: int | None
    id: int | None
    queue: str | None
    partition: str | None
    transaction_id: str | None
    payload: str | None
    headers: str | None
    trace_id: object
    deliver_at: object
    ttl_s: float | None


class Sequenced(NamedTuple):
    partition: int
    partition_id: int
    first: int | None
    created_at: object
    duplicate_index: list[int] | None
    duplicate_offset: list[int] | None
    gap_first: int | None
    gap_keys: bytes | None
    gap_created_at: object


async def stage(log, *names, queue="hive", partition="a", payload="{}", at=None):
    """Stage messages in one call; their transaction ids are their names."""
    count = len(names)
    return await log.value(
        "select skep.stage_messages($1, $2, $3, $4, $5, $6, $7, $8)",
        [queue] * count,
        [partition] * count,
        [payload] * count,
        list(names),
        [None] * count,
        [None] * count,
        [at] * count,
        [None] * count,
    )


async def staged(log):
    """Return the names of the messages that are staged and committed."""
    return [row[0] for row in await log.rows("select transaction_id from skep.staged order by id")]


async def staged_ids(log):
    return [row[0] for row in await log.rows("select id from skep.staged order by id")]


async def transactions(log):
    """Return how many transactions are on record."""
    return await log.value("select count(*) from skep.staged_transaction")


async def read(log, floor=0, seen=None, limit=1000, size=ANY_SIZE):
    """Return what is to be moved next."""
    rows = await log.rows(
        "select * from skep.read_staged($1, $2::text::pg_snapshot, $3, $4)",
        floor,
        seen,
        limit,
        size,
    )
    return [Read(*row) for row in rows]


def names(rows):
    return [row.transaction_id for row in rows]


async def sequence(log, ids, writes, *, dropped=(), versions=None, guarantee=NOTHING):
    """Move staged messages into partitions: `writes` are the names of messages by partition id.

    The ids are those of the messages, partition by partition, and then of those to drop. Returns
    what became of the partitions, or None when the messages were somebody else's.
    """
    partitions = sorted(writes)
    if versions is None:
        versions = await log.versions(partitions)
    numbers = [number for number, partition in enumerate(partitions, 1) for _ in writes[partition]]
    pairs = sorted(zip([*ids, *dropped], [*numbers, *[None] * len(dropped)], strict=True))
    rows = await log.rows(
        "select * from skep.sequence_staged($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        [id_ for id_, _ in pairs],
        [number for _, number in pairs],
        list(versions),
        list(versions.values()),
        partitions,
        [len(writes[partition]) for partition in partitions],
        [guarantee.to] * len(partitions),
        [guarantee.since] * len(partitions),
        [keys_of(writes[partition]) for partition in partitions],
        [body_of(map(envelope, writes[partition])) for partition in partitions],
    )
    if not rows:
        return None
    assert rows[0]["partition"] == 0
    return sorted((Sequenced(*row) for row in rows[1:]), key=lambda row: row.partition)


async def push(log, *items):
    """Push by SQL: items are (queue, partition, payload, transaction id); return the ids."""
    queues, partitions, payloads, ids = (list(column) for column in zip(*items, strict=True))
    none = [None] * len(items)
    return await log.value(
        "select skep.push_messages($1, $2, $3, $4, $5, $6, $7)",
        queues,
        partitions,
        payloads,
        ids,
        none,
        none,
        none,
    )


async def stored(log, queue="hive"):
    """Return (partition, offset, transaction id) of the messages of a queue, in order."""
    rows = await log.rows(
        'select partition, "offset", transaction_id from skep.message'
        ' where queue = $1 order by partition, "offset"',
        queue,
    )
    return [tuple(row) for row in rows]
