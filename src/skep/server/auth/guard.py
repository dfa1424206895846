"""Admit requests, or say why not: hot routes, and those of Litestar, WebSockets included.

A hot handler is wrapped once and then runs with the identity of its caller, which is nearly always
known at once. If keys or the namespace of a queue have to be fetched first, the exchange waits in a
task of its own and the handler runs afterwards, unless the client has disconnected by then.

For all other routes a middleware reads the access that the route declared (`skep.server.auth.
access`) and lets the request pass with a `Requester`, which handlers ask for permission to what a
body names. A route without a declaration is for unrestricted administrators.

A browser cannot send headers with a WebSocket; it may offer the subprotocols `skep` and
`bearer.<token>` instead.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from litestar.connection import ASGIConnection
from litestar.types import ASGIApp, Receive, Scope, Send

from skep.model.errors import BadRequest, Forbidden, SkepError, Unavailable
from skep.model.ids import parse_partition_uuid
from skep.server.auth.access import ACCESS, UNDECLARED, Access, Level, Reach
from skep.server.auth.authenticator import Authenticator
from skep.server.auth.identity import ANYONE, STRANGER, Identity
from skep.server.auth.scopes import Scopes
from skep.server.hot.exchange import Exchange, HotHandler, decode_segment
from skep.server.problems import problem_of, split_headers

IdentifiedHandler: TypeAlias = Callable[[Exchange, Identity], None]

AUTHORIZATION: Final = b"authorization"
SUBPROTOCOL: Final = "skep"
TOKEN_SUBPROTOCOL: Final = "bearer."  # noqa: S105 (a prefix)

_REQUESTER: Final = "user"
_audit = logging.getLogger("skep.audit")


class Guard:
    """Access control of one broker process."""

    def __init__(
        self,
        scopes: Scopes,
        *,
        authenticator: Authenticator | None = None,
        public_paths: Collection[str] = (),
    ) -> None:
        """Without an authenticator every caller has full access."""
        self.scopes: Final = scopes
        self.authenticator: Final = authenticator
        self._public_paths: Final = frozenset(public_paths)
        self._waiting: Final[set[asyncio.Task[HotHandler]]] = set()

    @property
    def is_guarded(self) -> bool:
        """Whether callers must authenticate."""
        return self.authenticator is not None

    def left_s(self, identity: Identity) -> float:
        """Return for how many seconds a token is still valid; infinity without authentication."""
        return math.inf if self.authenticator is None else self.authenticator.left_s(identity)

    def is_public(self, access: Access, path: str) -> bool:
        """Whether a request needs no token. Only reads can be made public by their path."""
        if access.level is Level.NONE:
            return True
        return access.level is Level.READ_ONLY and path in self._public_paths

    async def stop(self) -> None:
        """Cancel the requests that wait."""
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)

    def wrap(self, level: Level, handler: IdentifiedHandler) -> HotHandler:
        """Return a handler that admits callers of this level; only with authentication."""
        authenticator = self.authenticator
        assert authenticator is not None

        def let_in(exchange: Exchange, identity: Identity) -> None:
            identity.require(level)
            handler(exchange, identity)

        def guarded(exchange: Exchange) -> None:
            header = exchange.header(AUTHORIZATION)
            identity = authenticator.identify(header)
            if identity is not None:
                let_in(exchange, identity)
                return

            async def wait() -> HotHandler:
                known = await authenticator.identify_patiently(header)
                return lambda exchange: let_in(exchange, known)

            self._later(exchange, wait())

        return guarded

    def preview(self, exchange: Exchange) -> None:
        """Raise if the token of a request is certain to be refused, before its body is read."""
        if self.authenticator is not None:
            self.authenticator.identify(exchange.header(AUTHORIZATION))

    def admit(
        self,
        exchange: Exchange,
        identity: Identity,
        proceed: Callable[[], None],
        *,
        queues: Collection[str] = (),
        partitions: Collection[int] = (),
        level: Level = Level.READ_WRITE,
    ) -> None:
        """Call `proceed`, now or later, if the caller may use all of these; else `Forbidden`."""
        if self.scopes.allow_now(identity, level, queues=queues, partitions=partitions):
            proceed()
            return

        async def wait() -> HotHandler:
            await self.scopes.require(identity, level, queues=queues, partitions=partitions)
            return lambda _: proceed()

        self._later(exchange, wait())

    def _later(self, exchange: Exchange, wait: Coroutine[Any, Any, HotHandler]) -> None:
        """Run the handler that is awaited, unless the client disconnects; answer in any case."""
        is_gone = False

        def note_gone() -> None:
            nonlocal is_gone
            is_gone = True

        def proceed(done: asyncio.Task[HotHandler]) -> None:
            self._waiting.discard(done)
            stopped = Unavailable("this instance is shutting down")
            error = stopped if done.cancelled() else done.exception()
            if is_gone:
                return
            if error is not None:
                exchange.refuse(error)
                return
            exchange.handler = done.result()
            exchange.run()

        task = asyncio.get_running_loop().create_task(wait)
        self._waiting.add(task)
        task.add_done_callback(proceed)
        exchange.when_aborted(note_gone)


@dataclass(frozen=True, slots=True)
class Requester:
    """The caller of one request, and what the route lets it do."""

    identity: Identity
    level: Level
    scopes: Scopes
    left_s: float
    """For how many seconds its token was valid when the request arrived."""

    @property
    def subject(self) -> str | None:
        """The subject of its token, stored with the messages it pushes."""
        return self.identity.subject

    async def require(
        self, *, queues: Collection[str] = (), partition_ids: Collection[str] = ()
    ) -> None:
        """Raise `Forbidden` unless the caller may do to these what the route does.

        Malformed partition ids pass: the route answers them.
        """
        partitions = {parse_partition_uuid(each) for each in partition_ids}
        await self.scopes.require(
            self.identity,
            self.level,
            queues=queues,
            partitions={each for each in partitions if each is not None},
        )

    async def permitted(self, queues: Collection[str]) -> Collection[str]:
        """Return those of the queues to which the caller may do what the route does."""
        return await self.scopes.permitted(self.identity, self.level, queues)

    async def require_place(self, queue: str, namespace: str | None) -> None:
        """Raise `Forbidden` unless the caller may configure the queue in this namespace."""
        if namespace:
            self.require_namespace(namespace)
            if not await self.scopes.exists(self.identity, queue):
                return
        await self.require(queues={queue})

    def require_namespace(self, namespace: str) -> None:
        """Raise `Forbidden` unless the caller may use every queue of a namespace."""
        self.scopes.require_namespace(self.identity, self.level, namespace)

    def require_everything(self) -> None:
        """Raise `Forbidden` if the caller is restricted to some queues."""
        if self.identity.grants is not None:
            raise Forbidden(
                "Insufficient permissions: this requires a token without queue restrictions"
            )


def requester_of(connection: ASGIConnection[Any, Any, Any, Any]) -> Requester:
    """Return the caller of a request."""
    return cast("Requester", connection.scope[_REQUESTER])


def admit_requests(app: ASGIApp, guard: Guard) -> ASGIApp:
    """Return an application that admits the requests their routes allow."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        options: Mapping[str, Any] = scope["route_handler"].opt
        access: Access = options.get(ACCESS, UNDECLARED)
        connection: ASGIConnection[Any, Any, Any, Any] = ASGIConnection(scope)
        try:
            requester = await _admit(guard, access, connection)
        except SkepError as error:
            if scope["type"] != "websocket":
                raise
            await _refuse_socket(error, scope, receive, send)
            return
        cast("dict[str, Any]", scope)[_REQUESTER] = requester
        await app(scope, receive, send)

    return run


async def _admit(
    guard: Guard, access: Access, connection: ASGIConnection[Any, Any, Any, Any]
) -> Requester:
    identity = await _identify(guard, access, connection)
    if guard.is_guarded and access.level is Level.ADMIN and identity is not STRANGER:
        _audit.info(
            "admin operation",
            extra={
                "subject": identity.subject,
                "method": cast("Mapping[str, Any]", connection.scope).get("method"),
                "path": decode_segment(connection.scope["path"].encode("latin-1")),
            },
        )
    requester = Requester(identity, access.level, guard.scopes, guard.left_s(identity))
    if identity.grants is not None:
        await _check_reach(requester, access.reach, connection)
    return requester


async def _identify(
    guard: Guard, access: Access, connection: ASGIConnection[Any, Any, Any, Any]
) -> Identity:
    if guard.authenticator is None:
        return ANYONE
    is_signed = bool(access.signature) and access.signature in connection.headers
    if is_signed or guard.is_public(access, connection.scope["path"]):
        return STRANGER
    identity = await guard.authenticator.identify_patiently(_authorization(connection.scope))
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
    requester: Requester, reach: Reach, connection: ASGIConnection[Any, Any, Any, Any]
) -> None:
    """Check that a restricted caller stays within its queues."""
    match reach.kind:
        case "nothing" | "body":
            return
        case "queue":
            await requester.require(queues={connection.path_params[reach.queue]})
        case "partition":
            await requester.require(partition_ids={connection.path_params[reach.queue]})
        case "filter":
            await _check_filter(requester, reach, connection)
        case "broker":
            requester.require_everything()


async def _check_filter(
    requester: Requester, reach: Reach, connection: ASGIConnection[Any, Any, Any, Any]
) -> None:
    queue = _only_value(connection, reach.queue)
    namespace = _only_value(connection, reach.namespace)
    if queue:
        await requester.require(queues={queue})
    elif namespace:
        requester.require_namespace(namespace)
    else:
        filters = " or ".join(f"a {name}" for name in (reach.queue, reach.namespace) if name)
        raise Forbidden(
            "Insufficient permissions: with a token restricted to some queues, this requires "
            f"{filters}"
        )


def _only_value(connection: ASGIConnection[Any, Any, Any, Any], name: str) -> str:
    """Return the value of a parameter, which must not be repeated."""
    values: list[Any] = connection.query_params.getall(name, []) if name else []
    if len(values) > 1:
        raise BadRequest(f"parameter {name} is repeated")
    return str(values[0]) if values else ""


async def _refuse_socket(error: SkepError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer the handshake with the HTTP status and body of an error."""
    await receive()
    answer = problem_of(error)
    if "websocket.http.response" not in (scope["extensions"] or {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.message})
        return
    headers = [(b"content-type", b"application/json"), *split_headers(answer.headers)]
    start = {"type": "websocket.http.response.start", "status": answer.status, "headers": headers}
    await send(cast("Any", start))
    await send(cast("Any", {"type": "websocket.http.response.body", "body": answer.body}))
