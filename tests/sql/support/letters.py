"""Dead letters as a test makes and finds them."""

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from tests.sql.support.log import QUEUE_MODE, Log, envelope, key_of


class Filter(NamedTuple):
    """What to ask for, in the order of the functions."""

    queue: str | None = None
    group: str | None = None
    partition: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    error: str | None = None
    ids: list[int] | None = None


class Redriven(NamedTuple):
    letter_id: int
    result: str
    queue_id: int | None
    partition_id: int | None
    message_offset: int | None


async def bury(
    log: Log,
    *names: str,
    queue: str = "hive",
    partition: str = "a",
    group: str = QUEUE_MODE,
    error: str = "stung",
) -> list[int]:
    """Push messages and let them die; return the ids of their letters."""
    [partition_id] = await log.provision(queue, partition)
    group_id = await log.subscribe(queue, group)
    pushed = await log.push(partition_id, *names)
    assert pushed.first is not None
    ids: list[int] = []
    for offset in range(pushed.first, pushed.first + len(names)):
        await log.execute(
            "select skep.bury_messages($1, $2, array[$3::bigint], array[$4], '{4}', skep.now())",
            partition_id,
            group_id,
            offset,
            error,
        )
        ids.append(await log.value("select max(id) from skep.dead_letter"))
    return ids


async def redrive(
    log: Log,
    letters: dict[int, int],
    *,
    job: UUID | None = None,
    owner: UUID | None = None,
    position: int | None = None,
    for_all: bool = True,
) -> dict[int, Redriven]:
    """Redrive letters, each to a partition; return what became of them, by their ids."""
    names = [f"dlq:{letter}" for letter in letters]
    rows = await log.rows(
        "select * from skep.redrive_letters($1, $2, $3, $4, $5, $6, $7, $8)",
        list(letters),
        list(letters.values()),
        [key_of(name) for name in names],
        [envelope(name).encode() for name in names],
        job,
        owner,
        position,
        for_all,
    )
    return {row[0]: Redriven(*row) for row in rows}


async def letter_ids(log: Log) -> list[int]:
    return [letter["id"] for letter in await log.dead_letters()]


async def transaction_ids(log: Log, partition_id: int) -> list[Any]:
    """What a partition holds, in order."""
    rows = await log.rows(
        'select transaction_id from skep.message where partition_id = $1 order by "offset"',
        partition_id,
    )
    return [row[0] for row in rows]
