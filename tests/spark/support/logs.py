"""Writers for tests: they store segments as the broker does, in transactions the test controls."""

import json
from datetime import UTC, datetime
from itertools import count

import pyarrow as pa

from skep.model.envelopes import build_envelope

_numbers = count(1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Writer:
    """One connection that pushes; synchronous, because Spark's tests are."""

    def __init__(self, connection, run):
        self.connection = connection
        self._run = run

    def value(self, query, *arguments):
        return self._run(self.connection.fetchval(query, *arguments))

    def rows(self, query, *arguments):
        return [tuple(row) for row in self._run(self.connection.fetch(query, *arguments))]

    def execute(self, command):
        self._run(self.connection.execute(command))

    def close(self):
        self._run(self.connection.close())

    def partition(self, queue="orders", partition="Default"):
        """Return the id of a partition; it and its queue are made if they are new."""
        query = "select partition_id from skep.provision_partitions($1, $2)"
        return self.value(query, [queue], [partition])

    def push(self, *payloads, queue="orders", partition="Default"):
        """Store payloads as one segment; return its first offset."""
        return self.push_envelopes(
            *(envelope(json.dumps(payload)) for payload in payloads),
            queue=queue,
            partition=partition,
        )

    def push_envelopes(self, *envelopes, queue="orders", partition="Default"):
        partition = self.partition(queue, partition)
        keys = b"".join(next(_numbers).to_bytes(16) for _ in envelopes)
        query = "select first from skep.push_segments($1, $2, $3, $4, $5, $6, false)"
        return self.value(
            query,
            [partition],
            [len(envelopes)],
            [2**60],
            [None],
            [keys],
            [b"[" + b",".join(envelopes) + b"]"],
        )


def envelope(payload, transaction_id=None, **members):
    """Spell a message as it is stored; the payload is JSON."""
    name = transaction_id or f"tx-{next(_numbers)}"
    return build_envelope(name, payload.encode(), **members)


def segments(*bodies, first=1):
    """Make a batch of segments, one in each of several partitions."""
    names = [f"p{number}" for number in range(len(bodies))]
    return pa.RecordBatch.from_pydict(
        {
            "xid": [9] * len(bodies),
            "partition_id": list(range(len(bodies))),
            "first": [first] * len(bodies),
            "last": [first + len(body) - 1 for body in bodies],
            "queue": ["orders"] * len(bodies),
            "partition": names,
            "created_at": [NOON] * len(bodies),
            "body": [b"[" + b",".join(body) + b"]" for body in bodies],
        }
    )
