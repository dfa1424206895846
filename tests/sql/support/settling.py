"""Transactions as the SQL functions see them, made of the acks and messages of a `Log`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from tests.sql.support.log import NOTHING, Ack, Guarantee, Log, envelope, key_of


@dataclass
class Settled:
    """What a call answered."""

    row: Any

    @property
    def refusal(self) -> tuple[str, int] | None:
        reason = self.row["refusal"]
        return None if reason is None else (reason, self.row["refused_item"])

    @property
    def outcomes(self) -> list[str]:
        """The outcomes of the acks, in their order."""
        pairs = zip(self.row["ack_item"] or (), self.row["ack_outcome"] or (), strict=True)
        return [outcome for _, outcome in sorted(pairs)]

    @property
    def offsets(self) -> list[int]:
        return self.row["push_offset"]

    @property
    def duplicates(self) -> list[bool]:
        return self.row["push_is_duplicate"]


def arguments(
    acks: Sequence[Ack] = (),
    pushes: Mapping[int, Sequence[str]] | None = None,
    *,
    leases: Sequence[UUID] = (),
    guarantees: Mapping[int, Guarantee] | None = None,
) -> list[Any]:
    """Spell the arguments that settle_operations, transact and commit_cycle share."""
    writes = pushes or {}
    partitions = sorted(writes)
    guaranteed = [(guarantees or {}).get(partition, NOTHING) for partition in partitions]
    sent = [
        (number, name)
        for number, partition in enumerate(partitions, 1)
        for name in writes[partition]
    ]
    return [
        list(leases),
        [ack.partition_id for ack in acks],
        [ack.group for ack in acks],
        [ack.lease_id for ack in acks],
        [ack.offset for ack in acks],
        [key_of(ack.transaction_id) for ack in acks],
        [ack.status for ack in acks],
        [ack.error for ack in acks],
        partitions,
        [guarantee.to for guarantee in guaranteed],
        [guarantee.since for guarantee in guaranteed],
        [number for number, _ in sent],
        [key_of(name) for _, name in sent],
        [envelope(name).encode() for _, name in sent],
    ]


TRANSACT = f"select * from skep.transact({', '.join(f'${n}' for n in range(1, 27))})"


async def transact(
    log: Log,
    acks: Sequence[Ack] = (),
    pushes: Mapping[int, Sequence[str]] | None = None,
    *,
    id_: UUID | None = None,
    is_repeated: bool = False,
    keys: Sequence[tuple[Any, ...]] = (),
    **options: Any,
) -> Settled:
    """Run one transaction.

    An operation on a key is the key, the operation, its value as JSON, the version expected and
    whether it is required. The keys are of the namespace `hive`.
    """
    named = sorted({key for key, *_ in keys})
    columns = [
        ["hive"] * len(named),
        named,
        [named.index(key) + 1 for key, *_ in keys],
        *([each[column] for each in keys] for column in range(1, 4)),
        [None] * len(keys),
        [each[4] for each in keys],
        [None] * len(keys),
        [None] * len(keys),
    ]
    shared = arguments(acks, pushes, **options)
    return Settled(await log.row(TRANSACT, id_ or uuid4(), is_repeated, *columns, *shared))


async def names(log: Log, partition_id: int) -> list[str]:
    """Return the transaction ids stored in a partition, in order."""
    query = """
        select transaction_id from skep.message where partition_id = $1 order by "offset" """
    return [row[0] for row in await log.rows(query, partition_id)]
