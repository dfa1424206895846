"""Scheduled messages as a test sees them: the SQL functions with Python arguments."""

from typing import NamedTuple

from tests.sql.support.log import envelope, key_of

ANY_NUMBER = 1_000_000


class Scheduled(NamedTuple):
    item: int
    outcome: str
    scheduled_id: int | None
    deliver_at: object
    seconds: float | None
    partition_id: int | None
    message_offset: int | None


class Sequenced(NamedTuple):
    queue_id: list[int] | None
    partitions: list[int] | None
    moved: int
    is_busy: bool
    next_s: float | None


async def queue_id_of(log, queue="hive"):
    return await log.value("select skep.ensure_queue($1)", queue)


async def schedule(
    log,
    *names,
    delay_s=60.0,
    at=None,
    partition="a",
    queue="hive",
    most=ANY_NUMBER,
    resolve=False,
    nonces=None,
):
    """Schedule messages named by their transaction ids; return the answers in their order."""
    queue_id = await queue_id_of(log, queue)
    found = await log.rows(
        "select * from skep.schedule_messages($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        [queue_id] * len(names),
        [partition] * len(names),
        [key_of(name) for name in names],
        list(names),
        [envelope(name).encode() for name in names],
        [at] * len(names),
        [delay_s] * len(names),
        most,
        resolve,
        nonces,
    )
    return sorted(Scheduled(*row) for row in found)


async def sequence(log, limit=1000, size=1 << 23):
    return Sequenced(*await log.row("select * from skep.sequence_due($1, $2)", limit, size))


async def waiting(log):
    """Return the names of the messages that wait, in the order of their times."""
    rows = await log.rows("select transaction_id from skep.scheduled order by deliver_at, id")
    return [row[0] for row in rows]


async def stored(log, partition="a"):
    """Return the names of the messages in a partition, in order."""
    rows = await log.rows(
        'select transaction_id from skep.message where partition = $1 order by "offset"', partition
    )
    return [row[0] for row in rows]
