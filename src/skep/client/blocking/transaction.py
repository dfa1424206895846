# Generated from skep/client/aio/transaction.py by tools/generate_blocking_client.py; edit that.
"""Transactions: acknowledgments and pushes that happen together, or not at all.

Operations are gathered and sent when the block ends well; a block that raises sends nothing.
"""

from typing import Final

from skep.client.blocking.session import Session
from skep.client.errors import OutcomeUnknown
from skep.client.pushes import TransactionIds
from skep.client.requests import Doubt
from skep.client.tracing import Telemetry
from skep.client.transactions import GatheredTransaction
from skep.client.values import TransactionResult
from skep.model.errors import Unavailable


class Transaction(GatheredTransaction):
    """Acknowledgments and pushes that are gathered until the block ends."""

    def __init__(self, session: Session, ids: TransactionIds, telemetry: Telemetry) -> None:
        super().__init__(ids, telemetry)
        self._session: Final = session

    def __enter__(self) -> "Transaction":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.commit()

    def commit(self) -> list[TransactionResult]:
        """Let everything happen now; without any operation nothing is sent.

        Raises:
            TransactionFailed: Nothing happened; the text says why.
            OutcomeUnknown: The answer was lost. All of it happened or nothing; what did not happen
                is delivered again.
        """
        if not self._acks and not self._items:
            return []
        doubt = Doubt()
        try:
            answer = self._session.request(
                "POST", "/api/v1/transaction", self._body(), affinity=self._affinity(), doubt=doubt
            )
        except Unavailable as error:
            if not doubt.is_possible:
                raise
            raise OutcomeUnknown(f"the transaction may have happened: {error}") from error
        return self._read(answer.body, doubt)
