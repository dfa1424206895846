"""Queen's environment variables, so that a Queen deployment can switch to Skep unchanged.

Variables that tune parts Skep does not have are ignored, and named in one warning. Older versions
had other names for some; of several names for one setting, the newest wins.
"""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Final, TypeAlias
from urllib.parse import quote, urlencode

from skep.settings.fields import CONNECTIONS_MAX, FIELDS, automatic_worker_count

Translated: TypeAlias = tuple[str, tuple[str, ...]]
"""The text of a setting, and the variables it was made from."""


def _seconds_from_ms(text: str) -> str:
    return str(int(text) / 1000) if text.isdecimal() else text


def _subscription_mode(text: str) -> str:
    return {"new-only": "new", "from_beginning": "all"}.get(text, text)


def _log_level(text: str) -> str:
    level = text.lower()
    ours = {"trace": "debug", "warn": "warning", "critical": "error", "off": "error"}
    return ours.get(level, level)


def _log_format(text: str) -> str:
    return "json" if text.lower() == "json" else "text"


SINGLE_VARIABLES: Final[Mapping[str, tuple[str, Callable[[str], str]]]] = {
    "HOST": ("host", str),
    "PORT": ("port", str),
    "NUM_WORKERS": ("workers", str),
    "DB_STATEMENT_TIMEOUT": ("statement_timeout_s", _seconds_from_ms),
    "QUEEN_CONCURRENCY_MODE": ("concurrency", str),
    "DEFAULT_TIMEOUT": ("default_wait_ms", str),
    "DEFAULT_BATCH_SIZE": ("default_batch", str),
    "DEFAULT_SUBSCRIPTION_MODE": ("default_subscription_mode", _subscription_mode),
    "POLL_DB_INTERVAL": ("poll_interval_ms", str),
    "QUEUE_MAX_POLL_INTERVAL": ("poll_interval_ms_max", str),
    "SIDECAR_POP_WAIT_INITIAL_MS": ("poll_interval_ms", str),
    "SIDECAR_POP_WAIT_MAX_MS": ("poll_interval_ms_max", str),
    "POP_WAIT_BASE_INTERVAL_MS": ("poll_interval_ms", str),
    "POP_WAIT_INITIAL_INTERVAL_MS": ("poll_interval_ms", str),
    "POP_WAIT_MAX_INTERVAL_MS": ("poll_interval_ms_max", str),
    "SIDECAR_MICRO_BATCH_WAIT_MS": ("push_hold_ms", str),
    "QUEEN_PUSH_MAX_HOLD_MS": ("push_hold_ms", str),
    "MAX_BODY_SIZE": ("body_bytes_max", str),
    "RETENTION_INTERVAL": ("retention_interval_s", _seconds_from_ms),
    "RETENTION_BATCH_SIZE": ("retention_batch", str),
    "EVICTION_INTERVAL": ("eviction_interval_s", _seconds_from_ms),
    "EVICTION_BATCH_SIZE": ("eviction_batch", str),
    "PARTITION_CLEANUP_DAYS": ("partition_cleanup_days", str),
    "METRICS_RETENTION_DAYS": ("history_retention_days", str),
    "STATS_INTERVAL_MS": ("metrics_interval_s", _seconds_from_ms),
    "FILE_BUFFER_DIR": ("spill_dir", str),
    "LOG_LEVEL": ("log_level", _log_level),
    "LOG_FORMAT": ("log_format", _log_format),
    "QUEEN_ENCRYPTION_KEY": ("encryption_keys", str),
    "JWT_ENABLED": ("jwt_enabled", str),
    "JWT_ALGORITHM": ("jwt_algorithm", str),
    "JWT_SECRET": ("jwt_secret", str),
    "JWT_JWKS_URL": ("jwt_jwks_url", str),
    "JWT_PUBLIC_KEY": ("jwt_public_key", str),
    "JWT_ISSUER": ("jwt_issuer", str),
    "JWT_AUDIENCE": ("jwt_audience", str),
    "JWT_CLOCK_SKEW": ("jwt_clock_skew_s", str),
    "JWT_SKIP_PATHS": ("jwt_skip_paths", str),
    "JWT_JWKS_REFRESH_INTERVAL": ("jwt_jwks_refresh_s", str),
    "JWT_JWKS_TIMEOUT_MS": ("jwt_jwks_timeout_s", _seconds_from_ms),
    "JWT_ROLES_CLAIM": ("jwt_roles_claim", str),
    "JWT_ROLES_ARRAY_CLAIM": ("jwt_roles_array_claim", str),
    "JWT_ROLE_ADMIN": ("jwt_role_admin", str),
    "JWT_ROLE_READ_WRITE": ("jwt_role_read_write", str),
    "JWT_ROLE_READ_ONLY": ("jwt_role_read_only", str),
    "QUEEN_UDP_NOTIFY_PORT": ("peer_port", str),
    "QUEEN_SYNC_SECRET": ("peer_secret", str),
    "DB_LOCK_TIMEOUT": ("lock_timeout_s", _seconds_from_ms),
}
"""Variables that carry one setting each: its field, and how the text is translated."""

DATABASE_VARIABLES: Final = ("PG_HOST", "PG_PORT", "PG_USER", "PG_PASSWORD", "PG_DB")
ENCRYPTION_VARIABLES: Final = ("PG_USE_SSL", "PG_SSL_REJECT_UNAUTHORIZED")
POOL_VARIABLES: Final = ("SIDECAR_POOL_SIZE", "DB_POOL_SIZE")
"""The first that is given counts; in 0.15 it is the one that carries messages."""
PEER_VARIABLES: Final = ("QUEEN_PEERS", "QUEEN_UDP_PEERS")
PORT_VARIABLE: Final = "QUEEN_UDP_NOTIFY_PORT"
SYNC_VARIABLE: Final = "QUEEN_SYNC_ENABLED"

_IGNORED: Final = """
    WORKER_ID WEBAPP_ROOT PG_SCHEMA DB_IDLE_TIMEOUT DB_CONNECTION_TIMEOUT DB_QUERY_TIMEOUT
    DB_MAX_RETRIES DB_POOL_ACQUISITION_TIMEOUT DB_TCP_USER_TIMEOUT_MS DB_KEEPALIVES_*
    DB_THREAD_POOL_* LIBQUEEN_* MAX_TIMEOUT MAX_PARTITION_CANDIDATES DEFAULT_LEASE_TIME
    DEFAULT_RETRY_* DEFAULT_MAX_SIZE DEFAULT_TTL DEFAULT_PRIORITY DEFAULT_DELAYED_PROCESSING
    DEFAULT_WINDOW_BUFFER DEFAULT_DLQ_* DEFAULT_RETENTION_* DEFAULT_COMPLETED_RETENTION_SECONDS
    DEFAULT_MAX_WAIT_TIME_SECONDS POLL_WORKER_* POP_WAIT_* SIDECAR_* *_USE_SIDECAR
    QUEUE_BACKOFF_* QUEUE_POLL_INTERVAL* STREAM_POLL_* STREAM_BACKOFF_* STREAM_MAX_POLL_INTERVAL
    STREAM_CONCURRENT_CHECKS RESPONSE_TIMER_INTERVAL_MS RESPONSE_BATCH_* BATCH_PUSH_*
    BATCH_INSERT_SIZE QUEEN_VEGAS_* QUEEN_*_PREFERRED_BATCH_SIZE QUEEN_*_MAX_HOLD_MS
    QUEEN_*_MAX_BATCH_SIZE QUEEN_*_MAX_CONCURRENT QUEEN_SYSTEM_EVENTS_* QUEEN_CACHE_*
    QUEEN_SYNC_* PEER_NOTIFY_BATCH_MS WS_COMPRESSION WS_HEARTBEAT_INTERVAL WS_IDLE_TIMEOUT
    WS_MAX_* LEASE_RECLAIM_INTERVAL STATS_HISTORY_* STATS_RECONCILE_INTERVAL_MS
    METRICS_SAMPLE_INTERVAL_MS METRICS_AGGREGATE_INTERVAL_S PARTITION_LOOKUP_* FILE_BUFFER_*
    CORS_MAX_AGE CORS_ALLOWED_*
"""
IGNORED_VARIABLES: Final = tuple(_IGNORED.split())
"""Variables of Queen for which there is nothing here to set. Names that any program may use, such
as `APP_NAME`, are left out. `CORS_ALLOWED_ORIGINS` is `*` in Queen, which is refused here."""

_TRANSLATED_TOGETHER: Final = frozenset(
    {
        *DATABASE_VARIABLES,
        *ENCRYPTION_VARIABLES,
        *POOL_VARIABLES,
        *PEER_VARIABLES,
        SYNC_VARIABLE,
    }
)


def is_understood(name: str) -> bool:
    """Whether a variable of Queen sets something here."""
    return name in SINGLE_VARIABLES or name in _TRANSLATED_TOGETHER


def is_ignored(name: str) -> bool:
    """Whether a variable of Queen has no equivalent here."""
    return not is_understood(name) and any(fnmatchcase(name, each) for each in IGNORED_VARIABLES)


def ignored_queen_variables(variables: Mapping[str, str]) -> list[str]:
    """Return the names of Queen's variables that set nothing here, sorted."""
    return sorted(filter(is_ignored, variables))


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
    peers = tuple(name for name in PEER_VARIABLES if name in variables)
    if peers:
        translated["peers"] = (",".join(_peers(variables)), peers)
    if variables.get(SYNC_VARIABLE) == "false":
        translated.pop("peers", None)
        translated.pop("peer_secret", None)
    pool = next((name for name in POOL_VARIABLES if name in variables), None)
    if pool is not None:
        workers = variables.get("NUM_WORKERS", "")
        translated["connections"] = (_connections(variables[pool], workers), (pool,))
    _raise_poll_interval_max(translated)
    return translated


def _raise_poll_interval_max(translated: dict[str, Translated]) -> None:
    """Keep a first interval above our default maximum, because Queen accepted it."""
    first, origin = translated.get("poll_interval_ms", ("", ()))
    default = FIELDS["poll_interval_ms_max"].default
    if first.isdecimal() and int(first) > default:
        translated.setdefault("poll_interval_ms_max", (first, origin))


def _peers(variables: Mapping[str, str]) -> list[str]:
    """Return the peers notified by HTTP and those by UDP, whose port may be left out."""
    urls, datagrams = (
        [word.strip() for word in variables.get(name, "").split(",") if word.strip()]
        for name in PEER_VARIABLES
    )
    port = variables.get(PORT_VARIABLE, str(FIELDS["peer_port"].default))
    for word in datagrams:
        address = word.rpartition("://")[2].rstrip("/")
        has_port = ":" in address.rpartition("]")[2]
        urls.append(address if has_port else f"{address}:{port}")
    return urls


def _database_url(variables: Mapping[str, str]) -> str:
    """Build a URL from `PG_*`, with Queen's own defaults for those not given."""
    user = quote(variables.get("PG_USER", "postgres"), safe="")
    password = quote(variables.get("PG_PASSWORD", "postgres"), safe="")
    database = quote(variables.get("PG_DB", "postgres"), safe="")
    host, port = variables.get("PG_HOST", "localhost"), variables.get("PG_PORT", "5432")
    query: dict[str, str] = {}
    if variables.get("PG_USE_SSL") == "true":
        accepts_any = variables.get("PG_SSL_REJECT_UNAUTHORIZED") == "false"
        query["sslmode"] = "prefer" if accepts_any else "require"
    if host.startswith("/"):
        # A directory of Unix sockets cannot be the authority of a URL.
        query, address = {"host": host, "port": port} | query, ""
    else:
        address = f"{f'[{host}]' if ':' in host else host}:{port}"
    url = f"postgresql://{user}:{password}@{address}/{database}"
    return f"{url}?{urlencode(query)}" if query else url


def _connections(pool: str, workers: str) -> str:
    """Divide Queen's pool, which serves the whole server, among the worker processes."""
    if not pool.isdecimal():
        return pool
    worker_count = int(workers) if workers.isdecimal() else 0
    share = int(pool) // (worker_count or automatic_worker_count())
    return str(max(1, min(share, CONNECTIONS_MAX)))
