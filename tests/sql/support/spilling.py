"""Spill files as the SQL functions see them: a file, a part of it, and the messages in it."""

from dataclasses import dataclass, field
from uuid import UUID, uuid4

from tests.sql.support.log import NOTHING, envelope, key_of

DRAIN = f"select * from skep.drain_records({', '.join(f'${n}' for n in range(1, 19))})"


@dataclass
class File:
    """A spill file; positions count its messages."""

    log: object
    file_id: UUID = field(default_factory=uuid4)

    async def drain(
        self, start, end, writes, *, later=(), guarantees=None, resolve=False, version=None
    ):
        """Drain a part: names by partition id, and (queue id, name, time) of those for later."""
        partitions = sorted(writes)
        guaranteed = [(guarantees or {}).get(partition, NOTHING) for partition in partitions]
        sent = [
            (number, name)
            for number, partition in enumerate(partitions, 1)
            for name in writes[partition]
        ]
        queues = await self.log.rows(
            "select distinct q.id, q.version from skep.queue q"
            " join skep.partition p on p.queue_id = q.id where p.id = any($1)",
            partitions,
        )
        rows = await self.log.rows(
            DRAIN,
            self.file_id,
            start,
            end,
            resolve,
            partitions,
            [guarantee.to for guarantee in guaranteed],
            [guarantee.since for guarantee in guaranteed],
            [number for number, _ in sent],
            [key_of(name) for _, name in sent],
            [envelope(name).encode() for _, name in sent],
            [queue[0] for queue in queues],
            [version or queue[1] for queue in queues],
            [queue_id for queue_id, _, _ in later],
            ["a" for _ in later],
            [key_of(name) for _, name, _ in later],
            [name for _, name, _ in later],
            [envelope(name).encode() for _, name, _ in later],
            [moment for _, _, moment in later],
        )
        return rows[0]["position"], rows[1:]

    async def position(self):
        """Return how far it is known to be drained; None when nothing is."""
        query = "select position from skep.drained_file where file_id = $1"
        return await self.log.value(query, self.file_id)
