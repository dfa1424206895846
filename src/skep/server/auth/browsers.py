"""Protect against web pages of other origins.

A web page can send requests to any address its reader can reach, including a broker on the reader's
machine. So requests from foreign origins are refused unless the origin is listed (`cors_origins`);
the broker's own pages send its own host as their origin. Programs send no `Origin`.

Listed origins get CORS headers. Tokens travel in a header, never in a cookie, so credentials are
not allowed.

All responses carry headers that restrict browsers: no type sniffing, no frames, no referrer, and a
content policy that loads everything from this broker.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from litestar.types import ASGIApp, Message, Receive, Scope, Send

from skep.server.hot.asgi import send_answer
from skep.server.problems import Problem, problem

PREFLIGHT_SECONDS: Final = 600
METHODS: Final = b"GET, POST, PUT, DELETE, OPTIONS"
REQUEST_HEADERS: Final = b"authorization, content-type, last-event-id, prefer, traceparent"

PAGE_POLICY: Final = (
    b"default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    b"object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""For pages without their own policy. No inline scripts."""

PLAIN_POLICY: Final = b"default-src 'none'; frame-ancestors 'none'"
"""For all other responses."""

YEAR_S: Final = 31_536_000

Header: TypeAlias = tuple[bytes, bytes]
Verdict: TypeAlias = Literal["own", "listed", "foreign"]


class OriginPolicy:
    """Which web pages may call this broker. Pure."""

    def __init__(self, listed: Iterable[str] = ()) -> None:
        self._listed: Final = frozenset(origin.rstrip("/").lower() for origin in listed)

    def judge(self, origin: str, host: str) -> Verdict:
        """Classify a request by its headers `Origin` and `Host`.

        Schemes are not compared: behind a TLS proxy the broker does not know its own.
        """
        if origin.lower() in self._listed:
            return "listed"
        own = host.lower()
        return "own" if own and urlsplit(origin.lower()).netloc == own else "foreign"


class BrowserGate:
    """An ASGI application behind the origin check."""

    def __init__(self, app: ASGIApp, policy: OriginPolicy, *, is_tls: bool = False) -> None:
        self._app: Final = app
        self._policy: Final = policy
        self._headers: Final[list[Header]] = [
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
        ]
        if is_tls:
            age = b"max-age=%d" % YEAR_S
            self._headers.append((b"strict-transport-security", age))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        origin = _header(scope, b"origin")
        verdict = self._policy.judge(origin, _header(scope, b"host")) if origin else "own"
        if verdict == "foreign":
            await _refuse(origin, scope, receive, send)
        elif verdict == "listed" and _is_preflight(scope):
            await send_answer(send, _preflight_answer(origin))
        else:
            permission = _permission(origin) if verdict == "listed" else []
            await self._app(scope, receive, self._guarded(send, permission))

    def _guarded(self, send: Send, permission: Collection[Header]) -> Send:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message["headers"])
                message["headers"] = [*headers, *self._headers, *permission, *_policy_for(headers)]
            await send(message)

        return send_guarded


def _policy_for(headers: Iterable[Header]) -> list[Header]:
    known = {name.lower(): value for name, value in headers}
    if b"content-security-policy" in known:
        return []
    is_page = known.get(b"content-type", b"").startswith(b"text/html")
    return [(b"content-security-policy", PAGE_POLICY if is_page else PLAIN_POLICY)]


def _header(scope: Scope, name: bytes) -> str:
    headers = cast("list[Header]", scope["headers"])
    return next((value.decode("latin-1") for each, value in headers if each == name), "")


def _is_preflight(scope: Scope) -> bool:
    is_options = cast("Mapping[str, Any]", scope).get("method") == "OPTIONS"
    return is_options and bool(_header(scope, b"access-control-request-method"))


def _permission(origin: str) -> list[Header]:
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", b"retry-after, www-authenticate"),
        (b"vary", b"origin"),
    ]


def _preflight_answer(origin: str) -> Problem:
    lines = [
        *_permission(origin),
        (b"access-control-allow-methods", METHODS),
        (b"access-control-allow-headers", REQUEST_HEADERS),
        (b"access-control-max-age", b"%d" % PREFLIGHT_SECONDS),
    ]
    return Problem(204, b"", b"".join(b"%b: %b\r\n" % line for line in lines))


async def _refuse(origin: str, scope: Scope, receive: Receive, send: Send) -> None:
    text = f"origin {origin} is not allowed; add it to cors_origins to allow its pages"
    if scope["type"] == "http":
        await send_answer(send, problem(403, "foreign_origin", text))
        return
    await receive()
    closing: Any = {"type": "websocket.close", "code": 1008, "reason": "foreign origin"}
    await send(closing)
