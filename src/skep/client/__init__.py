"""The Python client: `AsyncClient`, and `Client`, which is generated from it.

The names here are the API; the modules below are not. It imports `skep.model` only, so a program
that uses it carries no broker.
"""

from skep.client.aio.buffer import Buffer as AsyncBuffer
from skep.client.aio.client import AsyncClient
from skep.client.aio.consumption import Consumption as AsyncConsumption
from skep.client.aio.lock import Lock as AsyncLock
from skep.client.aio.message import Batch as AsyncBatch
from skep.client.aio.message import Message as AsyncMessage
from skep.client.aio.transaction import Transaction as AsyncTransaction
from skep.client.aio.worker import Worker as AsyncWorker
from skep.client.blocking.buffer import Buffer
from skep.client.blocking.client import Client
from skep.client.blocking.consumption import Consumption
from skep.client.blocking.lock import Lock
from skep.client.blocking.message import Batch, Message
from skep.client.blocking.transaction import Transaction
from skep.client.blocking.worker import Worker
from skep.client.errors import (
    AccessDenied,
    LeaseLost,
    NotSent,
    OffsetOutOfRange,
    OutcomeUnknown,
    PushFailed,
    Stopped,
    TransactionFailed,
    UnexpectedAnswer,
    Unreachable,
)
from skep.client.pushes import BufferLimits, Item, by_field, spread
from skep.client.values import (
    AckResult,
    Operation,
    PushCounts,
    PushResult,
    PushResults,
    QueuedOperation,
)
from skep.client.verdicts import (
    COMPLETED,
    RETRY,
    DeadLetterMessage,
    RetryMessage,
    Verdict,
    dead_letter,
    failed,
)
from skep.model.errors import (
    BadRequest,
    NotFound,
    Overloaded,
    QueueFull,
    Refused,
    SkepError,
    Unavailable,
)

__all__ = [
    "COMPLETED",
    "RETRY",
    "AccessDenied",
    "AckResult",
    "AsyncBatch",
    "AsyncBuffer",
    "AsyncClient",
    "AsyncConsumption",
    "AsyncLock",
    "AsyncMessage",
    "AsyncTransaction",
    "AsyncWorker",
    "BadRequest",
    "Batch",
    "Buffer",
    "BufferLimits",
    "Client",
    "Consumption",
    "DeadLetterMessage",
    "Item",
    "LeaseLost",
    "Lock",
    "Message",
    "NotFound",
    "NotSent",
    "OffsetOutOfRange",
    "Operation",
    "OutcomeUnknown",
    "Overloaded",
    "PushCounts",
    "PushFailed",
    "PushResult",
    "PushResults",
    "QueueFull",
    "QueuedOperation",
    "Refused",
    "RetryMessage",
    "SkepError",
    "Stopped",
    "Transaction",
    "TransactionFailed",
    "Unavailable",
    "UnexpectedAnswer",
    "Unreachable",
    "Verdict",
    "Worker",
    "by_field",
    "dead_letter",
    "failed",
    "spread",
]
