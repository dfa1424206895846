"""What the API document says of the routes that Litestar cannot describe.

The hot ones never pass through it, and `configure` decodes its body by Queen's rules.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from skep.broker.fetch.request import FetchBody
from skep.broker.overload.deferral import AcceptedAnswer
from skep.broker.queues.configure import Configured
from skep.model.wire import AckBatchBody, AckItem, ExtendBody
from skep.server.api_document import shapes
from skep.server.auth.access import (
    BODY,
    NOTHING,
    READ_WRITE_BY_BODY,
    READ_WRITE_OF_QUEUE,
    Access,
    Level,
)
from skep.server.routes.queues import ConfigureRequest

Json: TypeAlias = dict[str, Any]
Shape: TypeAlias = type[msgspec.Struct] | type[Sequence[msgspec.Struct]]
Answer: TypeAlias = tuple[str, Shape] | str
"""What it means, and the shape of its body if that is not the one of all errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A route that Litestar cannot describe."""

    method: str = "post"
    path: str
    id: str
    access: Access = READ_WRITE_BY_BODY
    tag: str = "Messages"
    summary: str
    text: str
    parameters: Sequence[Json] = ()
    request: Shape | None = None
    request_example: Json | None = None
    is_request_required: bool = True
    answers: Mapping[int, Answer]
    """By status; errors beyond those of every route."""


def _parameter(name: str, text: str, schema: Json | None = None, place: str = "query") -> Json:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": text,
        "schema": schema or {"type": "string"},
    }


def _integer(default: int, *, minimum: int = 0) -> Json:
    return {"type": "integer", "default": default, "minimum": minimum}


_UUID: Final[Json] = {"type": "string", "format": "uuid"}
_BOOLEAN: Final[Json] = {"type": "boolean", "default": False}
_QUEUE: Final = _parameter("queue", "The queue's name, percent-encoded.", place="path")
_PARTITION: Final = _parameter("partition", "The partition's name.", place="path")
_NAMESPACE: Final = _parameter("namespace", "Queues of this namespace.")
_TASK: Final = _parameter("task", "Queues of this task.")
_ONLY_QUEUE: Final = _parameter("queue", "Only this queue.")
_ONLY_PARTITION: Final = _parameter("partition", "With `queue`: only this partition.")
_AUTOPILOT: Final = _parameter(
    "autopilot",
    "Let the broker choose `batch` and `partitions` where they are not given; the answer says how.",
    _BOOLEAN,
)
_CREATE: Final = _parameter(
    "create",
    "Whether the queue and the partition are created if they do not exist; if not, the answer is "
    "404. Absent: as the setting `polls_create_queues` says.",
    {"type": "boolean"},
)
_POP_PARAMETERS: Final = (
    _parameter("consumerGroup", "Absent: the consumers share one cursor, `__QUEUE_MODE__`."),
    _parameter("batch", "The most messages to return.", _integer(1, minimum=1)),
    _parameter("partitions", "The most partitions to claim; 0 is no limit.", _integer(1)),
    _AUTOPILOT,
    _parameter("wait", "Wait for messages if there are none.", _BOOLEAN),
    _parameter("timeout", "How long to wait, in milliseconds.", _integer(30_000)),
    _parameter("autoAck", "Acknowledge on delivery: at most once.", _BOOLEAN),
    _parameter(
        "conflation",
        "Deliver only the newest message of each partition. Needs a consumerGroup, excludes "
        "autoAck; a property of the group, decided by the first poll that names it.",
        {"type": "boolean"},
    ),
    _parameter("leaseSeconds", "Length of the lease instead of the queue's own.", _integer(0)),
    _parameter(
        "subscriptionMode",
        "Where a new group starts: `new` or `new-only` at the end of the log, the others at its "
        "beginning.",
        {"type": "string", "enum": ["all", "from_beginning", "new", "new-only"]},
    ),
    _parameter("subscriptionFrom", "A time, or `now`: where a new group starts."),
)
_QUEUE_FULL: Final = (
    "A queue holds as much as it may, or the broker has no room: repeat after the time in "
    "Retry-After."
)
_OVERLOADED: Final = {429: "The broker has no room: repeat after the time in Retry-After."}
_QUEUED: Final = (
    "There is no room now, and the client or the queue wants no wait: accepted, to be done in the "
    "order of the partition. `GET /api/v1/operations/{operationId}` tells what became of it."
)
_ACCEPTED: Final = {202: (_QUEUED, AcceptedAnswer)}
_PREFER: Final = _parameter(
    "Prefer", "`respond-async`: rather a 202 than a wait, if there is no room.", place="header"
)

_ACK_EXAMPLE: Final[Json] = {
    "transactionId": "order-1",
    "partitionId": "00000000-0000-8000-8000-000000000007",
    "status": "completed",
    "leaseId": "019a3f5e-7c1d-7000-8000-0123456789ab",
    "consumerGroup": "billing",
}

CONFIGURE_OPERATION: Final = Operation(
    path="/api/v1/configure",
    id="configureQueue",
    tag="Queues",
    summary="Create a queue or change its options",
    text="Options left out keep their value; null restores a default.",
    request=ConfigureRequest,
    request_example={"queue": "orders", "options": {"leaseTime": 60, "retryLimit": 5}},
    answers={
        201: ("The queue as it is now.", Configured),
        409: "Encryption is asked for, and this broker has no key.",
    },
)

_POP_ANSWERS: Final[dict[int, Answer]] = {
    200: ("Messages, in order within each partition.", shapes.PopAnswer),
    204: "There is nothing to deliver, or the wait is over.",
    **_OVERLOADED,
}
_QUEUE_POP_ANSWERS: Final[dict[int, Answer]] = {
    **_POP_ANSWERS,
    404: "The queue or the partition does not exist, and the poll must not create it.",
}
_pop = partial(Operation, method="get", access=READ_WRITE_OF_QUEUE, answers=_QUEUE_POP_ANSWERS)

HOT_OPERATIONS: Final = (
    Operation(
        path="/api/v1/push",
        id="pushMessages",
        summary="Store messages",
        text="Idempotent by (partition, transactionId) within the queue's window: a repeated item "
        "is reported as a duplicate. A failed item does not fail its neighbours.",
        request=shapes.PushBody,
        request_example={
            "items": [
                {
                    "queue": "orders",
                    "partition": "customer-7",
                    "payload": {"total": 12},
                    "transactionId": "order-1",
                }
            ]
        },
        parameters=(_PREFER,),
        answers={
            201: ("One result per item, in their order.", list[shapes.PushResult]),
            **_ACCEPTED,
            409: "Nothing was stored: the queue was deleted meanwhile, or cannot be encrypted for.",
            429: _QUEUE_FULL,
        },
    ),
    _pop(
        path="/api/v1/pop/queue/{queue}",
        id="popMessages",
        summary="Take messages from any partition of a queue",
        text="Claims the partitions that have waited longest, under one lease.",
        parameters=(_QUEUE, _CREATE, *_POP_PARAMETERS),
    ),
    _pop(
        path="/api/v1/pop/queue/{queue}/partition/{partition}",
        id="popPartition",
        summary="Take messages from one partition",
        text="Delivers nothing while another consumer of the group holds the partition.",
        parameters=(_QUEUE, _PARTITION, _CREATE, *_POP_PARAMETERS),
        answers={**_QUEUE_POP_ANSWERS, 200: ("Messages, in order.", shapes.PopAnswer)},
    ),
    _pop(
        path="/api/v1/pop",
        id="popDiscovered",
        access=Access(Level.READ_WRITE, NOTHING),
        summary="Take messages from the queues of a namespace or task",
        text="Needs at least one of the two; each message names its queue. With `queue`, the same "
        "as a pop of that queue.",
        parameters=(_NAMESPACE, _TASK, _ONLY_QUEUE, _ONLY_PARTITION, _CREATE, *_POP_PARAMETERS),
    ),
    Operation(
        path="/api/v1/ack",
        id="ackMessage",
        summary="Say what became of a message",
        text="Completing a message completes those before it in its partition.",
        request=AckItem,
        request_example=_ACK_EXAMPLE,
        answers={200: ("An array with the one result.", list[shapes.AckResult]), **_OVERLOADED},
    ),
    Operation(
        path="/api/v1/ack/batch",
        id="ackMessages",
        summary="Say what became of many messages",
        text="The lowest failed message of a partition holds its cursor back: later ones are "
        "delivered again.",
        parameters=(_PREFER,),
        request=AckBatchBody,
        request_example={"acknowledgments": [_ACK_EXAMPLE], "consumerGroup": "billing"},
        answers={
            200: ("One result per acknowledgment, in their order.", list[shapes.AckResult]),
            **_ACCEPTED,
            **_OVERLOADED,
        },
    ),
    Operation(
        path="/api/v1/transaction",
        id="commitTransaction",
        summary="Acknowledge and push, all or nothing",
        text="Fails as a whole when a required lease is no longer held. The body may also be the "
        "array of operations alone.",
        request=shapes.TransactionBody,
        request_example={
            "operations": [
                {"type": "push", "items": [{"queue": "invoices", "payload": {"order": 1}}]},
                {"type": "ack", **_ACK_EXAMPLE},
            ],
            "requiredLeases": [_ACK_EXAMPLE["leaseId"]],
        },
        answers={
            200: ("The results, or why nothing happened.", shapes.TransactionAnswer),
            409: "A queue that is pushed to was deleted meanwhile, or cannot be encrypted for.",
            429: _QUEUE_FULL,
        },
    ),
    Operation(
        path="/api/v1/kv",
        id="callKeys",
        tag="Keys and values",
        summary="Read and change keys in one commit",
        text="An operation whose condition does not hold is not applied, and the others are, "
        "unless it is `required`. Operations on single keys are carried out in the order of "
        "namespace and key, then those on several. The body may also be the array of operations "
        "alone.",
        request=shapes.KvBody,
        request_example={
            "operations": [
                {"op": "putIfAbsent", "ns": "jobs", "key": "a", "value": 1, "ttlSeconds": 60},
                {"op": "incr", "ns": "quota", "key": "b", "delta": 1, "max": 10, "forever": True},
            ]
        },
        answers={
            200: ("One result per operation, in their order.", shapes.KvAnswer),
            **_OVERLOADED,
        },
    ),
    Operation(
        path="/api/v1/fetch",
        id="fetchMessages",
        access=Access(Level.READ_ONLY, BODY),
        tag="Reads by offset",
        summary="Read messages from positions on",
        text="Takes no lease and moves no cursor: two readers that ask the same get the same. "
        "Every call with something to return returns at least one message.",
        request=FetchBody,
        request_example={
            "entries": [{"queue": "orders", "partition": "customer-7", "offset": 1}],
            "maxWaitMs": 10_000,
        },
        answers={
            200: ("One entry per position, in their order.", shapes.FetchAnswer),
            **_OVERLOADED,
        },
    ),
    Operation(
        path="/api/v1/locks",
        id="callLocks",
        tag="Locks",
        summary="Acquire, renew, release and show locks",
        text="Each operation is carried out for itself. A permit is a key of the namespace "
        "`queen-locks`, and its token the version of that key. An acquire with `waitMs` waits in "
        "line. The body may also be the array of operations alone.",
        request=shapes.LocksBody,
        request_example={
            "operations": [
                {"op": "acquire", "name": "daily-report", "ttlSeconds": 30, "owner": "worker-1"}
            ]
        },
        answers={
            200: ("One result per operation, in their order.", shapes.LocksAnswer),
            **_OVERLOADED,
        },
    ),
    Operation(
        path="/api/v1/lease/{leaseId}/extend",
        id="extendLease",
        access=Access(Level.READ_WRITE, NOTHING),
        summary="Keep a lease for longer",
        text="Covers every partition of the lease.",
        parameters=(_parameter("leaseId", "As delivered with the messages.", _UUID, place="path"),),
        request=ExtendBody,
        request_example={"seconds": 120},
        is_request_required=False,
        answers={
            200: ("When the lease ends now, or why it could not be extended.", shapes.LeaseAnswer),
            **_OVERLOADED,
        },
    ),
)

_LEVELS: Final = {operation.id: operation.access.level for operation in HOT_OPERATIONS}


def level_of(operation_id: str) -> Level:
    """Return what a hot operation needs of its caller."""
    return _LEVELS[operation_id]
