"""What a transaction gathers until it is sent, and how its answer is read. Pure.

The leases of all acknowledged messages are required, so that a consumer that lost one cannot commit
what another consumer is doing again.
"""

from typing import Any, Final

import msgspec

from skep.client.deliveries import Delivered
from skep.client.endpoints import affinity_of
from skep.client.errors import OutcomeUnknown, TransactionFailed
from skep.client.pushes import Item, TransactionIds, encode
from skep.client.requests import Doubt
from skep.client.tracing import Telemetry
from skep.client.values import TransactionAnswer, TransactionResult
from skep.client.verdicts import COMPLETED, AckItem, Verdict

_decode_answer: Final = msgspec.json.Decoder(TransactionAnswer).decode


class GatheredTransaction:
    """Acknowledgments and pushes that are gathered until the block ends."""

    def __init__(self, ids: TransactionIds, telemetry: Telemetry) -> None:
        self._ids: Final = ids
        self._telemetry: Final = telemetry
        self._acks: Final[list[tuple[Delivered, Verdict]]] = []
        self._items: Final[list[Item]] = []
        self._leases: Final[dict[str, None]] = {}
        self.results: list[TransactionResult] = []
        """What became of each operation, once it is committed: the pushes, then the acks."""

    def ack(self, *messages: Delivered, verdict: Verdict = COMPLETED) -> None:
        """Acknowledge messages with everything else; their leases must still be held then."""
        for message in messages:
            self._acks.append((message, verdict))
            self.require(message)

    def require(self, message: Delivered) -> None:
        """Commit only while the lease of this message is held."""
        if message.lease_id:
            self._leases[message.lease_id] = None

    def push(self, queue: str, payload: Any, *, partition: str | None = None) -> None:
        """Push a message with everything else."""
        self.push_items(Item(queue, payload, partition))

    def push_items(self, *items: Item) -> None:
        """Push items with everything else."""
        self._telemetry.inject(items)
        self._ids.complete(items)
        self._items.extend(items)

    def _body(self) -> bytes:
        pushes = [{"type": "push", "items": self._items}] if self._items else []
        acks = [_ack_operation(message, verdict) for message, verdict in self._acks]
        return encode({"operations": [*pushes, *acks], "requiredLeases": list(self._leases)})

    def _affinity(self) -> str:
        if not self._acks:
            return self._items[0].queue
        message = self._acks[0][0]
        return affinity_of(message.queue, message.consumer_group)

    def _read(self, body: bytes, doubt: Doubt) -> list[TransactionResult]:
        answer = _decode_answer(body)
        if not answer.success:
            # A second try after a lost answer finds the leases released, if the first succeeded.
            cls = OutcomeUnknown if doubt.is_possible else TransactionFailed
            raise cls(answer.error)
        self.results = answer.results
        for message, verdict in self._acks:
            message.settlement.progress.settle(message.place, verdict)
        return self.results


class _AckOperation(AckItem, kw_only=True, tag_field="type", tag="ack"):
    consumer_group: str


def _ack_operation(message: Delivered, verdict: Verdict) -> _AckOperation:
    return _AckOperation(
        message.id,
        message.transaction_id,
        message.partition_id,
        verdict.status,
        message.lease_id,
        verdict.error,
        consumer_group=message.consumer_group,
    )
