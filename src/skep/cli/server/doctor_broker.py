"""What is well and what is not with the broker that commands speak to."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from skep import __version__
from skep.cli.server.findings import Finding, broken, ok, warning
from skep.cli.shared.connection import Server, find_server
from skep.model.errors import SkepError
from skep.settings.connection import ConnectionChoice

if TYPE_CHECKING:
    from skep.client import Client

TIMEOUT_S: Final = 5.0
TOKEN_S_WARN: Final = 86_400.0


def examine_broker(choice: ConnectionChoice) -> Iterator[Finding]:
    """Ask each broker that flags, variables and contexts name."""
    from skep.client import Client

    try:
        server = find_server(choice)
    except SkepError as error:
        yield broken("broker", error.message, "`skep context list` shows the contexts")
        return
    for url in server.urls:
        with Client(
            url, token=server.token, retries=0, timeout_s=TIMEOUT_S, connect_timeout_s=TIMEOUT_S
        ) as client:
            yield from _examine_one(client, url, server)


def _examine_one(client: "Client", url: str, server: Server) -> Iterator[Finding]:
    try:
        health = client.health()
    except SkepError as error:
        yield _judge_silence(url, server, error)
        return
    yield judge_version(url, health["version"])
    shared: Any = health.get("shared_state") or {}
    if shared.get("enabled"):
        yield ok("instances", f"{url} talks to others")
    try:
        yield judge_account(client.request("GET", "/api/me"))
    except SkepError as error:
        yield judge_refusal(error, server)


def _judge_silence(url: str, server: Server, error: SkepError) -> Finding:
    if server.origin == "the default":
        return warning("broker", f"none runs at {url}", "start one with `skep serve`")
    advice = "start it with `skep serve`, or correct the URL; `skep context show` says where it is"
    return broken("broker", f"{error.message} (the URL is from {server.origin})", advice)


def judge_version(url: str, version: str) -> Finding:
    """Judge whether a broker and this command are of one version."""
    if version == __version__:
        return ok("broker", f"{url} serves, version {version}")
    found = f"{url} serves, version {version}; this command is {__version__}"
    return warning("broker", found, "install the same version on both sides")


def judge_account(account: dict[str, Any], now: datetime | None = None) -> Finding:
    """Judge what a broker knows of us."""
    user = account["user"]
    if not account["authenticated"]:
        return ok("access", "the broker asks nobody for a token")
    found = f"the token is accepted: {user['username'] or 'nameless'}, role {user['role']}"
    if account.get("isRestricted"):
        found += ", some queues only"
    expires_at = account.get("expiresAt")
    if expires_at is None:
        return ok("access", found)
    left = datetime.fromisoformat(expires_at) - (now or datetime.now(UTC))
    left_s = left.total_seconds()
    if left_s < TOKEN_S_WARN:
        return warning("access", f"{found}; it ends in {left_s / 3600:.1f} h", "get a new token")
    return ok("access", f"{found}, until {expires_at}")


def judge_refusal(error: SkepError, server: Server) -> Finding:
    """Judge why a broker does not let us in."""
    if server.token is None:
        advice = "give a token with --token, SKEP_TOKEN or `skep context add`"
        return broken("access", "the broker asks for a token, and there is none", advice)
    found = f"the token from {server.token_origin} is refused: {error.message}"
    return broken("access", found, "get a new token, and give it with `skep context add`")
