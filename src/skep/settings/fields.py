"""What can be set: every field with its type, bounds, default and documentation.

The description of a field is the only place where its meaning is written; the flags of the
command line, `skep config` and the reference page all print it from here.
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from skep.model.errors import BadRequest
from skep.model.limits import POP_BATCH_MAX, WAIT_MS_MAX
from skep.model.schema_name import DEFAULT_SCHEMA, with_schema

AUTOMATIC_WORKERS_MAX: Final = 4
"""Beyond four processes PostgreSQL, not Python, is the limit; more has to be asked for."""

CONNECTIONS_MAX: Final = 64
"""Per worker. More busy backends than this from one process only make PostgreSQL slower."""


SECRETS: Final = frozenset({"archive_storage", "encryption_keys", "jwt_secret", "peer_secret"})
"""Settings that are never shown, whoever asks."""


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
    """The variables of this process. The ban on `os.environ` sends everybody else here."""
    return os.environ  # noqa: TID251 (the one place that may)


def set_process_variables(variables: Mapping[str, str]) -> None:
    """Set variables for the programs this process starts; Spark's JVM knows no other way."""
    os.environ.update(variables)  # noqa: TID251 (the one place that may)


def default_data_dir() -> Path:
    """Where the embedded database lies when nothing says otherwise.

    As root the server runs as an unprivileged account, which could not reach into root's home.
    """
    if os.geteuid() == 0:
        return Path("/var/lib/skep")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "skep"
    data_home = process_environment().get("XDG_DATA_HOME")
    return (Path(data_home) if data_home else Path.home() / ".local" / "share") / "skep"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an operator can choose. The description of a field is its documentation."""

    preset: Annotated[
        Literal["balanced", "throughput", "latency"],
        Meta(
            description="Defaults for a purpose, below everything that is set by hand: for most "
            "(`balanced`), for many clients that send much (`throughput`), for few clients that "
            "wait for each answer (`latency`)."
        ),
    ] = "balanced"
    host: Annotated[str, Meta(min_length=1, description="Address the broker listens on.")] = (
        "127.0.0.1"
    )
    port: Annotated[
        int, Meta(ge=0, le=65_535, description="Port the broker listens on; 0 takes a free one.")
    ] = 6632
    database_url: Annotated[
        Annotated[str, Meta(pattern="^postgres(ql)?://")] | None,
        Meta(
            description="PostgreSQL to use, as `postgresql://user:password@host:port/database`. "
            "Without it an embedded PostgreSQL is started in `data_dir`."
        ),
    ] = None
    database_schema: Annotated[
        str,
        Meta(
            description="Schema of that database in which everything lies: a plain lower-case name "
            "of at most 40 characters. Installations in several schemas of one database know "
            "nothing of each other. The same as `?schema=...` in the URL."
        ),
    ] = DEFAULT_SCHEMA
    data_dir: Annotated[
        Path,
        Meta(
            description="Directory of the embedded PostgreSQL, kept between runs: "
            "`/var/lib/skep` for root, else the user's data directory "
            "(`~/.local/share/skep` on Linux)."
        ),
    ] = msgspec.field(default_factory=default_data_dir)
    postgres_bin: Annotated[
        Path | None,
        Meta(
            description="Directory with `initdb` and `postgres` for the embedded database. "
            "Without it the installed wheel is used, then the system's."
        ),
    ] = None
    migrate: Annotated[
        Literal["auto", "always", "never"],
        Meta(
            description="Whether `skep serve` migrates the schema first: `auto` does so on the "
            "embedded database only."
        ),
    ] = "auto"
    workers: Annotated[
        int,
        Meta(
            ge=0,
            le=256,
            description="Worker processes that share the port; "
            f"0 is half the cores, at most {AUTOMATIC_WORKERS_MAX}.",
        ),
    ] = 1
    connections: Annotated[
        int,
        Meta(
            ge=1,
            le=CONNECTIONS_MAX,
            description="PostgreSQL connections per worker for push, pop and ack.",
        ),
    ] = 4
    query_connections: Annotated[
        int,
        Meta(
            ge=1,
            le=CONNECTIONS_MAX,
            description="PostgreSQL connections per worker for listings and configuration, "
            "apart so that they never delay a message.",
        ),
    ] = 2
    concurrency: Annotated[
        Literal["vegas", "static"],
        Meta(
            description="How many calls fly at once: `vegas` follows the measured latency with "
            "`connections` as its ceiling, `static` always allows `connections`."
        ),
    ] = "vegas"
    push_hold_ms: Annotated[
        float,
        Meta(
            ge=0,
            le=1_000,
            description="The longest that a push waits for others to share its call. A lone "
            "client never waits.",
        ),
    ] = 20.0
    statement_timeout_s: Annotated[
        float,
        Meta(gt=0, le=86_400, description="PostgreSQL cancels a statement that runs longer."),
    ] = 30.0
    lock_timeout_s: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            description="PostgreSQL gives up a statement that waits longer for one lock.",
        ),
    ] = 10.0
    body_bytes_max: Annotated[
        int, Meta(ge=1024, le=1 << 30, description="Largest request body accepted, in bytes.")
    ] = 16 << 20
    engine_weight_mib: Annotated[
        int,
        Meta(
            ge=1,
            description="Memory per worker for requests that wait or are in flight; "
            "above it requests are refused as overloaded.",
        ),
    ] = 256
    push_load_max: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="Percentage of `engine_weight_mib` that pushes may fill; transactions, "
            "cycles and messages for later as much each. Beyond it pushes are held back.",
        ),
    ] = 50
    pop_load_max: Annotated[
        int,
        Meta(ge=1, le=100, description="Percentage of `engine_weight_mib` that pops may fill."),
    ] = 25
    ack_load_max: Annotated[
        int,
        Meta(ge=1, le=100, description="Percentage of `engine_weight_mib` that acks may fill."),
    ] = 50
    overload_wait_s: Annotated[
        float,
        Meta(
            ge=0,
            le=60,
            description="How long a request that finds no room is held back before it is refused. "
            "A pop that waits for messages waits for room as long as for these.",
        ),
    ] = 5.0
    overload_status: Annotated[
        Literal[429, 503],
        Meta(
            description="Status of the refusal. Clients of Queen before 1.0 take a 429 as final "
            "and repeat a 503."
        ),
    ] = 429
    deferral: Annotated[
        Literal["asked", "always", "never"],
        Meta(
            description="Who gets a 202 instead of waiting for room: `asked` those who send "
            "`Prefer: respond-async` and queues with the option `deferral`, `always` everybody, "
            "`never` nobody."
        ),
    ] = "asked"
    operation_depth_max: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="Operations that may wait after a 202, in the whole installation; beyond "
            "it they are refused with 429.",
        ),
    ] = 10_000
    operation_depth_max_per_partition: Annotated[
        int,
        Meta(ge=1, le=100_000, description="Operations that may wait for one partition."),
    ] = 1_000
    operation_mib_max: Annotated[
        int,
        Meta(ge=1, le=1_000_000, description="Payload of all operations that may wait."),
    ] = 1_024
    operation_timeout_s: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            description="After so long another process carries out an operation that a process "
            "took and did not finish.",
        ),
    ] = 60.0
    operation_retries_max: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000,
            description="Attempts that an operation gets after the first before it is given up.",
        ),
    ] = 5
    operation_retention_s: Annotated[
        float,
        Meta(
            ge=1,
            le=31_536_000,
            description="How long one can ask for an operation that is done or was cancelled.",
        ),
    ] = 3_600.0
    operation_failed_retention_s: Annotated[
        float,
        Meta(
            ge=1,
            le=31_536_000,
            description="How long an operation that was given up is kept, with its payload.",
        ),
    ] = 604_800.0
    dedup_memory_mib: Annotated[
        int,
        Meta(
            ge=1,
            description="Memory per worker for recently seen transaction ids, about 300,000 per "
            "MiB. Duplicates are found whatever it holds; more memory means fewer probes in SQL.",
        ),
    ] = 64
    dedup_spill_dir: Annotated[
        Path | None,
        Meta(
            description="Directory for the older transaction ids (22 bytes each), in files that "
            "vanish with the process. Without it the system's temporary directory is used."
        ),
    ] = None
    default_wait_ms: Annotated[
        int,
        Meta(ge=0, le=WAIT_MS_MAX, description="How long a waiting pop parks unless it says."),
    ] = 30_000
    default_batch: Annotated[
        int, Meta(ge=1, le=POP_BATCH_MAX, description="Messages a pop asks for unless it says.")
    ] = 1
    default_subscription_mode: Annotated[
        Literal["all", "new"],
        Meta(
            description="Where a new consumer group starts unless it says: at the oldest message "
            "kept, or at the present."
        ),
    ] = "all"
    require_lease: Annotated[
        bool,
        Meta(
            description="Refuse acknowledgments that name no lease, also in transactions without "
            "`requiredLeases`. Queen's wire allows them, and whoever sends them may complete "
            "what another consumer holds."
        ),
    ] = False
    poll_interval_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=60_000,
            description="First fallback check of parked pops. Wake-ups make it rarely matter.",
        ),
    ] = 100
    poll_interval_ms_max: Annotated[
        int,
        Meta(ge=1, le=60_000, description="The fallback check doubles its interval up to this."),
    ] = 1_000
    retention_interval_s: Annotated[
        float,
        Meta(gt=0, le=86_400, description="How often queues are searched for what to delete."),
    ] = 300.0
    retention_batch: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Segments a step of retention looks at, at most. Steps that take long "
            "are made smaller by themselves.",
        ),
    ] = 1_000
    eviction_interval_s: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            description="How often queues with `maxWaitTimeSeconds` are searched for messages "
            "that waited too long.",
        ),
    ] = 60.0
    eviction_batch: Annotated[
        int, Meta(ge=1, le=100_000, description="Messages a step of eviction buries, at most.")
    ] = 1_000
    partition_cleanup_days: Annotated[
        int,
        Meta(
            ge=0,
            le=24_000,
            description="Partitions that hold nothing and got nothing for so many days are "
            "removed; 0 keeps them.",
        ),
    ] = 30
    dead_letter_retention_s: Annotated[
        int,
        Meta(
            ge=0,
            le=2**31 - 1,
            description="Dead letters older than so many seconds are deleted; 0 keeps them.",
        ),
    ] = 0
    history_retention_days: Annotated[
        int,
        Meta(ge=1, le=24_000, description="How long the record of what retention did is kept."),
    ] = 90
    scheduled_max: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="Messages of one queue that may wait for their `deliverAt`; beyond it "
            "further ones fail. Each request that schedules some counts up to here.",
        ),
    ] = 100_000
    shutdown_grace_s: Annotated[
        float,
        Meta(ge=0, le=3_600, description="How long requests may take to finish after SIGTERM."),
    ] = 10.0
    live_connections_max: Annotated[
        int,
        Meta(
            ge=0,
            le=100_000,
            description="WebSockets and event streams open at a time, per worker; 0 allows none.",
        ),
    ] = 1_000
    trace_retention_days: Annotated[
        int,
        Meta(ge=0, le=36_500, description="Days traces are kept; 0 keeps them for ever."),
    ] = 7
    job_retention_days: Annotated[
        int,
        Meta(
            ge=0,
            le=36_500,
            description="Days chains of jobs are kept after they ended; 0 keeps them for ever. A "
            "chain that a job of another one waited for stays as long as that one.",
        ),
    ] = 30
    encryption_keys: Annotated[
        str | None,
        Meta(
            description="Keys for queues with `encryptionEnabled`, separated by commas: 64 "
            "hexadecimal digits each, alone or as `<id>:<digits>`. The first encrypts, all "
            "decrypt; to rotate, put the new key before the old one. Never shown or logged."
        ),
    ] = None
    encryption_key_file: Annotated[
        Path | None,
        Meta(
            description="File with further encryption keys, one a line, `#` for comments. Its "
            "keys come after those of `encryption_keys`."
        ),
    ] = None
    client_connections_max: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Connections of clients open at a time, per worker; further ones are "
            "answered 503 and closed.",
        ),
    ] = 10_000
    cors_origins: Annotated[
        str | None,
        Meta(
            description="Origins whose web pages may call this broker, separated by commas, as "
            "`https://app.example.com`. Pages of all others are refused, except the broker's own."
        ),
    ] = None
    tls_certificate: Annotated[
        Path | None,
        Meta(
            description="PEM file with the broker's certificate and those that lead to its "
            "authority. With it the broker speaks TLS only."
        ),
    ] = None
    tls_key: Annotated[
        Path | None, Meta(description="PEM file with the certificate's private key.")
    ] = None
    tls_client_authority: Annotated[
        Path | None,
        Meta(
            description="PEM file with authorities; clients need a certificate of one of them. "
            "Tokens are asked for all the same."
        ),
    ] = None
    jwt_enabled: Annotated[
        bool,
        Meta(
            description="Whether callers need a bearer token. Without it everybody who reaches the "
            "port may do everything."
        ),
    ] = False
    jwt_algorithm: Annotated[
        Literal["HS256", "RS256", "ES256", "EdDSA", "auto"],
        Meta(
            description="How tokens are signed; `auto` accepts every algorithm there is a key for."
        ),
    ] = "HS256"
    jwt_secret: Annotated[
        str | None,
        Meta(
            description="Shared secret of HS256 tokens, at least 32 bytes. Never shown or logged."
        ),
    ] = None
    jwt_secret_file: Annotated[
        Path | None, Meta(description="File with the shared secret, instead of `jwt_secret`.")
    ] = None
    jwt_public_key: Annotated[
        str | None,
        Meta(description="Public keys or certificates in PEM, for RS256, ES256 and EdDSA tokens."),
    ] = None
    jwt_public_key_file: Annotated[
        Path | None, Meta(description="File with further public keys in PEM.")
    ] = None
    jwt_jwks_url: Annotated[
        str | None, Meta(description="Where a key server publishes its public keys (JWKS).")
    ] = None
    jwt_jwks_refresh_s: Annotated[
        float,
        Meta(gt=0, le=86_400, description="How often the keys of the key server are fetched."),
    ] = 3_600.0
    jwt_jwks_timeout_s: Annotated[
        float, Meta(gt=0, le=60, description="How long fetching them may take.")
    ] = 5.0
    jwt_issuer: Annotated[
        str | None, Meta(description="The `iss` tokens must have; without it any will do.")
    ] = None
    jwt_audience: Annotated[
        str | None,
        Meta(
            description="The `aud` tokens must have, or several separated by commas of which they "
            "must have one; without it any will do."
        ),
    ] = None
    jwt_clock_skew_s: Annotated[
        float,
        Meta(ge=0, le=600, description="How far the clocks of issuers may be off."),
    ] = 30.0
    jwt_roles_claim: Annotated[str, Meta(min_length=1, description="The claim with a role.")] = (
        "role"
    )
    jwt_roles_array_claim: Annotated[
        str, Meta(min_length=1, description="The claim with an array of roles; the highest counts.")
    ] = "roles"
    jwt_grants_claim: Annotated[
        str,
        Meta(min_length=1, description="The claim that restricts a token to some queues."),
    ] = "skep_grants"
    jwt_role_admin: Annotated[
        str, Meta(min_length=1, description="The word for the role that may do everything.")
    ] = "admin"
    jwt_role_read_write: Annotated[
        str,
        Meta(min_length=1, description="The word for the role that pushes, pops and configures."),
    ] = "read-write"
    jwt_role_read_only: Annotated[
        str, Meta(min_length=1, description="The word for the role that only looks.")
    ] = "read-only"
    jwt_skip_paths: Annotated[
        str,
        Meta(
            description="Paths that need no token, separated by commas. Only operations that read "
            "can be opened this way."
        ),
    ] = "/health,/metrics/prometheus,/metrics,/"
    spill_dir: Annotated[
        Path | None,
        Meta(
            description="Directory in which pushes are kept while PostgreSQL is away, in a folder "
            "for each database. It must survive a restart. Without it: `spill` in `data_dir`."
        ),
    ] = None
    spill_bytes_max: Annotated[
        int,
        Meta(
            ge=0,
            description="Most that may wait in `spill_dir` for one database, in bytes; beyond it "
            "pushes are refused. 0 keeps nothing: pushes fail while PostgreSQL is away.",
        ),
    ] = 4 << 30
    start_without_database: Annotated[
        Literal["away", "always", "never"],
        Meta(
            description="Whether `skep serve` starts while its database cannot be used, and keeps "
            "pushes on disk meanwhile. `away`: when nobody answers there; it ends with the reason "
            "when the host has no address, the login is refused or the database does not exist. "
            "`always`: then too. `never`: it ends in either case. Needs `spill_bytes_max`."
        ),
    ] = "away"
    spill_after_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3_600,
            description="How long PostgreSQL may be unreachable before pushes are kept on disk; "
            "until then they wait.",
        ),
    ] = 1.0
    archive_warehouse: Annotated[
        str | None,
        Meta(
            description="Where `skep archive` puts its files: a directory, or an address that "
            "begins with `s3://`, `gs://`, `abfs://` or `hdfs://`."
        ),
    ] = None
    archive_storage: Annotated[
        str | None,
        Meta(
            description="How to reach `archive_warehouse`, as `name=value` with commas between, "
            "by the names of pyiceberg: `s3.endpoint=http://host:9000,s3.region=eu-west-1`. "
            "Without it the usual places of the cloud in question are searched for credentials."
        ),
    ] = None
    peers: Annotated[
        str | None,
        Meta(
            description="Other instances on the same database, separated by commas: `host:port` "
            "is told by UDP, `http://host:port` by request. A name may stand for several "
            "addresses, and this instance may be among them. Instances work together without "
            "it; polls then notice the others' messages by their own checks."
        ),
    ] = None
    peer_port: Annotated[
        int,
        Meta(
            ge=1,
            le=65_535,
            description="UDP port on which this instance hears others, on the address of `host`. "
            "It is open only with `peers` or `peer_secret`.",
        ),
    ] = 6633
    peer_secret: Annotated[
        str | None,
        Meta(
            description="Secret that all instances share and sign with. Without it wake-ups are "
            "exchanged unsigned, and changes (configuration, maintenance) are neither sent nor "
            "taken. Never shown or logged."
        ),
    ] = None
    metrics_interval_s: Annotated[
        float,
        Meta(
            gt=0,
            le=60,
            description="How often a worker adds what it counted to the rollups in the database.",
        ),
    ] = 10.0
    metrics_queues_max: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000,
            description="Queues that metrics show by name: the first that a worker uses. The "
            "others are shown together, under an empty name.",
        ),
    ] = 100
    slow_call_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3_600,
            description="Calls to PostgreSQL that take so long are logged with their function "
            "and their size; 0 logs none.",
        ),
    ] = 1.0
    tracing: Annotated[
        Literal["off", "propagate", "otlp"],
        Meta(
            description="What is done with W3C trace context: nothing beyond carrying the headers "
            "of messages; storing the `traceparent` of a push with its messages; or also sending "
            "spans and metrics to a collector of OpenTelemetry."
        ),
    ] = "off"
    otlp_endpoint: Annotated[
        str,
        Meta(
            min_length=1,
            description="Collector that takes OTLP over HTTP, without `/v1/traces`; for "
            "`tracing = otlp`.",
        ),
    ] = "http://127.0.0.1:4318"
    trace_sample_ratio: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Share of the traces that begin here which are recorded; others follow "
            "the decision of whoever began them.",
        ),
    ] = 1.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Least severity logged.")
    ] = "info"
    log_format: Annotated[
        Literal["text", "json"],
        Meta(description="Log lines for people, or one JSON object a line for machines."),
    ] = "text"

    @property
    def worker_count(self) -> int:
        """How many worker processes to run, with 0 resolved."""
        return self.workers or automatic_worker_count()

    def installation(self, url: str) -> str:
        """Return the URL of what these settings want to use of a database: it names the schema."""
        return with_schema(url, self.database_schema)

    def printable(self) -> dict[str, str | int | float | None]:
        """Return every value fit for a screen or a log: passwords hidden, paths as text."""
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
    # Greedy up to the last @: a password that was not percent-encoded may hold @, / and ?.
    hidden = re.sub(r"(://[^:@/?#]*):.*@", r"\1:***@", url)
    return re.sub(r"([?&]password=)[^&#]*", r"\1***", hidden)


FIELDS: Final = {field.name: field for field in msgspec.structs.fields(Settings)}


def description(name: str) -> str:
    """Return the documentation of a setting, or nothing when it has none."""
    metadata = (part for part in get_args(FIELDS[name].type)[1:] if isinstance(part, Meta))
    return next((meta.description for meta in metadata if meta.description), "")


def accepted_values(name: str) -> str:
    """Say in words which values a setting takes."""
    base, bounds = _base_and_bounds(FIELDS[name].type)
    if get_origin(base) is Literal:
        return "one of " + ", ".join(f"`{value}`" for value in get_args(base))
    if bounds.pattern:
        return "a URL that begins with `postgresql://`"
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
