"""What is well and what is not with the PostgreSQL of a broker. Pure: facts in, findings out."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from skep.cli.server.findings import Finding, broken, ok, warning
from skep.db.schema.migrate import SchemaState
from skep.db.schema.plan import SERVER_VERSION_MIN
from skep.db.schema.server import ServerFacts

SKEW_S_WARN: Final = 1.0
SKEW_S_BROKEN: Final = 30.0
CONNECTIONS_SPARE: Final = 5
"""For people and tools beside the broker."""

_UNSAFE: Final = {
    "fsync": ("off", "a crash of the machine may destroy the database"),
    "full_page_writes": ("off", "a crash of the machine may destroy the database"),
    "synchronous_commit": ("off", "messages that were acknowledged may be lost by a crash"),
    "autovacuum": ("off", "tables grow without end, and get slow"),
    "track_counts": ("off", "autovacuum does not know what to do"),
    "default_transaction_read_only": ("on", "nothing can be written"),
}
"""Settings of PostgreSQL, the value that hurts, and how."""


def judge_server(facts: ServerFacts, *, wanted: int, now: datetime) -> Iterator[Finding]:
    """Judge a server.

    Args:
        facts: What it says of itself.
        wanted: Connections that a broker of these settings takes.
        now: This machine's clock, when the answer was there.
    """
    yield _version(facts)
    yield _role(facts)
    yield _connections(facts, wanted)
    yield _clock(facts, now)
    yield _settings(facts)
    installed = ", ".join(facts.extensions) or "none"
    yield ok("extensions", f"none is needed; installed: {installed}")
    yield ok("database size", f"{facts.size_bytes / 1e6:,.0f} MB")


def judge_schema(state: SchemaState, *, migrates: bool) -> Finding:
    """Judge the schema; a broker that migrates by itself may find it behind."""
    match state.verdict:
        case "current":
            return ok("migrations", "the schema is that of this skep")
        case "behind":
            found = f"the schema is behind this skep by {len(state.differences)} files"
            if migrates:
                return warning("migrations", found, "`skep serve` will migrate it at its start")
            return broken("migrations", found, "run `skep migrate`")
        case "ahead":
            return broken(
                "migrations",
                f"a newer skep has migrated it (unknown here: {', '.join(state.differences)})",
                "upgrade this skep, or use another database",
            )


def _version(facts: ServerFacts) -> Finding:
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
            "give the address of the primary, or promote this one",
        )
    return ok("version", f"PostgreSQL {facts.version}")


def _role(facts: ServerFacts) -> Finding:
    if facts.owns_schema or (facts.owns_schema is None and facts.can_create_schema):
        return ok("permissions", f"the role {facts.role} may do what is needed")
    if facts.owns_schema is None:
        return broken(
            "permissions",
            f"the role {facts.role} may not create the schema {facts.schema}",
            f"grant it: grant create on database ... to {facts.role}",
        )
    return warning(
        "permissions",
        f"the role {facts.role} does not own the schema {facts.schema}, so it cannot migrate it",
        "run `skep migrate` as the owner, or make this role a member of it",
    )


def _connections(facts: ServerFacts, wanted: int) -> Finding:
    left = max(facts.connections_max - facts.connections_used, 0)
    found = (
        f"{facts.connections_used} of {facts.connections_max} in use, {facts.connections_ours} of "
        f"them by brokers; a broker of these settings takes {wanted}"
    )
    room = left + facts.connections_ours
    if room < wanted:
        advice = "raise max_connections of PostgreSQL, or lower `connections` or `workers`"
        return broken("connections", found, advice)
    if room < wanted + CONNECTIONS_SPARE:
        advice = "hardly any is left for people and tools: raise max_connections of PostgreSQL"
        return warning("connections", found, advice)
    return ok("connections", found)


def _clock(facts: ServerFacts, now: datetime) -> Finding:
    # Read at some moment of the question, so half of it is the best guess.
    there = facts.clock + timedelta(seconds=facts.round_trip_s / 2)
    skew_s = (there - now).total_seconds()
    doubt_s = facts.round_trip_s / 2
    found = f"PostgreSQL's clock is {skew_s:+.3f} s from this machine's (±{doubt_s:.3f} s)"
    if abs(skew_s) - doubt_s > SKEW_S_BROKEN:
        return broken("clock", found, "let both machines follow NTP: tokens expire by this clock")
    if abs(skew_s) - doubt_s > SKEW_S_WARN:
        return warning("clock", found, "let both machines follow NTP")
    return ok("clock", found)


def _settings(facts: ServerFacts) -> Finding:
    hurting = [
        (name, value, harm)
        for name, (value, harm) in _UNSAFE.items()
        if facts.settings.get(name) == value
    ]
    if not hurting:
        return ok("settings of PostgreSQL", "nothing unsafe")
    said = "; ".join(f"{name} is {value}: {harm}" for name, value, harm in hurting)
    names = ", ".join(name for name, _, _ in hurting)
    return warning("settings of PostgreSQL", said, f"set back to the default: {names}")
