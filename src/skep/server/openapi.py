"""The OpenAPI 3.1 document and the page that shows it.

Litestar documents its own routes. The hot routes never pass through it, and `configure` decodes its
body by Queen's rules, so those are described here from the message types themselves and merged in.
Errors have one shape everywhere, whatever Litestar's generator assumes.

The page is static and asks nobody but this server: a broker often runs where there is no internet.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Final, TypeAlias

import msgspec
from litestar import Request, get
from litestar.enums import OpenAPIMediaType
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import OpenAPIRenderPlugin

from skep.broker.configure import Configured
from skep.model.wire import AckBatchBody, AckItem, ExtendBody
from skep.server.exchange import HotRoutes
from skep.server.routes.configure import ConfigureRequest
from skep.server.shapes import (
    AckResult,
    ErrorAnswer,
    LeaseAnswer,
    PopAnswer,
    PushBody,
    PushResult,
    TransactionAnswer,
    TransactionBody,
)

Json: TypeAlias = dict[str, Any]
Shape: TypeAlias = type[msgspec.Struct] | type[Sequence[msgspec.Struct]]

_REF_TEMPLATE: Final = "#/components/schemas/{name}"
_ERRORS: Final = {
    400: "The request is malformed; repeating it will not help.",
    413: "The body is larger than this broker accepts.",
    429: "The queue holds as much as it may: repeat after the time in Retry-After.",
    500: "A bug in the broker; its log has the details.",
    503: "Overloaded, or the database is away: repeat after the time in Retry-After.",
}
_FURTHER_ERRORS_OF_COLD_ROUTES: Final = {
    404: "What the request names does not exist.",
    409: "The request is not allowed in the present state.",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A part of the path or of the query."""

    name: str
    text: str
    schema: Json = field(default_factory=lambda: {"type": "string"})
    is_in_path: bool = False

    def spell(self) -> Json:
        """Spell it for the document."""
        return {
            "name": self.name,
            "in": "path" if self.is_in_path else "query",
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
    summary: str
    text: str
    parameters: Sequence[Parameter] = ()
    request: Shape | None = None
    status: int = 200
    answer: Shape
    answer_text: str
    further_answers: dict[int, str] = field(default_factory=dict[int, str])


def _integer(default: int, *, minimum: int = 0) -> Json:
    return {"type": "integer", "default": default, "minimum": minimum}


_BOOLEAN: Final[Json] = {"type": "boolean", "default": False}
_QUEUE: Final = Parameter("queue", "The queue's name, percent-encoded.", is_in_path=True)
_PARTITION: Final = Parameter("partition", "The partition's name.", is_in_path=True)
_NAMESPACE: Final = Parameter("namespace", "Queues of this namespace.")
_TASK: Final = Parameter("task", "Queues of this task.")
_POP_PARAMETERS: Final = (
    Parameter("consumerGroup", "Absent: the consumers share one cursor, `__QUEUE_MODE__`."),
    Parameter("batch", "The most messages to return.", _integer(1, minimum=1)),
    Parameter("partitions", "The most partitions to claim.", _integer(1)),
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
_POP_ANSWERS: Final = {204: "There is nothing to deliver, or the wait is over."}

CONFIGURE_OPERATION: Final = Operation(
    method="post",
    path="/api/v1/configure",
    id="configureQueue",
    summary="Create a queue or change its options",
    text="Options left out keep their value; null restores a default.",
    request=ConfigureRequest,
    status=201,
    answer=Configured,
    answer_text="The queue as it is now.",
)

HOT_OPERATIONS: Final = (
    Operation(
        method="post",
        path="/api/v1/push",
        id="pushMessages",
        summary="Store messages",
        text="Idempotent by (partition, transactionId) within the queue's window: a repeated item "
        "is reported as a duplicate. A failed item does not fail its neighbours.",
        request=PushBody,
        status=201,
        answer=list[PushResult],
        answer_text="One result per item, in their order.",
    ),
    Operation(
        method="get",
        path="/api/v1/pop/queue/{queue}",
        id="popMessages",
        summary="Take messages from any partition of a queue",
        text="Claims the partitions that have waited longest, under one lease.",
        parameters=(_QUEUE, *_POP_PARAMETERS),
        answer=PopAnswer,
        answer_text="Messages, in order within each partition.",
        further_answers=_POP_ANSWERS,
    ),
    Operation(
        method="get",
        path="/api/v1/pop/queue/{queue}/partition/{partition}",
        id="popPartition",
        summary="Take messages from one partition",
        text="Delivers nothing while another consumer of the group holds the partition.",
        parameters=(_QUEUE, _PARTITION, *_POP_PARAMETERS),
        answer=PopAnswer,
        answer_text="Messages, in order.",
        further_answers=_POP_ANSWERS,
    ),
    Operation(
        method="get",
        path="/api/v1/pop",
        id="popDiscovered",
        summary="Take messages from the queues of a namespace or task",
        text="Needs at least one of the two; each message names its queue.",
        parameters=(_NAMESPACE, _TASK, *_POP_PARAMETERS),
        answer=PopAnswer,
        answer_text="Messages, in order within each partition.",
        further_answers=_POP_ANSWERS,
    ),
    Operation(
        method="post",
        path="/api/v1/ack",
        id="ackMessage",
        summary="Say what became of a message",
        text="Completing a message completes those before it in its partition.",
        request=AckItem,
        answer=list[AckResult],
        answer_text="An array with the one result.",
    ),
    Operation(
        method="post",
        path="/api/v1/ack/batch",
        id="ackMessages",
        summary="Say what became of many messages",
        text="The lowest failed message of a partition holds its cursor back: later ones are "
        "delivered again.",
        request=AckBatchBody,
        answer=list[AckResult],
        answer_text="One result per acknowledgment, in their order.",
    ),
    Operation(
        method="post",
        path="/api/v1/transaction",
        id="commitTransaction",
        summary="Acknowledge and push, all or nothing",
        text="Fails as a whole when a required lease is no longer held.",
        request=TransactionBody,
        answer=TransactionAnswer,
        answer_text="The results, or why nothing happened.",
    ),
    Operation(
        method="post",
        path="/api/v1/lease/{leaseId}/extend",
        id="extendLease",
        summary="Keep a lease for longer",
        text="Covers every partition of the lease.",
        parameters=(Parameter("leaseId", "As delivered with the messages.", is_in_path=True),),
        request=ExtendBody,
        answer=LeaseAnswer,
        answer_text="When the lease ends now, or why it could not be extended.",
    ),
)


def operations_served(routes: HotRoutes) -> list[Operation]:
    """Return what to document: a hot route that nobody registered is not promised."""
    served = [
        operation
        for operation in HOT_OPERATIONS
        if routes.find(operation.method.upper().encode(), operation.path.encode()) is not None
    ]
    return [CONFIGURE_OPERATION, *served]


def merge_document(litestar: Json, operations: Sequence[Operation]) -> Json:
    """Add our operations to the document that Litestar generates."""
    types = [type_ for each in operations for type_ in (each.request, each.answer) if type_]
    _, schemas = msgspec.json.schema_components([ErrorAnswer, *types], ref_template=_REF_TEMPLATE)
    paths: Json = {
        path: {method: _with_our_errors(operation) for method, operation in item.items()}
        for path, item in litestar["paths"].items()
    }
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = _spell(operation)
    components: Json = litestar["components"]
    merged_schemas = {**components.get("schemas", {}), **schemas}
    return {**litestar, "paths": paths, "components": {**components, "schemas": merged_schemas}}


def _spell(operation: Operation) -> Json:
    answers = {operation.status: (operation.answer_text, operation.answer)}
    answers |= {status: (text, None) for status, text in operation.further_answers.items()}
    answers |= {status: (text, ErrorAnswer) for status, text in _ERRORS.items()}
    spelled: Json = {
        "operationId": operation.id,
        "tags": ["Messages"],
        "summary": operation.summary,
        "description": operation.text,
        "parameters": [parameter.spell() for parameter in operation.parameters],
        "responses": {
            str(status): {"description": text, **_content(type_)}
            for status, (text, type_) in sorted(answers.items())
        },
    }
    if operation.request is not None:
        spelled["requestBody"] = {"required": True, **_content(operation.request)}
    return spelled


def _content(type_: Shape | None) -> Json:
    if type_ is None:
        return {}
    (schema,), _ = msgspec.json.schema_components([type_], ref_template=_REF_TEMPLATE)
    return {"content": {"application/json": {"schema": schema}}}


def _with_our_errors(operation: Json) -> Json:
    """Describe the errors of a cold route: the same for all, in the one shape we send."""
    answers = {
        status: answer
        for status, answer in operation["responses"].items()
        if not status.startswith("4")
    }
    for status, text in {**_ERRORS, **_FURTHER_ERRORS_OF_COLD_ROUTES}.items():
        answers.setdefault(str(status), {"description": text, **_content(ErrorAnswer)})
    return {**operation, "responses": dict(sorted(answers.items()))}


class MergedDocument(OpenAPIRenderPlugin):
    """Renders the whole document in place of Litestar's part of it."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        super().__init__(path="/openapi.json", media_type=OpenAPIMediaType.OPENAPI_JSON)
        self._operations = operations

    def render(self, request: Request[Any, Any, Any], openapi_schema: Json) -> bytes:
        """Return the document as JSON."""
        del request
        return msgspec.json.encode(merge_document(openapi_schema, self._operations))


class ReferencePage(OpenAPIRenderPlugin):
    """Renders a page for people, which fetches the document itself."""

    def __init__(self) -> None:
        super().__init__(path="/")
        self._page = resources.files("skep.server").joinpath("docs.html").read_bytes()

    def render(self, request: Request[Any, Any, Any], openapi_schema: Json) -> bytes:
        """Return the page."""
        del request, openapi_schema
        return self._page


def openapi_config(routes: HotRoutes, *, version: str) -> tuple[OpenAPIConfig, HTTPRouteHandler]:
    """Return Litestar's configuration, which serves `/docs`, and the route `/openapi.json`."""
    merged = MergedDocument(operations_served(routes))

    @get("/openapi.json", include_in_schema=False, media_type=OpenAPIMediaType.OPENAPI_JSON)
    async def serve_document(request: Request[Any, Any, Any]) -> bytes:
        return merged.render(request, request.app.openapi_schema.to_schema())

    config = OpenAPIConfig(
        title="Skep",
        version=version,
        description="A partitioned message broker on PostgreSQL, with Queen MQ's HTTP API.",
        path="/docs",
        render_plugins=[ReferencePage(), merged],
    )
    return config, serve_document
