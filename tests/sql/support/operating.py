"""Operations as a test sees them: the SQL functions with Python arguments.

An operation is a push of messages named by their transaction ids, or some acks of a partition.
`settled` checks what must always hold between the tables.
"""

import json
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from tests.sql.support.log import envelope, key_of

PUSH, ACK = "push", "ack_batch"
PRIORITY = {PUSH: 5, ACK: 3}
ANY_NUMBER = 1_000_000
TIMEOUT_S = 60.0


class Deferred(NamedTuple):
    id: UUID
    outcome: str
    queue_position: int | None
    waiting: int
    pace_s: float | None
    queue: str | None
    partition: str | None


class Claimed(NamedTuple):
    id: UUID
    type: str
    queue: str
    partition: str
    partition_id: int
    retries: int
    is_gone: bool
    payload: bytes


class Asked(NamedTuple):
    """An operation to defer."""

    partition_id: int
    type: str = PUSH
    names: tuple[str, ...] = ("x",)
    request: int | None = None
    id: UUID | None = None


async def defer_all(
    log, *asked, depth=ANY_NUMBER, per_partition=ANY_NUMBER, size=1 << 40, rules=()
) -> list[Deferred]:
    """Defer operations in one call; each is a request of its own unless it says."""
    found = await log.rows(
        "select * from skep.defer_operations("
        "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
        [each.id or uuid4() for each in asked],
        [number if each.request is None else each.request for number, each in enumerate(asked)],
        [each.type for each in asked],
        [each.partition_id for each in asked],
        [PRIORITY[each.type] for each in asked],
        [len(each.names) for each in asked],
        [json.dumps([[at, name, None] for at, name in enumerate(each.names)]) for each in asked],
        [",".join(each.names).encode() for each in asked],
        [queue_id for queue_id, _ in rules],
        [version for _, version in rules],
        depth,
        per_partition,
        size,
    )
    return [Deferred(*row) for row in found]


async def defer(log, partition_id, *names, type_=PUSH, **bounds) -> UUID:
    """Defer one operation and return its id."""
    asked = Asked(partition_id, type_, names or ("x",))
    [answer] = await defer_all(log, asked, **bounds)
    assert answer.outcome == "accepted"
    return answer.id


async def claim(
    log, partitions=100, per_partition=100, size=1 << 30, timeout_s=TIMEOUT_S, claim_id=None
) -> tuple[UUID, list[Claimed]]:
    """Claim operations; return the claim's name and what it got."""
    claim_id = claim_id or uuid4()
    found = await log.rows(
        "select * from skep.claim_operations($1, $2, $3, $4, $5, $6)",
        claim_id,
        sorted(PRIORITY.values()),
        partitions,
        per_partition,
        size,
        timeout_s,
    )
    return claim_id, [Claimed(*row) for row in found]


def ids(claimed):
    return [each.id for each in claimed]


async def process_pushes(log, claim_id, *operations, partition_id=None) -> Any:
    """Carry out pushes as a broker does; `operations` are of one claim."""
    partitions = sorted({partition_id or each.partition_id for each in operations})
    names = [
        (number, partitions.index(partition_id or each.partition_id) + 1, name)
        for number, each in enumerate(operations, start=1)
        for name in each.payload.decode().split(",")
    ]
    sent, places = [], []
    for _, partition, name in names:
        if (partition, name) not in sent:
            sent.append((partition, name))
        places.append(sent.index((partition, name)))
    return await log.row(
        "select * from skep.process_pushes("
        "$1, $2, $3, $4, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', $5, $6, $7, $8, $9, $10)",
        ids(operations),
        claim_id,
        [number for number, _, _ in names],
        places,
        partitions,
        [0] * len(partitions),
        [await log.value("select 'infinity'::timestamptz")] * len(partitions),
        [partition for partition, _ in sent],
        [key_of(name) for _, name in sent],
        [envelope(name).encode() for _, name in sent],
    )


async def carry_out(log) -> list[UUID]:
    """Claim and carry out everything that is ready; return what was done."""
    claim_id, claimed = await claim(log)
    if claimed:
        row = await process_pushes(log, claim_id, *claimed)
        assert row["refusal"] is None
    return ids(claimed)


async def operation(log, id_) -> dict[str, Any]:
    found = dict(await log.row("select * from skep.operation where id = $1", id_))
    return {**found, "answer": found["answer"] and json.loads(found["answer"])}


async def statuses(log, *ids) -> list[str]:
    return [(await operation(log, id_))["status"] for id_ in ids]


async def stored(log, partition_id) -> list[str]:
    """Return the names of the messages of a partition, in order."""
    rows = await log.rows(
        'select transaction_id from skep.message where partition_id = $1 order by "offset"',
        partition_id,
    )
    return [row[0] for row in rows]


async def check_books(log) -> None:
    """Compare counters, totals and turns with the operations there are."""
    wrong_partitions = await log.rows(
        """
        select p.id, p.deferred_pushes, p.deferred_acks, w.*
        from skep.partition p
        cross join lateral (
          select count(*) filter (where o.type = 'push') as pushes,
                 count(*) filter (where o.type = 'ack_batch') as acks
          from skep.operation o
          where o.partition_id = p.id and o.status in ('waiting', 'processing')
        ) w
        where (p.deferred_pushes, p.deferred_acks) <> (w.pushes, w.acks)
        """
    )
    assert wrong_partitions == []
    wrong_turns = await log.rows(
        """
        select o.id, o.is_next, o.status from skep.operation o
        where o.is_next is distinct from (
          o.status in ('waiting', 'processing') and not exists (
            select from skep.operation b
            where b.partition_id = o.partition_id and b.type = o.type and b.number < o.number
              and b.status in ('waiting', 'processing')))
        """
    )
    assert wrong_turns == []
    counted = await log.rows(
        """
        select o.type, replace(o.status, 'processing', 'waiting'), count(*), sum(o.bytes)
        from skep.operation o group by 1, 2 order by 1, 2
        """
    )
    totals = await log.rows(
        """
        select t.type, t.status, sum(t.operations), sum(t.bytes) from skep.operation_total t
        group by 1, 2 having sum(t.operations) <> 0 or sum(t.bytes) <> 0 order by 1, 2
        """
    )
    assert [tuple(row) for row in totals] == [tuple(row) for row in counted]
