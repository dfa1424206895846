"""Let callers in to the routes that Litestar serves, WebSockets included.

A middleware reads what a route declared (`skep.server.auth.access`), finds out who is asking, and
lets the request go on with a `Visitor`, whom handlers ask about what they learn from a body. A
route that declared nothing is for unrestricted administrators.

A browser cannot send headers with a WebSocket; it may offer the subprotocols `skep` and
`bearer.<token>` instead.
"""

import logging
from collections.abc import Collection, Mapping
from typing import Any, Final, cast

from litestar.connection import ASGIConnection
from litestar.types import ASGIApp, Receive, Scope, Send

from skep.model.errors import BadRequest, Forbidden, SkepError
from skep.model.ids import parse_partition_uuid
from skep.server.auth.access import ACCESS, UNDECLARED, Access, Level, Reach
from skep.server.auth.hot_guard import AUTHORIZATION, Door
from skep.server.auth.identity import ANYONE, STRANGER, Identity
from skep.server.auth.scopes import Scopes
from skep.server.hot.exchange import decode_segment
from skep.server.problems import problem_of

SUBPROTOCOL: Final = "skep"
TOKEN_SUBPROTOCOL: Final = "bearer."  # noqa: S105 (a prefix)

_VISITOR: Final = "user"
_audit = logging.getLogger("skep.audit")


class Visitor:
    """A caller within one request."""

    __slots__ = ("_level", "_scopes", "identity", "left_s")

    def __init__(self, identity: Identity, level: Level, scopes: Scopes, *, left_s: float) -> None:
        self.identity = identity
        self.left_s = left_s
        """How long its token was good when it came in."""
        self._level = level
        self._scopes = scopes

    @property
    def subject(self) -> str | None:
        """Who it is, to be stamped on messages."""
        return self.identity.subject

    async def require(
        self, *, queues: Collection[str] = (), partition_ids: Collection[str] = ()
    ) -> None:
        """Go on only if this caller may do to these what the route does.

        Args:
            queues: Names.
            partition_ids: As clients spell them; what is no such id is let pass.

        Raises:
            Forbidden: It may not.
        """
        partitions = {parse_partition_uuid(each) for each in partition_ids}
        await self._scopes.require(
            self.identity,
            self._level,
            queues=queues,
            partitions={each for each in partitions if each is not None},
        )

    async def require_place(self, queue: str, namespace: str | None) -> None:
        """Go on only if this caller may have the queue, and may put it into this namespace.

        Raises:
            Forbidden: It may not.
        """
        if namespace:
            self._scopes.require_namespace(self.identity, self._level, namespace)
            if not await self._scopes.exists(self.identity, queue):
                return
        await self.require(queues={queue})

    def require_everything(self) -> None:
        """Go on only if this caller is not restricted to some queues.

        Raises:
            Forbidden: It is.
        """
        if self.identity.grants is not None:
            raise Forbidden(
                "Insufficient permissions: this needs a token that is not restricted to some queues"
            )


def visitor_of(connection: ASGIConnection[Any, Any, Any, Any]) -> Visitor:
    """Return who sent a request."""
    return cast("Visitor", connection.scope[_VISITOR])


def admit_visitors(app: ASGIApp, door: Door) -> ASGIApp:
    """Return an application that lets in whom the route in the scope is for."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        options: Mapping[str, Any] = scope["route_handler"].opt
        access: Access = options.get(ACCESS, UNDECLARED)
        connection: ASGIConnection[Any, Any, Any, Any] = ASGIConnection(scope)
        try:
            visitor = await _admit(door, access, connection)
        except SkepError as error:
            if scope["type"] != "websocket":
                raise
            await _refuse_socket(error, scope, receive, send)
            return
        cast("dict[str, Any]", scope)[_VISITOR] = visitor
        await app(scope, receive, send)

    return run


async def _admit(
    door: Door, access: Access, connection: ASGIConnection[Any, Any, Any, Any]
) -> Visitor:
    identity = await _identify(door, access, connection)
    if door.is_guarded and access.level is Level.ADMIN:
        _audit.info(
            "admin operation",
            extra={
                "subject": identity.subject,
                "method": cast("Mapping[str, Any]", connection.scope).get("method"),
                "path": decode_segment(connection.scope["path"].encode("latin-1")),
            },
        )
    left_s = door.left_s(identity)
    visitor = Visitor(identity, access.level, door.scopes, left_s=left_s)
    if identity.grants is not None:
        await _check_reach(visitor, access, connection, door.scopes)
    return visitor


async def _identify(
    door: Door, access: Access, connection: ASGIConnection[Any, Any, Any, Any]
) -> Identity:
    if door.authenticator is None:
        return ANYONE
    if door.is_public(access, connection.scope["path"]):
        return STRANGER
    identity = await door.authenticator.identify_patiently(_authorization(connection.scope))
    identity.require(access.level)
    return identity


def _authorization(scope: Scope) -> bytes | None:
    headers = cast("list[tuple[bytes, bytes]]", scope["headers"])
    for name, value in headers:
        if name == AUTHORIZATION:
            return value
    for offered in cast("Mapping[str, Any]", scope).get("subprotocols") or ():
        if offered.startswith(TOKEN_SUBPROTOCOL):
            return b"Bearer " + offered.removeprefix(TOKEN_SUBPROTOCOL).encode()
    return None


async def _check_reach(
    visitor: Visitor,
    access: Access,
    connection: ASGIConnection[Any, Any, Any, Any],
    scopes: Scopes,
) -> None:
    """Refuse a restricted caller what is not about its queues."""
    reach = access.reach
    match reach.kind:
        case "nothing" | "body":
            return
        case "queue":
            await visitor.require(queues={connection.path_params[reach.queue]})
        case "partition":
            await visitor.require(partition_ids={connection.path_params[reach.queue]})
        case "filter":
            await _check_filter(visitor, access, connection, scopes)
        case "broker":
            visitor.require_everything()


async def _check_filter(
    visitor: Visitor,
    access: Access,
    connection: ASGIConnection[Any, Any, Any, Any],
    scopes: Scopes,
) -> None:
    reach = access.reach
    queue = _only_value(connection, reach.queue)
    namespace = _only_value(connection, reach.namespace)
    if queue:
        await visitor.require(queues={queue})
    elif namespace:
        scopes.require_namespace(visitor.identity, access.level, namespace)
    else:
        raise Forbidden(
            "Insufficient permissions: a token that is restricted to some queues has to name "
            f"{_filters(reach)} here"
        )


def _only_value(connection: ASGIConnection[Any, Any, Any, Any], name: str) -> str:
    """Return the value of a parameter; which of several a handler would take is not for us."""
    values: list[Any] = connection.query_params.getall(name, []) if name else []
    if len(values) > 1:
        raise BadRequest(f"{name} is given more than once")
    return str(values[0]) if values else ""


def _filters(reach: Reach) -> str:
    return " or ".join(f"a {name}" for name in (reach.queue, reach.namespace) if name)


async def _refuse_socket(error: SkepError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer the handshake with the status and body that HTTP has for it."""
    await receive()
    answer = problem_of(error)
    if "websocket.http.response" not in (scope["extensions"] or {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.message})
        return
    lines = [line.partition(b": ") for line in answer.headers.splitlines()]
    headers = [(b"content-type", b"application/json"), *((name, text) for name, _, text in lines)]
    start = {"type": "websocket.http.response.start", "status": answer.status, "headers": headers}
    await send(cast("Any", start))
    await send(cast("Any", {"type": "websocket.http.response.body", "body": answer.body}))
