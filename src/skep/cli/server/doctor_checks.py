"""The checks of `skep doctor`: settings, machine, database and broker. They change nothing."""

import asyncio
import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

from rich.table import Table
from rich.text import Text

from skep import __version__
from skep.cli.admin.top_figures import Metrics, by_label, read_exposition
from skep.cli.shared.connection import Server, find_server
from skep.cli.shared.exits import ExtraMissing, require_server_extra
from skep.client import Client
from skep.model.errors import SkepError
from skep.model.plurals import counted
from skep.settings import EffectiveSettings, Settings, load_settings
from skep.settings.connection import ConnectionChoice
from skep.settings.peers import peer_addresses
from skep.settings.security import security_warnings

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from skep.db.schema.migrate import SchemaState
    from skep.db.schema.server import ServerFacts

T = TypeVar("T")
State: TypeAlias = Literal["ok", "warning", "broken"]

TIMEOUT_S: Final = 5.0
TOKEN_S_WARN: Final = 86_400.0
DEDUP_SHARE_WARN: Final = 0.7
DEDUP_METRICS: Final = ("skep_dedup_lacking_seconds", "skep_dedup_keys", "skep_dedup_keys_max")
DISK_BYTES_WARN: Final = 5 << 30
DISK_BYTES_BROKEN: Final = 512 << 20
SKEW_S_WARN: Final = 1.0
SKEW_S_BROKEN: Final = 30.0
CONNECTIONS_SHARE_WARN: Final = 0.8
"""Brokers, workers and Spark open more connections when they need them, and people open some."""

_STYLES: Final[dict[State, str]] = {"ok": "green", "warning": "yellow", "broken": "bold red"}

_UNSAFE: Final = {
    "fsync": ("off", "a crash of the machine may destroy the database"),
    "full_page_writes": ("off", "a crash of the machine may destroy the database"),
    "synchronous_commit": ("off", "a crash may lose acknowledged messages"),
    "autovacuum": ("off", "tables grow without limit, and get slow"),
    "track_counts": ("off", "autovacuum lacks its statistics"),
    "default_transaction_read_only": ("on", "nothing can be written"),
}
"""PostgreSQL settings, the harmful value, and its effect."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check."""

    topic: str
    state: State
    found: str
    advice: str | None = None
    """What to do; set unless the state is ok."""


def ok(topic: str, found: str) -> Finding:
    """Report a check that passed."""
    return Finding(topic, "ok", found)


def warning(topic: str, found: str, advice: str) -> Finding:
    """Report something that works but needs attention."""
    return Finding(topic, "warning", found, advice)


def broken(topic: str, found: str, advice: str) -> Finding:
    """Report something that does not work."""
    return Finding(topic, "broken", found, advice)


def findings_table(findings: Sequence[Finding]) -> Table:
    """Return findings as a table, the advice below each."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for finding in findings:
        said = Text(finding.found)
        if finding.advice is not None:
            said.append(f"\n→ {finding.advice}", style="italic")
        table.add_row(Text(finding.state, style=_STYLES[finding.state]), finding.topic, said)
    return table


def examine(
    config_file: Path | None, flags: Mapping[str, object], choice: ConnectionChoice
) -> Iterator[Finding]:
    """Run all checks."""
    try:
        effective: EffectiveSettings | None = load_settings(config_file=config_file, flags=flags)
    except SkepError as error:
        effective = None
        advice = "fix it; `skep config` shows every setting and where it comes from"
        yield broken("settings", error.message, advice)
    if effective is not None:
        yield from judge_settings(effective)
        yield from _examine_home(effective.settings)
    yield from examine_broker(choice, effective.settings if effective is not None else None)


def _examine_home(settings: Settings) -> Iterator[Finding]:
    """Check what only matters where a broker runs."""
    try:
        require_server_extra()
    except ExtraMissing:
        yield ok("server", "not installed here; machine and database are not checked")
        return
    yield from judge_machine(settings)
    yield from _examine_database(settings)


def _examine_database(settings: Settings) -> Iterator[Finding]:
    from skep.app.processes.database import should_migrate
    from skep.db.access.sessions import require_own_sessions
    from skep.db.schema.migrate import schema_state
    from skep.db.schema.server import inspect_server

    dsn = find_database(settings)
    if isinstance(dsn, Finding):
        yield dsn
        return
    try:
        facts = _run(inspect_server(dsn, timeout_s=TIMEOUT_S))
    except SkepError as error:
        advice = "start PostgreSQL, or correct `database_url`; `skep config` shows it"
        yield broken("database", error.message, advice)
        return
    wanted = settings.worker_count * settings.connections_per_worker
    yield from judge_server(facts, wanted=wanted, now=datetime.now(UTC))
    try:
        _run(require_own_sessions(dsn, timeout_s=TIMEOUT_S))
        yield ok("pooler", "no connection pooler detected")
    except SkepError as error:
        yield broken("pooler", error.message, "set `database_url` to PostgreSQL itself")
        return
    try:
        state = _run(schema_state(dsn))
        yield judge_schema(state, migrates=should_migrate(settings))
    except SkepError as error:
        yield broken("migrations", error.message, "run `skep migrate`")


def _run(work: "Coroutine[object, object, T]") -> T:
    async def in_time() -> T:
        async with asyncio.timeout(TIMEOUT_S * 2):
            return await work

    return asyncio.run(in_time())


def judge_settings(effective: EffectiveSettings) -> Iterator[Finding]:
    """Check the effective settings."""
    changed = sum(origin != "default" for origin in effective.origins.values())
    if effective.warnings:
        advice = "correct or remove it; `skep config` shows where each value comes from"
        yield from (warning("settings", said, advice) for said in effective.warnings)
    else:
        yield ok("settings", f"valid; {changed} set, the others have their defaults")
    risks = security_warnings(effective.settings)
    for risk in risks:
        said, _, advice = risk.partition(": ")
        yield warning("security", said, advice or "see the security reference")
    if not risks:
        yield ok("security", _protection(effective.settings))


def _protection(settings: Settings) -> str:
    who = "callers need a token" if settings.jwt_enabled else "only local callers are allowed"
    return f"with these settings {who}; `skep serve` would listen on {settings.host}"


def judge_machine(settings: Settings) -> Iterator[Finding]:
    """Check the disks that a broker writes to, and its peers."""
    from skep.spill.directory import spill_directory

    places = {"data_dir": settings.data_dir} if settings.database_url is None else {}
    if settings.spill_bytes_max:
        places["spill_dir"] = spill_directory(settings)
    for name, path in places.items():
        yield judge_disk(name, path)
    yield from _judge_peers(settings)


def judge_disk(name: str, path: Path) -> Finding:
    """Check whether a directory is writable, and its free space."""
    place = _nearest_existing(path)
    topic = f"disk of {name}"
    if not os.access(place, os.W_OK | os.X_OK):
        return broken(topic, f"{path} is not writable", f"change its owner, or set `{name}`")
    usage = shutil.disk_usage(place)
    found = f"{usage.free / 1e9:,.1f} of {usage.total / 1e9:,.1f} GB free at {path}"
    advice = f"free some space, or put `{name}` on another disk"
    if usage.free < DISK_BYTES_BROKEN:
        return broken(topic, found, advice)
    return warning(topic, found, advice) if usage.free < DISK_BYTES_WARN else ok(topic, found)


def _nearest_existing(path: Path) -> Path:
    path = path.absolute()
    return next(each for each in (path, *path.parents) if each.exists())


def _judge_peers(settings: Settings) -> Iterator[Finding]:
    addresses = peer_addresses(settings)
    if not addresses.datagrams and not addresses.urls:
        yield ok("peers", "none configured: a single instance, or the others name this one")
    for host, port in addresses.datagrams:
        yield _judge_name(host, port)
    for url in addresses.urls:
        yield _judge_url(url)


def _judge_name(host: str, port: int) -> Finding:
    """Check that a peer's name resolves; whether it receives datagrams cannot be known here."""
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError as error:
        advice = "fix `peers`, or the name service"
        return broken("peers", f"cannot resolve {host}: {error.strerror}", advice)
    return ok("peers", f"{host}, port {port}, resolves; it is notified by UDP")


def _judge_url(url: str) -> Finding:
    try:
        with Client(url, retries=0, timeout_s=3.0, connect_timeout_s=3.0) as client:
            version = client.health()["version"]
    except Exception as error:  # noqa: BLE001 (any failure of a peer is a finding)
        advice = "start it, or fix `peers`; deliveries are slower without it, not wrong"
        return warning("peers", f"{error}", advice)
    return ok("peers", f"{url} answers, version {version}")


def find_database(settings: Settings) -> str | Finding:
    """Return the URL of the database, or why there is none to check."""
    if settings.database_url is not None:
        return settings.installation(settings.database_url)
    from skep.db.embedded.cluster import ClusterDirectory

    try:
        running = ClusterDirectory(settings.data_dir).running_dsn()
    except PermissionError:
        advice = "run it as the user of `skep serve`"
        return warning("database", f"{settings.data_dir} is not readable", advice)
    if running is None:
        found = f"the embedded PostgreSQL in {settings.data_dir} is not running"
        return warning("database", found, "`skep serve` starts it; or set `database_url`")
    return settings.installation(running)


def judge_server(facts: "ServerFacts", *, wanted: int, now: datetime) -> Iterator[Finding]:
    """Check a PostgreSQL server: a broker uses `wanted` connections, its answer arrived `now`."""
    yield _version(facts)
    yield _role(facts)
    yield _connections(facts, wanted)
    yield _clock(facts, now)
    yield _settings(facts)
    installed = ", ".join(facts.extensions) or "none"
    yield ok("extensions", f"none required; installed: {installed}")
    yield ok("database size", f"{facts.size_bytes / 1e6:,.0f} MB")


def judge_schema(state: "SchemaState", *, migrates: bool) -> Finding:
    """Check the schema; a broker that migrates at its start may find it behind."""
    match state.verdict:
        case "current":
            return ok("migrations", "the schema is current")
        case "behind":
            files = counted(len(state.differences), "file")
            found = f"the schema is behind this version by {files}"
            if migrates:
                return warning("migrations", found, "`skep serve` migrates it when it starts")
            return broken("migrations", found, "run `skep migrate`")
        case "ahead":
            return broken(
                "migrations",
                f"a newer version migrated it (unknown here: {', '.join(state.differences)})",
                "upgrade this skep, or use another database",
            )


def _version(facts: "ServerFacts") -> Finding:
    from skep.db.schema.plan import SERVER_VERSION_MIN

    if facts.version_num < SERVER_VERSION_MIN * 10_000:
        return broken(
            "version",
            f"PostgreSQL {facts.version} is too old",
            f"upgrade it to {SERVER_VERSION_MIN} or newer, or use the embedded one",
        )
    if facts.is_standby:
        return broken(
            "version",
            f"PostgreSQL {facts.version} is a standby, which takes no writes",
            "use the address of the primary, or promote this one",
        )
    return ok("version", f"PostgreSQL {facts.version}")


def _role(facts: "ServerFacts") -> Finding:
    if facts.owns_schema or (facts.owns_schema is None and facts.can_create_schema):
        return ok("permissions", f"role {facts.role} has the required permissions")
    if facts.owns_schema is None:
        return broken(
            "permissions",
            f"role {facts.role} may not create schema {facts.schema}",
            f"grant it: grant create on database ... to {facts.role}",
        )
    return warning(
        "permissions",
        f"role {facts.role} does not own schema {facts.schema}, so it cannot migrate it",
        "run `skep migrate` as the owner, or make this role a member of it",
    )


def _connections(facts: "ServerFacts", wanted: int) -> Finding:
    expected = facts.connections_used + max(wanted - facts.connections_ours, 0)
    found = (
        f"{facts.connections_used} of {facts.connections_max} in use{_most_of(facts)}; a broker "
        f"with these settings uses up to {wanted}"
    )
    if expected > facts.connections_max:
        advice = "raise max_connections in PostgreSQL, or lower `connections` or `workers`"
        return broken("connections", found, advice)
    if expected > facts.connections_max * CONNECTIONS_SHARE_WARN:
        advice = "they will run out: raise max_connections, or close what needs no connection"
        return warning("connections", found, advice)
    return ok("connections", found)


def _most_of(facts: "ServerFacts") -> str:
    """Name the programs with the most connections."""
    most = sorted(facts.connections_by.items(), key=lambda pair: -pair[1])[:3]
    return "".join([" (", ", ".join(f"{name} {held}" for name, held in most), ")"]) if most else ""


def _clock(facts: "ServerFacts", now: datetime) -> Finding:
    # Half of the round trip is the best guess of when the clock was read.
    there = facts.clock + timedelta(seconds=facts.round_trip_s / 2)
    skew_s = (there - now).total_seconds()
    doubt_s = facts.round_trip_s / 2
    found = f"PostgreSQL's clock is {skew_s:+.3f} s from this machine's (±{doubt_s:.3f} s)"
    if abs(skew_s) - doubt_s > SKEW_S_BROKEN:
        return broken("clock", found, "use NTP on both machines: tokens expire by this clock")
    if abs(skew_s) - doubt_s > SKEW_S_WARN:
        return warning("clock", found, "use NTP on both machines")
    return ok("clock", found)


def _settings(facts: "ServerFacts") -> Finding:
    hurting = [
        (name, value, harm)
        for name, (value, harm) in _UNSAFE.items()
        if facts.settings.get(name) == value
    ]
    if not hurting:
        return ok("PostgreSQL settings", "nothing unsafe")
    said = "; ".join(f"{name} is {value}: {harm}" for name, value, harm in hurting)
    names = ", ".join(name for name, _, _ in hurting)
    return warning("PostgreSQL settings", said, f"reset to the default: {names}")


def examine_broker(choice: ConnectionChoice, settings: Settings | None) -> Iterator[Finding]:
    """Check each broker that options, variables and contexts name.

    Args:
        choice: Which brokers.
        settings: Of this command, by which disks and database were examined.
    """
    try:
        server = find_server(choice)
    except SkepError as error:
        yield broken("broker", error.message, "`skep context list` shows the contexts")
        return
    for url in server.urls:
        with Client(
            url, token=server.token, retries=0, timeout_s=TIMEOUT_S, connect_timeout_s=TIMEOUT_S
        ) as client:
            yield from _examine_one(client, url, server, settings)


def _examine_one(
    client: Client, url: str, server: Server, settings: Settings | None
) -> Iterator[Finding]:
    try:
        health = client.health()
    except SkepError as error:
        yield _judge_silence(url, server, error)
        return
    yield judge_version(url, health["version"])
    shared: Any = health.get("shared_state") or {}
    if shared.get("enabled"):
        yield ok("instances", f"{url} is connected to others")
    with suppress(SkepError):  # not everyone may read them
        metrics = read_exposition(client.download("/metrics/prometheus").decode(), DEDUP_METRICS)
        yield from judge_duplicates(metrics)
    try:
        yield judge_account(client.request("GET", "/api/me"))
    except SkepError as error:
        yield judge_refusal(error, server)
        return
    with suppress(SkepError):  # administrators may read them
        theirs = client.request("GET", "/api/v1/system/settings")["settings"]
        yield judge_home(url, {each["name"]: each["value"] for each in theirs}, settings)


def judge_home(url: str, theirs: Mapping[str, Any], ours: Settings | None) -> Finding:
    """Check that the broker uses the database that was examined: here may be another one."""
    found = f"{url} listens on {theirs['host']}"
    if ours is None or _database_named(theirs) == _database_named(ours.printable()):
        return ok("broker settings", found + ", and uses the database examined above")
    uses = theirs["database_url"] or f"the embedded database in {theirs['data_dir']}"
    advice = (
        "what is said above of disks and database is not about this broker: run `skep doctor` "
        "where it runs, with its settings"
    )
    return warning("broker settings", f"{found}, and uses {uses}", advice)


def _database_named(settings: Mapping[str, Any]) -> tuple[str, str]:
    """Return what names a database for all programs: hosts go by many names, so not the host."""
    url = settings["database_url"]
    name = str(settings["data_dir"]) if url is None else urlsplit(str(url)).path
    return name, settings["database_schema"]


def _judge_silence(url: str, server: Server, error: SkepError) -> Finding:
    if server.origin == "the default":
        return warning("broker", f"no broker runs at {url}", "start one with `skep serve`")
    advice = "start it with `skep serve`, or correct the URL; `skep context show` shows its origin"
    return broken("broker", f"{error.message} (the URL is from {server.origin})", advice)


def judge_version(url: str, version: str) -> Finding:
    """Compare the versions of a broker and this command."""
    if version == __version__:
        return ok("broker", f"{url} answers, version {version}")
    found = f"{url} answers, version {version}; this command is {__version__}"
    return warning("broker", found, "install the same version on both")


def judge_duplicates(metrics: Metrics) -> Iterator[Finding]:
    """Check that the ids inside the duplicate window fit into the memory of the workers."""
    advice = "raise `dedup_memory_max_mib`, or shorten `dedupWindowSeconds` of the busiest queues"
    lacking_s, keys, keys_max = (by_label(metrics[name], "worker") for name in DEDUP_METRICS)
    if longest_s := max(lacking_s.values(), default=0):
        found = f"ids of {longest_s:,.0f} s of the window are looked up in PostgreSQL at every push"
        yield warning("duplicates", found, advice)
        return
    share = max([keys[each] / keys_max[each] for each in keys if keys_max.get(each)], default=None)
    if share is None:
        return
    found = f"ids inside the window take {share:.0%} of what `dedup_memory_max_mib` allows"
    if share >= DEDUP_SHARE_WARN:
        yield warning("duplicates", found, advice)
    else:
        yield ok("duplicates", found)


def judge_account(account: dict[str, Any], now: datetime | None = None) -> Finding:
    """Check the account that the token belongs to."""
    user = account["user"]
    if not account["authenticated"]:
        return ok("access", "authentication is disabled")
    found = f"the token is accepted: {user['username'] or 'no name'}, role {user['role']}"
    if account.get("isRestricted"):
        found += ", some queues only"
    expires_at = account.get("expiresAt")
    if expires_at is None:
        return ok("access", found)
    left = datetime.fromisoformat(expires_at) - (now or datetime.now(UTC))
    left_s = left.total_seconds()
    if left_s < TOKEN_S_WARN:
        return warning("access", f"{found}; it expires in {left_s / 3600:.1f} h", "get a new token")
    return ok("access", f"{found}, until {expires_at}")


def judge_refusal(error: SkepError, server: Server) -> Finding:
    """Explain why a broker denies access."""
    if server.token is None:
        advice = "pass a token with --token, SKEP_TOKEN or `skep context add`"
        return broken("access", "the broker requires a token, and there is none", advice)
    found = f"the token from {server.token_origin} is refused: {error.message}"
    return broken("access", found, "get a new token, and save it with `skep context add`")
