"""Transactions: acknowledgments and pushes that happen together, or not at all.

Operations are gathered and sent when the block ends well; a block that raises sends nothing. The
leases of all acknowledged messages are required, so that a consumer that lost one cannot commit
what another consumer is doing again.
"""

from typing import Any, Final

import msgspec

from skep.client.aio.message import Message
from skep.client.aio.session import Session
from skep.client.endpoints import affinity_of
from skep.client.errors import OutcomeUnknown, TransactionFailed
from skep.client.pushes import Item, TransactionIds, encode
from skep.client.requests import Doubt
from skep.client.tracing import Telemetry
from skep.client.values import TransactionAnswer, TransactionResult
from skep.client.verdicts import COMPLETED, AckItem, Verdict
from skep.model.errors import Unavailable

_decode_answer: Final = msgspec.json.Decoder(TransactionAnswer).decode


class Transaction:
    """Acknowledgments and pushes that are gathered until the block ends."""

    def __init__(self, session: Session, ids: TransactionIds, telemetry: Telemetry) -> None:
        self._session: Final = session
        self._ids: Final = ids
        self._telemetry: Final = telemetry
        self._acks: Final[list[tuple[Message, Verdict]]] = []
        self._items: Final[list[Item]] = []
        self._leases: Final[dict[str, None]] = {}
        self.results: list[TransactionResult] = []
        """What became of each operation, once it is committed: the pushes, then the acks."""

    def ack(self, *messages: Message, verdict: Verdict = COMPLETED) -> None:
        """Acknowledge messages with everything else; their leases must still be held then."""
        for message in messages:
            self._acks.append((message, verdict))
            self.require(message)

    def require(self, message: Message) -> None:
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

    async def __aenter__(self) -> "Transaction":
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            await self.commit()

    async def commit(self) -> list[TransactionResult]:
        """Let everything happen now; without any operation nothing is sent.

        Raises:
            TransactionFailed: Nothing happened; the text says why.
            OutcomeUnknown: The answer was lost. All of it happened or nothing; what did not happen
                is delivered again.
        """
        if not self._acks and not self._items:
            return []
        doubt = Doubt()
        answer = await self._send(doubt)
        if not answer.success:
            # A second try after a lost answer finds the leases released, if the first succeeded.
            cls = OutcomeUnknown if doubt.is_possible else TransactionFailed
            raise cls(answer.error)
        self.results = answer.results
        for message, verdict in self._acks:
            message.settlement.progress.settle(message.place, verdict)
        return self.results

    async def _send(self, doubt: Doubt) -> TransactionAnswer:
        pushes = [{"type": "push", "items": self._items}] if self._items else []
        acks = [_ack_operation(message, verdict) for message, verdict in self._acks]
        body = encode({"operations": [*pushes, *acks], "requiredLeases": list(self._leases)})
        try:
            answer = await self._session.request(
                "POST", "/api/v1/transaction", body, affinity=self._affinity(), doubt=doubt
            )
        except Unavailable as error:
            if not doubt.is_possible:
                raise
            raise OutcomeUnknown(f"the transaction may have happened: {error}") from error
        return _decode_answer(answer.body)

    def _affinity(self) -> str:
        if not self._acks:
            return self._items[0].queue
        message = self._acks[0][0]
        return affinity_of(message.queue, message.consumer_group)


class _AckOperation(AckItem, kw_only=True, tag_field="type", tag="ack"):
    consumer_group: str


def _ack_operation(message: Message, verdict: Verdict) -> _AckOperation:
    return _AckOperation(
        message.transaction_id,
        message.partition_id,
        verdict.status,
        message.lease_id,
        verdict.error,
        consumer_group=message.consumer_group,
    )
