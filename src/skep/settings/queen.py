"""Queen's environment variables, so that a Queen deployment can switch to Skep unchanged.

Variables that tune parts Skep does not have are silently ignored.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias
from urllib.parse import quote, urlencode

from skep.settings.fields import CONNECTIONS_MAX, automatic_worker_count

Translated: TypeAlias = tuple[str, tuple[str, ...]]
"""The text of a setting, and the variables it was made from."""


def _as_it_is(text: str) -> str:
    return text


def _seconds_from_ms(text: str) -> str:
    return str(int(text) / 1000) if text.isdecimal() else text


def _subscription_mode(text: str) -> str:
    return {"new-only": "new", "from_beginning": "all"}.get(text, text)


def _log_level(text: str) -> str:
    level = text.lower()
    ours = {"trace": "debug", "warn": "warning", "critical": "error", "off": "error"}
    return ours.get(level, level)


SINGLE_VARIABLES: Final[Mapping[str, tuple[str, Callable[[str], str]]]] = {
    "HOST": ("host", _as_it_is),
    "PORT": ("port", _as_it_is),
    "NUM_WORKERS": ("workers", _as_it_is),
    "DB_STATEMENT_TIMEOUT": ("statement_timeout_s", _seconds_from_ms),
    "QUEEN_CONCURRENCY_MODE": ("concurrency", _as_it_is),
    "DEFAULT_TIMEOUT": ("default_wait_ms", _as_it_is),
    "DEFAULT_BATCH_SIZE": ("default_batch", _as_it_is),
    "DEFAULT_SUBSCRIPTION_MODE": ("default_subscription_mode", _subscription_mode),
    "POP_WAIT_INITIAL_INTERVAL_MS": ("poll_interval_ms", _as_it_is),
    "POP_WAIT_MAX_INTERVAL_MS": ("poll_interval_ms_max", _as_it_is),
    "RETENTION_INTERVAL": ("retention_interval_s", _seconds_from_ms),
    "RETENTION_BATCH_SIZE": ("retention_batch", _as_it_is),
    "EVICTION_INTERVAL": ("eviction_interval_s", _seconds_from_ms),
    "EVICTION_BATCH_SIZE": ("eviction_batch", _as_it_is),
    "PARTITION_CLEANUP_DAYS": ("partition_cleanup_days", _as_it_is),
    "METRICS_RETENTION_DAYS": ("history_retention_days", _as_it_is),
    "STATS_INTERVAL_MS": ("metrics_interval_s", _seconds_from_ms),
    "FILE_BUFFER_DIR": ("spill_dir", _as_it_is),
    "LOG_LEVEL": ("log_level", _log_level),
    "QUEEN_ENCRYPTION_KEY": ("encryption_keys", _as_it_is),
    "JWT_ENABLED": ("jwt_enabled", _as_it_is),
    "JWT_ALGORITHM": ("jwt_algorithm", _as_it_is),
    "JWT_SECRET": ("jwt_secret", _as_it_is),
    "JWT_JWKS_URL": ("jwt_jwks_url", _as_it_is),
    "JWT_PUBLIC_KEY": ("jwt_public_key", _as_it_is),
    "JWT_ISSUER": ("jwt_issuer", _as_it_is),
    "JWT_AUDIENCE": ("jwt_audience", _as_it_is),
    "JWT_CLOCK_SKEW": ("jwt_clock_skew_s", _as_it_is),
    "JWT_SKIP_PATHS": ("jwt_skip_paths", _as_it_is),
    "JWT_JWKS_REFRESH_INTERVAL": ("jwt_jwks_refresh_s", _as_it_is),
    "JWT_JWKS_TIMEOUT_MS": ("jwt_jwks_timeout_s", _seconds_from_ms),
    "JWT_ROLES_CLAIM": ("jwt_roles_claim", _as_it_is),
    "JWT_ROLES_ARRAY_CLAIM": ("jwt_roles_array_claim", _as_it_is),
    "JWT_ROLE_ADMIN": ("jwt_role_admin", _as_it_is),
    "JWT_ROLE_READ_WRITE": ("jwt_role_read_write", _as_it_is),
    "JWT_ROLE_READ_ONLY": ("jwt_role_read_only", _as_it_is),
    "QUEEN_PEERS": ("peers", _as_it_is),
    "QUEEN_UDP_PEERS": ("peers", _as_it_is),
    "QUEEN_UDP_NOTIFY_PORT": ("peer_port", _as_it_is),
    "QUEEN_SYNC_SECRET": ("peer_secret", _as_it_is),
    "DB_LOCK_TIMEOUT": ("lock_timeout_s", _seconds_from_ms),
}
"""Variables that carry one setting each: its field, and how the text is translated."""

DATABASE_VARIABLES: Final = ("PG_HOST", "PG_PORT", "PG_USER", "PG_PASSWORD", "PG_DB")
POOL_VARIABLE: Final = "DB_POOL_SIZE"
SYNC_VARIABLE: Final = "QUEEN_SYNC_ENABLED"


def translate_queen_variables(variables: Mapping[str, str]) -> dict[str, Translated]:
    """Return the settings, by field, that Queen's variables set."""
    translated: dict[str, Translated] = {
        field: (translate(variables[name]), (name,))
        for name, (field, translate) in SINGLE_VARIABLES.items()
        if name in variables
    }
    given = tuple(name for name in DATABASE_VARIABLES if name in variables)
    if given:
        translated["database_url"] = (_database_url(variables), given)
    if variables.get(SYNC_VARIABLE) == "false":
        translated.pop("peers", None)
        translated.pop("peer_secret", None)
    if POOL_VARIABLE in variables:
        translated["connections"] = (_connections(variables), (POOL_VARIABLE,))
    return translated


def _database_url(variables: Mapping[str, str]) -> str:
    """Build a URL from `PG_*`, with Queen's own defaults for those not given."""
    user = quote(variables.get("PG_USER", "postgres"), safe="")
    password = quote(variables.get("PG_PASSWORD", "postgres"), safe="")
    database = quote(variables.get("PG_DB", "postgres"), safe="")
    host, port = variables.get("PG_HOST", "localhost"), variables.get("PG_PORT", "5432")
    query = {"sslmode": "require"} if variables.get("PG_USE_SSL") == "true" else {}
    if host.startswith("/"):
        # A directory of Unix sockets cannot be the authority of a URL.
        query, address = {"host": host, "port": port} | query, ""
    else:
        address = f"{f'[{host}]' if ':' in host else host}:{port}"
    url = f"postgresql://{user}:{password}@{address}/{database}"
    return f"{url}?{urlencode(query)}" if query else url


def _connections(variables: Mapping[str, str]) -> str:
    """Divide Queen's pool, which serves the whole server, among the worker processes."""
    pool, workers = variables[POOL_VARIABLE], variables.get("NUM_WORKERS", "")
    if not pool.isdecimal():
        return pool
    worker_count = int(workers) if workers.isdecimal() else 1
    share = int(pool) // (worker_count or automatic_worker_count())
    return str(max(1, min(share, CONNECTIONS_MAX)))
