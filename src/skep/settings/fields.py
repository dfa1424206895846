"""Every setting with its type, bounds, default and description.

The description, the text under a field, is a setting's only documentation: the command line's
flags, `skep config`, the dashboard and the reference page print it from here.
"""

import ast
import inspect
import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from skep.model.errors import BadRequest
from skep.model.limits import POP_BATCH_MAX, WAIT_MS_MAX
from skep.model.schema_name import DEFAULT_SCHEMA, with_schema

AUTOMATIC_WORKERS_MAX: Final = 4
"""Beyond four processes PostgreSQL, not Python, is the bottleneck."""

CONNECTIONS_MAX: Final = 64
"""Per worker. More busy backends than this from one process only slow PostgreSQL down."""

OWN_CONNECTIONS: Final = 2
"""Connections of every worker for vital calls and for background work."""


SECRETS: Final = frozenset({"archive_storage", "encryption_keys", "jwt_secret", "peer_secret"})
"""Settings whose values are never shown."""


class InvalidSettings(BadRequest):
    """A setting is wrong."""

    code: ClassVar[str] = "invalid_settings"


def automatic_worker_count() -> int:
    """Half of the cores this process may use, because PostgreSQL needs the other half."""
    return min(max(1, usable_cores() // 2), AUTOMATIC_WORKERS_MAX)


def usable_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def process_environment() -> Mapping[str, str]:
    """The environment of this process; elsewhere a linter bans `os.environ`."""
    return os.environ  # noqa: TID251 (the one place that may)


def set_process_variables(variables: Mapping[str, str]) -> None:
    """Set variables for the programs this process starts, such as Spark's JVM."""
    os.environ.update(variables)  # noqa: TID251 (the one place that may)


def default_data_dir() -> Path:
    """Where the embedded database is by default.

    For root, outside of its home: PostgreSQL then runs as an unprivileged account.
    """
    if os.geteuid() == 0:
        return Path("/var/lib/skep")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "skep"
    data_home = process_environment().get("XDG_DATA_HOME")
    return (Path(data_home) if data_home else Path.home() / ".local" / "share") / "skep"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an operator can set."""

    preset: Literal["balanced", "throughput", "latency"] = "balanced"
    """Tuning preset; explicit settings override it: `balanced` for most, `throughput` for many
    clients that send a lot, `latency` for a few clients that wait for each response."""
    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 6632
    """Port to listen on; 0 picks a free port."""
    database_url: Annotated[str, Meta(pattern="^postgres(ql)?://")] | None = None
    """PostgreSQL to use, as `postgresql://user:password@host:port/database`. If unset, Skep starts
    an embedded PostgreSQL in `data_dir`."""
    database_schema: str = DEFAULT_SCHEMA
    """Database schema that holds all of Skep's objects: a plain lower-case name of at most 40
    characters. Installations in different schemas of one database are independent. Same as
    `?schema=...` in the URL."""
    data_dir: Path = msgspec.field(default_factory=default_data_dir)
    """Data directory of the embedded PostgreSQL, kept between runs: `/var/lib/skep` for root,
    otherwise the user's data directory (`~/.local/share/skep` on Linux)."""
    postgres_bin: Path | None = None
    """Directory that contains `initdb` and `postgres` for the embedded database. If unset, Skep
    uses the installed wheel, then the system's binaries."""
    migrate: Literal["auto", "always", "never"] = "auto"
    """Whether `skep serve` migrates the schema at startup: `auto` migrates the embedded database
    only."""
    workers: Annotated[int, Meta(ge=0, le=256)] = 0
    """Worker processes that share the port; 0 means half the cores, at most 4. Connections gather
    at one worker until it uses up a core, and spread then."""
    connections: Annotated[int, Meta(ge=1, le=CONNECTIONS_MAX)] = 4
    """Maximum number of PostgreSQL connections per worker for push, pop and ack. A worker opens
    them when it needs them, and closes what it did not need for a minute."""
    query_connections: Annotated[int, Meta(ge=1, le=CONNECTIONS_MAX)] = 2
    """Maximum number of PostgreSQL connections per worker for listings and configuration, separate
    so that they never delay messages. A worker has two more: for short calls that deliveries and
    the leader depend on, and for background work."""
    concurrency: Literal["vegas", "static"] = "vegas"
    """How many database calls run at once: `vegas` adapts to the measured latency, up to
    `connections`; `static` always allows `connections`."""
    push_hold_ms: Annotated[float, Meta(ge=0, le=1_000)] = 20.0
    """Maximum time a push waits for others to share its database call, in milliseconds. A single
    client never waits."""
    statement_timeout_s: Annotated[float, Meta(gt=0, le=86_400)] = 30.0
    """PostgreSQL cancels statements that run longer than this many seconds."""
    lock_timeout_s: Annotated[float, Meta(gt=0, le=86_400)] = 10.0
    """PostgreSQL cancels statements that wait longer than this many seconds for one lock."""
    body_bytes_max: Annotated[int, Meta(ge=1024, le=1 << 30)] = 16 << 20
    """Maximum size of a request body, in bytes."""
    pop_bytes_max: Annotated[int, Meta(ge=1 << 20, le=1 << 30)] = 16 << 20
    """Maximum size of what one call claims for the pops it serves, in bytes. A pop gets fewer
    messages than it asked for when they are larger; a single larger message is delivered alone."""
    engine_weight_mib: Annotated[int, Meta(ge=1)] = 256
    """Memory per worker for requests that are waiting or in flight, in MiB; beyond it requests are
    refused as overloaded."""
    push_load_max: Annotated[int, Meta(ge=1, le=100)] = 50
    """Percentage of `engine_weight_mib` that pushes may fill; transactions, stream cycles and
    scheduled messages may each fill as much. Beyond it pushes wait."""
    pop_load_max: Annotated[int, Meta(ge=1, le=100)] = 25
    """Percentage of `engine_weight_mib` that pops may fill."""
    ack_load_max: Annotated[int, Meta(ge=1, le=100)] = 50
    """Percentage of `engine_weight_mib` that acks may fill."""
    overload_wait_s: Annotated[float, Meta(ge=0, le=60)] = 5.0
    """How long a request waits for capacity before it is refused, in seconds. A long-polling pop
    waits for capacity as long as it waits for messages."""
    overload_status: Literal[429, 503] = 429
    """HTTP status of an overload refusal. Queen clients before 1.0 treat 429 as final and retry
    503."""
    deferral: Literal["asked", "always", "never"] = "asked"
    """Who receives a 202 instead of waiting for capacity: `asked` for requests with `Prefer:
    respond-async` and queues with the option `deferral`, `always` for all, `never` for none."""
    operation_depth_max: Annotated[int, Meta(ge=1, le=10_000_000)] = 10_000
    """Maximum number of deferred operations (answered 202) in the installation; beyond it requests
    are refused with 429."""
    operation_depth_max_per_partition: Annotated[int, Meta(ge=1, le=100_000)] = 1_000
    """Maximum number of deferred operations per partition."""
    operation_mib_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 1_024
    """Maximum total payload of deferred operations, in MiB."""
    operation_timeout_s: Annotated[float, Meta(gt=0, le=86_400)] = 60.0
    """Seconds after which another process takes over an operation that a process claimed and did
    not finish."""
    operation_retries_max: Annotated[int, Meta(ge=0, le=1_000)] = 5
    """Maximum number of retries of a deferred operation."""
    operation_retention_s: Annotated[float, Meta(ge=1, le=31_536_000)] = 3_600.0
    """How long a completed or cancelled operation can be queried, in seconds."""
    operation_failed_retention_s: Annotated[float, Meta(ge=1, le=31_536_000)] = 604_800.0
    """How long a failed operation is kept, with its payload, in seconds."""
    dedup_memory_mib: Annotated[int, Meta(ge=1)] = 64
    """Memory per worker that transaction ids inside the duplicate window take at first, in MiB;
    about 300,000 ids per MiB. When it is used up and the ids are still inside the window, more is
    taken in steps, up to `dedup_memory_max_mib`."""
    dedup_memory_max_mib: Annotated[int, Meta(ge=1)] = 512
    """Limit on that memory per worker, in MiB; about 300,000 ids per MiB. Duplicates are found
    beyond it as well, but older ids are then looked up in the database with every push. Ids that
    come by transactions, staged messages and the drain after an outage may take a quarter each."""
    dedup_spill_dir: Path | None = None
    """Directory for older transaction ids (22 bytes each), in files that are removed when the
    process ends. Defaults to the system's temporary directory."""
    default_wait_ms: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)] = 30_000
    """Default long-poll timeout of a pop, in milliseconds."""
    default_batch: Annotated[int, Meta(ge=1, le=POP_BATCH_MAX)] = 1
    """Default number of messages per pop."""
    default_subscription_mode: Literal["all", "new"] = "all"
    """Where a new consumer group starts by default: `all` at the oldest message, `new` at the end
    of the log."""
    polls_create_queues: bool = True
    """Whether a poll creates the queue and the partition it names if they do not exist, as in
    Queen. Otherwise it is answered 404. The parameter `create` of a poll overrides this."""
    require_lease: bool = False
    """Refuse acknowledgments without a lease id, also in transactions without `requiredLeases`.
    Queen's protocol allows them, but they may complete messages that another consumer holds."""
    strict: bool = False
    """Refuse pushed items with unknown fields or without a payload, for all queues; the queue
    option of the same name does for one. Queen's protocol ignores such fields and stores null, so
    a misspelt payload is lost."""
    poll_interval_ms: Annotated[int, Meta(ge=1, le=60_000)] = 100
    """First interval of the fallback check of waiting pops, in milliseconds. Pops are normally
    woken by pushes."""
    poll_interval_ms_max: Annotated[int, Meta(ge=1, le=60_000)] = 1_000
    """Maximum interval of the fallback check, which doubles from `poll_interval_ms`."""
    retention_interval_s: Annotated[float, Meta(gt=0, le=86_400)] = 300.0
    """Interval between retention runs, in seconds."""
    retention_batch: Annotated[int, Meta(ge=1, le=100_000)] = 1_000
    """Maximum number of segments per retention step. Slow steps shrink automatically."""
    eviction_interval_s: Annotated[float, Meta(gt=0, le=86_400)] = 60.0
    """Interval between eviction runs for queues with `maxWaitTimeSeconds`, in seconds."""
    eviction_batch: Annotated[int, Meta(ge=1, le=100_000)] = 1_000
    """Maximum number of messages per eviction step."""
    partition_cleanup_days: Annotated[int, Meta(ge=0, le=24_000)] = 30
    """Days after which empty, inactive partitions are removed; 0 keeps them."""
    dead_letter_retention_s: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    """Seconds after which dead letters are deleted; 0 keeps them."""
    history_retention_days: Annotated[int, Meta(ge=1, le=24_000)] = 90
    """Days that metrics history and the retention log are kept."""
    scheduled_max: Annotated[int, Meta(ge=1, le=10_000_000)] = 100_000
    """Maximum number of scheduled messages (`deliverAt`) per queue; further ones fail. Every push
    that schedules messages counts up to this number."""
    shutdown_grace_s: Annotated[float, Meta(ge=0, le=3_600)] = 10.0
    """How long requests may take to finish after SIGTERM, in seconds."""
    live_connections_max: Annotated[int, Meta(ge=0, le=100_000)] = 1_000
    """Maximum number of open WebSockets and event streams per worker; 0 allows none."""
    trace_retention_days: Annotated[int, Meta(ge=0, le=36_500)] = 7
    """Days that traces are kept; 0 keeps them forever."""
    job_retention_days: Annotated[int, Meta(ge=0, le=36_500)] = 30
    """Days that finished job chains are kept; 0 keeps them forever. A chain that another chain
    waited for is kept as long as that one."""
    encryption_keys: str | None = None
    """Comma-separated keys for queues with `encryptionEnabled`: 64 hexadecimal digits each,
    optionally as `<id>:<digits>`. The first key encrypts, all decrypt; to rotate, put the new key
    first. Never shown or logged."""
    encryption_key_file: Path | None = None
    """File with additional encryption keys, one per line, `#` starts a comment. Its keys come after
    those of `encryption_keys`."""
    client_connections_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    """Maximum number of client connections per worker; further ones are answered with 503 and
    closed."""
    cors_origins: str | None = None
    """Comma-separated origins of web pages that may call this broker, such as
    `https://app.example.com`. All others are refused, except the broker's own pages."""
    allowed_hosts: str | None = None
    """Comma-separated host names, such as `skep.example.com` or `*.example.com`, by which browsers
    may reach this broker over plain HTTP while authentication is disabled; `*` allows all. IP
    addresses, names without a dot, local domains (`.localhost`, `.local`, `.internal`, `.lan`,
    `.home.arpa`, `.test`, `.svc`), the machine's own name, `host` and the names in `cors_origins`
    are always allowed. Programs are not checked, and neither are browsers that use TLS."""
    tls_certificate: Path | None = None
    """PEM file with the broker's certificate chain. If set, the broker accepts TLS only."""
    tls_key: Path | None = None
    """PEM file with the certificate's private key."""
    tls_client_authority: Path | None = None
    """PEM file with certificate authorities; clients must present a certificate signed by one of
    them. Tokens are still required."""
    jwt_enabled: bool = False
    """Require a bearer token. If disabled, any client that can reach the port has full access."""
    jwt_algorithm: Literal["HS256", "RS256", "ES256", "EdDSA", "auto"] = "HS256"
    """Signature algorithm of tokens; `auto` accepts every algorithm for which a key is
    configured."""
    jwt_secret: str | None = None
    """Shared secret of HS256 tokens, at least 32 bytes. Never shown or logged."""
    jwt_secret_file: Path | None = None
    """File with the shared secret, instead of `jwt_secret`."""
    jwt_public_key: str | None = None
    """Public keys or certificates in PEM format, for RS256, ES256 and EdDSA tokens."""
    jwt_public_key_file: Path | None = None
    """File with additional public keys in PEM format."""
    jwt_jwks_url: str | None = None
    """URL of a JWKS document with the public keys."""
    jwt_jwks_refresh_s: Annotated[float, Meta(gt=0, le=86_400)] = 3_600.0
    """Interval between fetches of the JWKS document, in seconds."""
    jwt_jwks_timeout_s: Annotated[float, Meta(gt=0, le=60)] = 5.0
    """Timeout of a JWKS fetch, in seconds."""
    jwt_issuer: str | None = None
    """Required `iss` claim; if unset, it is not checked."""
    jwt_audience: str | None = None
    """Required `aud` claim, or a comma-separated list of which a token must have one; if unset, it
    is not checked."""
    jwt_clock_skew_s: Annotated[float, Meta(ge=0, le=600)] = 30.0
    """Tolerated clock difference to token issuers, in seconds."""
    jwt_roles_claim: Annotated[str, Meta(min_length=1)] = "role"
    """Claim that contains the role."""
    jwt_roles_array_claim: Annotated[str, Meta(min_length=1)] = "roles"
    """Claim that contains an array of roles; the highest applies."""
    jwt_grants_claim: Annotated[str, Meta(min_length=1)] = "skep_grants"
    """Claim that restricts a token to certain queues."""
    jwt_role_admin: Annotated[str, Meta(min_length=1)] = "admin"
    """Name of the role with full access."""
    jwt_role_read_write: Annotated[str, Meta(min_length=1)] = "read-write"
    """Name of the role that may push, pop and configure."""
    jwt_role_read_only: Annotated[str, Meta(min_length=1)] = "read-only"
    """Name of the role that may only read."""
    jwt_skip_paths: str = "/health,/metrics/prometheus,/metrics,/"
    """Comma-separated paths that need no token. Only read operations can be made public."""
    spill_dir: Path | None = None
    """Directory that stores pushes while PostgreSQL is unreachable, with one subdirectory per
    database. It must survive a restart. Defaults to `spill` in `data_dir`."""
    spill_bytes_max: Annotated[int, Meta(ge=0)] = 4 << 30
    """Maximum size of the stored pushes per database, in bytes; beyond it pushes are refused. 0
    disables the spill: pushes fail while PostgreSQL is unreachable."""
    start_without_database: Literal["away", "always", "never"] = "away"
    """Whether `skep serve` starts without a usable database and stores pushes on disk until it is
    available. `away`: if the database does not respond and a broker on this machine has used it
    before; startup fails if the login is refused or the database does not exist. `always`: in
    those cases too. `never`: startup fails in all of them. Requires `spill_bytes_max`."""
    spill_after_s: Annotated[float, Meta(ge=0, le=3_600)] = 1.0
    """How long PostgreSQL may be unreachable before pushes are stored on disk, in seconds; until
    then they wait."""
    archive_warehouse: str | None = None
    """Location of the files of `skep archive` and of the tables of pipelines: a directory or a URL
    that starts with `s3://`, `gs://`, `abfs://` or `hdfs://`."""
    archive_storage: str | None = None
    """Access properties of `archive_warehouse`, as comma-separated `name=value` pairs with
    pyiceberg's names: `s3.endpoint=http://host:9000,s3.region=eu-west-1`. If unset, credentials
    come from the cloud provider's default locations."""
    peers: str | None = None
    """Comma-separated list of other instances on the same database: `host:port` is notified by UDP,
    `http://host:port` by HTTP. A name may resolve to several addresses, and this instance may be
    among them. Optional: without it, pops find other instances' messages by their own checks."""
    peer_port: Annotated[int, Meta(ge=1, le=65_535)] = 6633
    """UDP port that receives notifications from other instances, on the address of `host`. It is
    open only if `peers` or `peer_secret` is set."""
    peer_secret: str | None = None
    """Shared secret that signs messages between instances. If unset, wake-ups are unsigned, and
    changes (configuration, maintenance) are neither sent nor accepted. Never shown or logged."""
    metrics_interval_s: Annotated[float, Meta(gt=0, le=60)] = 10.0
    """Interval at which a worker writes its counters to the database, in seconds."""
    metrics_queues_max: Annotated[int, Meta(ge=0, le=10_000)] = 100
    """Maximum number of queues that metrics show by name: the first that a worker uses. All others
    are combined under an empty name."""
    slow_call_s: Annotated[float, Meta(ge=0, le=3_600)] = 1.0
    """PostgreSQL calls that take at least this many seconds are logged with function name and size;
    0 disables the log."""
    tracing: Literal["off", "propagate", "otlp"] = "off"
    """W3C trace context: `off` only carries message headers, `propagate` stores the `traceparent`
    of a push with its messages, `otlp` also sends spans and metrics to an OpenTelemetry
    collector."""
    otlp_endpoint: Annotated[str, Meta(min_length=1)] = "http://127.0.0.1:4318"
    """OTLP/HTTP endpoint of the collector, without `/v1/traces`; for `tracing = otlp`."""
    trace_sample_ratio: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """Fraction of traces started here that are recorded; all others follow the decision of their
    parent."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum log level."""
    log_format: Literal["text", "json"] = "text"
    """Log format: `text` for people, `json` for one JSON object per line."""

    @property
    def worker_count(self) -> int:
        """How many worker processes to run, with 0 resolved."""
        return self.workers or automatic_worker_count()

    @property
    def connections_per_worker(self) -> int:
        """How many sessions a worker has in PostgreSQL."""
        return self.connections + self.query_connections + OWN_CONNECTIONS

    def installation(self, url: str) -> str:
        """Return the URL of a database with the schema of these settings."""
        return with_schema(url, self.database_schema)

    def printable(self) -> dict[str, str | int | float | None]:
        """Return every value with secrets hidden and paths as text."""
        values: dict[str, Any] = msgspec.structs.asdict(self)
        if self.database_url is not None:
            values["database_url"] = redacted_url(self.database_url)
        if self.jwt_jwks_url is not None:
            values["jwt_jwks_url"] = redacted_url(self.jwt_jwks_url)
        values |= {name: "***" for name in SECRETS if values[name] is not None}
        return {name: str(v) if isinstance(v, Path) else v for name, v in values.items()}

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{k}={v!r}' for k, v in self.printable().items())})"


def redacted_url(url: str) -> str:
    """Hide the password of a database URL, in its authority and in its query."""
    # Greedy up to the last @: a password that is not percent-encoded may contain @, / and ?.
    hidden = re.sub(r"(://[^:@/?#]*):.*@", r"\1:***@", url)
    return re.sub(r"([?&]password=)[^&#]*", r"\1***", hidden)


FIELDS: Final = {field.name: field for field in msgspec.structs.fields(Settings)}


def description(name: str) -> str:
    """Return the description of a setting."""
    return _descriptions()[name]


@cache
def _descriptions() -> dict[str, str]:
    """Read the texts under the fields from the source; Python does not keep them."""
    (declared,) = ast.parse(inspect.getsource(Settings)).body
    assert isinstance(declared, ast.ClassDef)
    texts: dict[str, str] = {}
    for member, below in pairwise(declared.body):
        match member, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[name] = " ".join(text.split())
            case _:
                pass
    return texts


def accepted_values(name: str) -> str:
    """Describe the values a setting accepts."""
    base, bounds = _base_and_bounds(FIELDS[name].type)
    if get_origin(base) is Literal:
        return "one of " + ", ".join(f"`{value}`" for value in get_args(base))
    if bounds.pattern:
        return "a URL that starts with `postgresql://`"
    if base is bool:
        return "`true` or `false`"
    words = {int: "a whole number", float: "a number", str: "text", Path: "a path"}[base]
    if bounds.ge is not None and bounds.le is not None:
        return f"{words} from {bounds.ge} to {bounds.le}"
    if bounds.ge is not None:
        return f"{words}, at least {bounds.ge}"
    if bounds.gt is not None and bounds.le is not None:
        return f"{words} above {bounds.gt}, at most {bounds.le}"
    return words


def _base_and_bounds(annotation: object) -> tuple[Any, Meta]:
    """Strip `Annotated` and `| None`; return what is left and the innermost constraint."""
    bounds = Meta()
    while get_origin(annotation) is not Literal and get_args(annotation):
        annotation, *rest = get_args(annotation)
        bounds = next((part for part in rest if isinstance(part, Meta)), bounds)
    return annotation, bounds
