"""What the API document says of the routes that Litestar cannot describe.

The hot ones never pass through it, and `configure` decodes its body by Queen's rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from skep.broker.overload.deferral import AcceptedAnswer
from skep.broker.queues.configure import Configured
from skep.model.wire import AckBatchBody, AckItem, ExtendBody
from skep.server.api_document.shapes import (
    AckResult,
    LeaseAnswer,
    PopAnswer,
    PushBody,
    PushResult,
    TransactionAnswer,
    TransactionBody,
)
from skep.server.auth.access import NOTHING, READ_WRITE_BY_BODY, READ_WRITE_OF_QUEUE, Access, Level
from skep.server.routes.queues.configure import ConfigureRequest

Json: TypeAlias = dict[str, Any]
Shape: TypeAlias = type[msgspec.Struct] | type[Sequence[msgspec.Struct]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A part of the path or of the query, or a header."""

    name: str
    text: str
    schema: Json = field(default_factory=lambda: {"type": "string"})
    is_in_path: bool = False
    place: str = "query"
    """Where it stands, if not in the path."""

    def spell(self) -> Json:
        """Spell it for the document."""
        return {
            "name": self.name,
            "in": "path" if self.is_in_path else self.place,
            "required": self.is_in_path,
            "description": self.text,
            "schema": self.schema,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A route that Litestar cannot describe."""

    method: str
    path: str
    id: str
    access: Access
    tag: str = "Messages"
    summary: str
    text: str
    parameters: Sequence[Parameter] = ()
    request: Shape | None = None
    request_example: Json | None = None
    is_request_required: bool = True
    status: int = 200
    answer: Shape
    answer_text: str
    further_answers: dict[int, str] = field(default_factory=dict[int, str])
    """Without a body."""
    accepted_answer: Shape | None = None
    """Of a 202, where a request may be accepted to be done later."""
    refusals: dict[int, str] = field(default_factory=dict[int, str])
    """Errors beyond those of every route."""


def _integer(default: int, *, minimum: int = 0) -> Json:
    return {"type": "integer", "default": default, "minimum": minimum}


_BOOLEAN: Final[Json] = {"type": "boolean", "default": False}
_QUEUE: Final = Parameter("queue", "The queue's name, percent-encoded.", is_in_path=True)
_PARTITION: Final = Parameter("partition", "The partition's name.", is_in_path=True)
_NAMESPACE: Final = Parameter("namespace", "Queues of this namespace.")
_TASK: Final = Parameter("task", "Queues of this task.")
_AUTOPILOT: Final = Parameter(
    "autopilot",
    "Let the broker choose `batch` and `partitions` where they are not given; the answer says how.",
    _BOOLEAN,
)
_POP_PARAMETERS: Final = (
    Parameter("consumerGroup", "Absent: the consumers share one cursor, `__QUEUE_MODE__`."),
    Parameter("batch", "The most messages to return.", _integer(1, minimum=1)),
    Parameter("partitions", "The most partitions to claim; 0 is no limit.", _integer(1)),
    _AUTOPILOT,
    Parameter("wait", "Wait for messages if there are none.", _BOOLEAN),
    Parameter("timeout", "How long to wait, in milliseconds.", _integer(30_000)),
    Parameter("autoAck", "Acknowledge on delivery: at most once.", _BOOLEAN),
    Parameter(
        "conflation",
        "Deliver only the newest message of each partition. Needs a consumerGroup, excludes "
        "autoAck; a property of the group, decided by the first poll that names it.",
        {"type": "boolean"},
    ),
    Parameter("leaseSeconds", "Length of the lease instead of the queue's own.", _integer(0)),
    Parameter("subscriptionMode", "`new` starts a new group at the end of the log."),
    Parameter("subscriptionFrom", "A time, or `now`: where a new group starts."),
)
_QUEUE_FULL: Final = (
    "A queue holds as much as it may, or the broker has no room: repeat after the time in "
    "Retry-After."
)
_OVERLOADED: Final = {429: "The broker has no room: repeat after the time in Retry-After."}
_PREFER: Final = Parameter(
    "Prefer", "`respond-async`: rather a 202 than a wait, if there is no room.", place="header"
)
_POP_ANSWERS: Final = {204: "There is nothing to deliver, or the wait is over."}

_ACK_EXAMPLE: Final[Json] = {
    "transactionId": "order-1",
    "partitionId": "00000000-0000-8000-8000-000000000007",
    "status": "completed",
    "leaseId": "019a3f5e-7c1d-7000-8000-0123456789ab",
    "consumerGroup": "billing",
}

CONFIGURE_OPERATION: Final = Operation(
    method="post",
    path="/api/v1/configure",
    id="configureQueue",
    access=READ_WRITE_BY_BODY,
    tag="Queues",
    summary="Create a queue or change its options",
    text="Options left out keep their value; null restores a default.",
    request=ConfigureRequest,
    request_example={"queue": "orders", "options": {"leaseTime": 60, "retryLimit": 5}},
    refusals={409: "Encryption is asked for, and this broker has no key."},
    status=201,
    answer=Configured,
    answer_text="The queue as it is now.",
)

HOT_OPERATIONS: Final = (
    Operation(
        method="post",
        path="/api/v1/push",
        id="pushMessages",
        access=READ_WRITE_BY_BODY,
        summary="Store messages",
        text="Idempotent by (partition, transactionId) within the queue's window: a repeated item "
        "is reported as a duplicate. A failed item does not fail its neighbours.",
        request=PushBody,
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
        accepted_answer=AcceptedAnswer,
        refusals={
            409: "Nothing was stored: the queue was deleted meanwhile, or cannot be encrypted for.",
            429: _QUEUE_FULL,
        },
        status=201,
        answer=list[PushResult],
        answer_text="One result per item, in their order.",
    ),
    Operation(
        method="get",
        path="/api/v1/pop/queue/{queue}",
        id="popMessages",
        access=READ_WRITE_OF_QUEUE,
        summary="Take messages from any partition of a queue",
        text="Claims the partitions that have waited longest, under one lease.",
        parameters=(_QUEUE, *_POP_PARAMETERS),
        answer=PopAnswer,
        answer_text="Messages, in order within each partition.",
        further_answers=_POP_ANSWERS,
        refusals=_OVERLOADED,
    ),
    Operation(
        method="get",
        path="/api/v1/pop/queue/{queue}/partition/{partition}",
        id="popPartition",
        access=READ_WRITE_OF_QUEUE,
        summary="Take messages from one partition",
        text="Delivers nothing while another consumer of the group holds the partition.",
        parameters=(_QUEUE, _PARTITION, *_POP_PARAMETERS),
        answer=PopAnswer,
        answer_text="Messages, in order.",
        further_answers=_POP_ANSWERS,
        refusals=_OVERLOADED,
    ),
    Operation(
        method="get",
        path="/api/v1/pop",
        id="popDiscovered",
        access=Access(Level.READ_WRITE, NOTHING),
        summary="Take messages from the queues of a namespace or task",
        text="Needs at least one of the two; each message names its queue.",
        parameters=(_NAMESPACE, _TASK, *_POP_PARAMETERS),
        answer=PopAnswer,
        answer_text="Messages, in order within each partition.",
        further_answers=_POP_ANSWERS,
        refusals=_OVERLOADED,
    ),
    Operation(
        method="post",
        path="/api/v1/ack",
        id="ackMessage",
        access=READ_WRITE_BY_BODY,
        summary="Say what became of a message",
        text="Completing a message completes those before it in its partition.",
        request=AckItem,
        request_example=_ACK_EXAMPLE,
        refusals=_OVERLOADED,
        answer=list[AckResult],
        answer_text="An array with the one result.",
    ),
    Operation(
        method="post",
        path="/api/v1/ack/batch",
        id="ackMessages",
        access=READ_WRITE_BY_BODY,
        summary="Say what became of many messages",
        text="The lowest failed message of a partition holds its cursor back: later ones are "
        "delivered again.",
        parameters=(_PREFER,),
        request=AckBatchBody,
        request_example={"acknowledgments": [_ACK_EXAMPLE], "consumerGroup": "billing"},
        accepted_answer=AcceptedAnswer,
        refusals=_OVERLOADED,
        answer=list[AckResult],
        answer_text="One result per acknowledgment, in their order.",
    ),
    Operation(
        method="post",
        path="/api/v1/transaction",
        id="commitTransaction",
        access=READ_WRITE_BY_BODY,
        summary="Acknowledge and push, all or nothing",
        text="Fails as a whole when a required lease is no longer held.",
        request=TransactionBody,
        request_example={
            "operations": [
                {"type": "push", "items": [{"queue": "invoices", "payload": {"order": 1}}]},
                {"type": "ack", **_ACK_EXAMPLE},
            ],
            "requiredLeases": [_ACK_EXAMPLE["leaseId"]],
        },
        refusals={
            409: "A queue that is pushed to was deleted meanwhile, or cannot be encrypted for.",
            429: _QUEUE_FULL,
        },
        answer=TransactionAnswer,
        answer_text="The results, or why nothing happened.",
    ),
    Operation(
        method="post",
        path="/api/v1/lease/{leaseId}/extend",
        id="extendLease",
        access=Access(Level.READ_WRITE, NOTHING),
        summary="Keep a lease for longer",
        text="Covers every partition of the lease.",
        parameters=(Parameter("leaseId", "As delivered with the messages.", is_in_path=True),),
        request=ExtendBody,
        request_example={"seconds": 120},
        refusals=_OVERLOADED,
        is_request_required=False,
        answer=LeaseAnswer,
        answer_text="When the lease ends now, or why it could not be extended.",
    ),
)

_LEVELS: Final = {operation.id: operation.access.level for operation in HOT_OPERATIONS}


def level_of(operation_id: str) -> Level:
    """Return what a hot operation needs of its caller."""
    return _LEVELS[operation_id]
