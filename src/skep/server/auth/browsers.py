"""Protect against web pages of other sites.

A web page can send requests to any address its reader can reach, including a broker on the reader's
machine. Programs are not concerned: only requests that come from a browser are judged.

* A request with an `Origin` is refused unless that is the broker's own or listed (`cors_origins`).
  Listed origins get CORS headers.
* Images, scripts, frames and links of other pages send no `Origin`. Over TLS and to loopback
  addresses browsers say in `Sec-Fetch-Site` where a request comes from: from other pages only
  navigation is let in, and not to what changes something. A pop consumes messages although it is a
  GET. Where browsers say nothing, they cannot pop at all.
* A page can let its own name resolve to the broker's address (DNS rebinding); to the browser the
  broker is then the page's own server. So without authentication browsers must use a name that no
  stranger can own, or one that is allowed (`allowed_hosts`). TLS rules it out: browsers send
  `Sec-Fetch-Site` to names only over TLS, where the certificate would not match.

Pages cannot forge these headers. Tokens travel in a header, never in a cookie, so credentials are
not allowed.

All responses carry headers that restrict browsers: no type sniffing, no frames, no referrer, and a
content policy that loads everything from this broker.
"""

from collections.abc import Callable, Collection, Iterable
from ipaddress import ip_address
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast
from urllib.parse import urlsplit

from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from skep.server.auth.identity import NamePattern
from skep.server.hot.asgi import raw_path, send_answer
from skep.server.problems import Problem, problem

PREFLIGHT_SECONDS: Final = 600
METHODS: Final = b"GET, POST, PUT, DELETE, OPTIONS"
REQUEST_HEADERS: Final = (
    b"authorization, content-encoding, content-type, last-event-id, prefer, traceparent"
)

PAGE_POLICY: Final = (
    b"default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    b"object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""For pages without their own policy. No inline scripts."""

PLAIN_POLICY: Final = b"default-src 'none'; frame-ancestors 'none'"
"""For all other responses."""

YEAR_S: Final = 31_536_000

LOCAL_NAMES: Final = (
    *("*.localhost", "*.local", "*.internal", "*.lan", "*.home.arpa", "*.test"),
    "*.svc",  # services of Kubernetes; those with the cluster's domain are in .local
)
"""Domains that are reserved or not delegated: no stranger can have a name there."""

Header: TypeAlias = tuple[bytes, bytes]
Verdict: TypeAlias = Literal["own", "listed", "foreign_origin", "cross_site", "unknown_host"]


class Sender(NamedTuple):
    """What a request says about the page or program that sends it."""

    host: str
    origin: str = ""
    site: str = ""
    mode: str = ""
    destination: str = ""
    language: str | None = None
    agent: str = ""

    @property
    def is_silent_browser(self) -> bool:
        """Whether a browser sent it that does not say for which page.

        All browsers send a language, which a page may change but not leave out. Some programs do,
        too; those that imitate `fetch` also send a mode, which pages cannot.
        """
        return self.language is not None and not (self.site or self.mode)

    @property
    def is_navigation(self) -> bool:
        """Whether a person follows a link."""
        return self.mode == "navigate" and self.destination == "document"


class BrowserPolicy:
    """Which requests of browsers are let in. Pure."""

    def __init__(
        self,
        origins: Iterable[str] = (),
        *,
        hosts: Iterable[str] = (),
        asks_for_host: bool = True,
    ) -> None:
        """`hosts` are the names that are allowed besides addresses and local names."""
        listed = [origin.rstrip("/").lower() for origin in origins]
        names = [*hosts, *(urlsplit(origin).hostname or "" for origin in listed)]
        self._listed: Final = frozenset(listed)
        self._names: Final = [NamePattern(name.lower()) for name in (*LOCAL_NAMES, *names)]
        self._asks_for_host: Final = asks_for_host

    def judge(self, sender: Sender, *, consumes: bool) -> Verdict:
        """Judge a request by what it says; `consumes` if a GET changes something."""
        if sender.origin:
            verdict = self._judge_origin(sender.origin, sender.host)
            if verdict != "own":
                return verdict
        elif not self._is_own(sender, consumes=consumes):
            return "cross_site"
        return "own" if self._is_reached_well(sender) else "unknown_host"

    def _judge_origin(self, origin: str, host: str) -> Verdict:
        """Schemes are not compared: behind a TLS proxy the broker does not know its own."""
        if origin.lower() in self._listed:
            return "listed"
        _, _, netloc = origin.lower().partition("://")
        return "own" if netloc and netloc == host.lower() else "foreign_origin"

    def _is_own(self, sender: Sender, *, consumes: bool) -> bool:
        if sender.site in {"same-origin", "none"}:  # none: the person typed the address
            return True
        if sender.site:
            return sender.is_navigation and not consumes
        # No image or script can change the agent. Programs that send a language have another.
        return not (consumes and sender.is_silent_browser and sender.agent.startswith("Mozilla/"))

    def _is_reached_well(self, sender: Sender) -> bool:
        """Whether the name in the address cannot be that of a stranger's page."""
        is_over_tls = bool(sender.site) or sender.origin.startswith("https:")
        if is_over_tls or not self._asks_for_host:
            return True
        return not (sender.origin or sender.is_silent_browser) or self.knows(sender.host)

    def knows(self, host: str) -> bool:
        """Whether a host, with or without a port, is an address, a local or an allowed name."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        try:
            ip_address(name)
        except ValueError:
            return "." not in name or any(pattern.matches(name) for pattern in self._names)
        return True


class BrowserGate:
    """An ASGI application behind the checks of browsers."""

    def __init__(
        self,
        app: ASGIApp,
        policy: BrowserPolicy,
        *,
        consumes: Callable[[bytes], bool],
        is_tls: bool = False,
    ) -> None:
        """`consumes` tells of a path whether its GET changes something."""
        self._app: Final = app
        self._policy: Final = policy
        self._consumes: Final = consumes
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
        sender = _sender(scope)
        verdict = self._policy.judge(
            sender, consumes=self._consumes(raw_path(cast("HTTPScope", scope)))
        )
        if verdict == "listed" and _is_preflight(scope):
            await send_answer(send, _preflight_answer(sender.origin))
        elif verdict in {"own", "listed"}:
            permission = _permission(sender.origin) if verdict == "listed" else []
            await self._app(scope, receive, self._guarded(send, permission))
        else:
            await _refuse(verdict, sender, scope, receive, self._guarded(send, []))

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


_FIELD_BY_HEADER: Final = {
    b"host": "host",
    b"origin": "origin",
    b"sec-fetch-site": "site",
    b"sec-fetch-mode": "mode",
    b"sec-fetch-dest": "destination",
    b"accept-language": "language",
    b"user-agent": "agent",
}


def _sender(scope: Scope) -> Sender:
    fields = {"host": ""}
    for name, value in cast("list[Header]", scope["headers"]):
        field = _FIELD_BY_HEADER.get(name)
        if field is not None:
            fields[field] = value.decode("latin-1")
    return Sender(**fields)


def _is_preflight(scope: Scope) -> bool:
    asking = b"access-control-request-method"
    is_options = cast("dict[str, Any]", scope).get("method") == "OPTIONS"
    return is_options and any(name == asking for name, _ in scope["headers"])


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


_REASONS: Final = {
    "foreign_origin": "origin {0.origin} is not allowed; add it to cors_origins to allow its pages",
    "cross_site": "the request comes from a browser and may be that of another site's page; only "
    "pages of this broker and of cors_origins are allowed",
    "unknown_host": "host {0.host} is not allowed in browsers while authentication is disabled; "
    "add it to allowed_hosts, or use TLS",
}


async def _refuse(
    verdict: Verdict, sender: Sender, scope: Scope, receive: Receive, send: Send
) -> None:
    if scope["type"] == "http":
        await send_answer(send, problem(403, verdict, _REASONS[verdict].format(sender)))
        return
    await receive()
    reason = verdict.replace("_", " ")
    closing: Any = {"type": "websocket.close", "code": 1008, "reason": reason}
    await send(closing)
