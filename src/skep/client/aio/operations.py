"""Requests that a busy broker has queued: it answers 202, and the answer proper comes later."""

from typing import Final

import msgspec

from skep.client.addresses import path_of
from skep.client.aio.session import Session
from skep.client.http import Answer
from skep.client.io_async import Stop
from skep.client.values import Operation, QueuedOperation
from skep.model.errors import Refused

ASK_FOR_QUEUEING: Final = b"Prefer: respond-async\r\n"
"""Tells the broker that this client understands a 202."""

_POLL_S_MIN: Final = 0.05
_POLL_S_MAX: Final = 2.0

_decode_queued: Final = msgspec.json.Decoder(QueuedOperation).decode
_decode_operation: Final = msgspec.json.Decoder(Operation).decode


def queued_operation(answer: Answer) -> QueuedOperation | None:
    """Return what an answer says about queueing; None if the request was carried out."""
    return _decode_queued(answer.body) if answer.status == 202 else None


async def show_operation(session: Session, operation_id: str) -> Operation:
    """Return how far an operation is."""
    answer = await session.request("GET", path_of("operations", operation_id))
    return _decode_operation(answer.body)


async def wait_for_operation(session: Session, queued: QueuedOperation) -> bytes:
    """Wait until a queued operation is over, and return its answer.

    Raises:
        Refused: It was given up or cancelled.
    """
    pause_s = _POLL_S_MIN
    while True:
        operation = await show_operation(session, queued.operation_id)
        if operation.is_over:
            break
        await Stop().pause(pause_s)
        pause_s = min(pause_s * 2, _POLL_S_MAX)
    if operation.status != "completed":
        raise Refused(f"operation {queued.operation_id} {operation.status}: {operation.error}")
    return bytes(operation.answer)


async def finished_body(session: Session, answer: Answer) -> bytes:
    """Return the body of an answer, waiting for it if the request was queued."""
    queued = queued_operation(answer)
    return answer.body if queued is None else await wait_for_operation(session, queued)
