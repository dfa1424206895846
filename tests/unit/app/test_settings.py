import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.settings import InvalidSettings, Settings, load_settings, redacted_url
from skep.settings.fields import (
    FIELDS,
    accepted_values,
    automatic_worker_count,
    default_data_dir,
)
from skep.settings.layers import PRESETS, VARIABLES
from skep.settings.peers import PeerAddresses, peer_addresses
from skep.settings.queen import SINGLE_VARIABLES, is_ignored, is_understood

QUEEN_0_15 = """
PORT HOST WORKER_ID NUM_WORKERS WEBAPP_ROOT LOG_LEVEL PG_USER PG_HOST PG_DB PG_PASSWORD PG_PORT
PG_USE_SSL PG_SSL_REJECT_UNAUTHORIZED DB_POOL_SIZE DB_IDLE_TIMEOUT DB_CONNECTION_TIMEOUT
DB_STATEMENT_TIMEOUT DB_LOCK_TIMEOUT DB_TCP_USER_TIMEOUT_MS DB_KEEPALIVES_IDLE
DB_KEEPALIVES_INTERVAL DB_KEEPALIVES_COUNT LIBQUEEN_INFLIGHT_DEADLINE_MS DEFAULT_TIMEOUT
DEFAULT_BATCH_SIZE DEFAULT_SUBSCRIPTION_MODE POP_WAIT_INITIAL_INTERVAL_MS
POP_WAIT_BACKOFF_THRESHOLD POP_WAIT_BACKOFF_MULTIPLIER POP_WAIT_MAX_INTERVAL_MS
QUEUE_BACKOFF_CLEANUP_THRESHOLD RESPONSE_TIMER_INTERVAL_MS RESPONSE_BATCH_SIZE RESPONSE_BATCH_MAX
SIDECAR_POOL_SIZE SIDECAR_MICRO_BATCH_WAIT_MS SIDECAR_MAX_ITEMS_PER_TX SIDECAR_MAX_BATCH_SIZE
SIDECAR_MAX_PENDING_COUNT QUEEN_CONCURRENCY_MODE QUEEN_VEGAS_MIN_LIMIT QUEEN_VEGAS_MAX_LIMIT
QUEEN_VEGAS_ALPHA QUEEN_VEGAS_BETA QUEEN_VEGAS_RTT_WINDOW_SAMPLES QUEEN_VEGAS_RTT_MIN_WINDOW_SEC
QUEEN_VEGAS_UPDATE_INTERVAL_MS QUEEN_PUSH_PREFERRED_BATCH_SIZE QUEEN_PUSH_MAX_HOLD_MS
QUEEN_ACK_MAX_BATCH_SIZE QUEEN_RENEW_LEASE_MAX_CONCURRENT QUEEN_STREAMS_CYCLE_MAX_HOLD_MS
RETENTION_INTERVAL RETENTION_BATCH_SIZE PARTITION_CLEANUP_DAYS METRICS_RETENTION_DAYS
EVICTION_INTERVAL EVICTION_BATCH_SIZE STATS_INTERVAL_MS STATS_RECONCILE_INTERVAL_MS
STATS_HISTORY_RETENTION_DAYS METRICS_SAMPLE_INTERVAL_MS METRICS_AGGREGATE_INTERVAL_S
PARTITION_LOOKUP_RECONCILE_INTERVAL_MS PARTITION_LOOKUP_RECONCILE_LOOKBACK_SECONDS
DB_THREAD_POOL_SERVICE_THREADS FILE_BUFFER_DIR FILE_BUFFER_FLUSH_MS FILE_BUFFER_MAX_BATCH
FILE_BUFFER_EVENTS_PER_FILE QUEEN_ENCRYPTION_KEY QUEEN_UDP_PEERS QUEEN_UDP_NOTIFY_PORT
QUEEN_SYNC_ENABLED QUEEN_SYNC_SECRET QUEEN_CACHE_PARTITION_MAX QUEEN_CACHE_PARTITION_TTL_MS
QUEEN_CACHE_REFRESH_INTERVAL_MS QUEEN_SYNC_HEARTBEAT_MS QUEEN_SYNC_DEAD_THRESHOLD_MS
QUEEN_SYNC_RECV_BUFFER_MB JWT_ENABLED JWT_ALGORITHM JWT_SECRET JWT_JWKS_URL JWT_PUBLIC_KEY
JWT_ISSUER JWT_AUDIENCE JWT_CLOCK_SKEW JWT_SKIP_PATHS JWT_JWKS_REFRESH_INTERVAL JWT_JWKS_TIMEOUT_MS
JWT_ROLES_CLAIM JWT_ROLES_ARRAY_CLAIM JWT_ROLE_ADMIN JWT_ROLE_READ_WRITE JWT_ROLE_READ_ONLY
"""


def load(*, file=None, flags=None, **environment):
    return load_settings(config_file=file, flags=flags, environment=environment)


@pytest.fixture(autouse=True)
def no_file_around(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def write_file(tmp_path):
    def write(text, name="skep.toml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


class TestLayers:
    def test_without_anything_every_value_is_a_default(self):
        effective = load()

        assert effective.settings == Settings()
        assert set(effective.origins.values()) == {"default"}
        assert effective.warnings == ()

    def test_each_layer_wins_over_the_one_before(self, write_file):
        file = write_file("port = 1\nworkers = 1\ndefault_batch = 1\nconnections = 1")

        effective = load(
            file=file,
            NUM_WORKERS="2",
            DEFAULT_BATCH_SIZE="2",
            SKEP_DEFAULT_BATCH="3",
            SKEP_CONNECTIONS="3",
            flags={"connections": 4},
        )

        assert effective.settings.port == 1
        assert effective.settings.workers == 2
        assert effective.settings.default_batch == 3
        assert effective.settings.connections == 4

    def test_the_origin_of_each_value_is_known(self, write_file):
        file = write_file("port = 1")

        origins = load(
            file=file, PG_HOST="db", PG_USER="me", SKEP_WORKERS="1", flags={"log_level": "debug"}
        ).origins

        assert origins["host"] == "default"
        assert origins["port"] == f"file {file}"
        assert origins["database_url"] == "environment PG_HOST, PG_USER"
        assert origins["workers"] == "environment SKEP_WORKERS"
        assert origins["log_level"] == "flag --log-level"

    def test_a_flag_that_was_not_given_hides_nothing(self):
        assert load(flags={"port": None}, SKEP_PORT="7").settings.port == 7

    def test_an_empty_variable_is_one_that_is_not_set(self):
        assert load(SKEP_PORT="", PG_HOST="").settings == Settings()

    def test_a_flag_mends_a_broken_environment(self):
        effective = load(SKEP_PORT="tcp://10.0.0.1:6632", flags={"port": 6632})

        assert effective.settings.port == 6632

    def test_a_relative_directory_becomes_absolute(self, tmp_path):
        assert load(flags={"data_dir": "here"}).settings.data_dir == tmp_path / "here"


class TestFile:
    def test_the_file_in_the_working_directory_is_found(self, write_file):
        write_file("port = 7")

        assert load().settings.port == 7

    def test_the_variable_names_another_file(self, write_file):
        write_file("port = 7")
        other = write_file("port = 8", name="other.toml")

        assert load(SKEP_CONFIG=str(other)).settings.port == 8

    def test_the_flag_wins_over_the_variable(self, write_file):
        named, other = write_file("port = 7", "a.toml"), write_file("port = 8", "b.toml")

        assert load(file=named, SKEP_CONFIG=str(other)).settings.port == 7

    def test_a_named_file_must_exist(self, tmp_path):
        with pytest.raises(InvalidSettings, match="cannot read the settings file"):
            load(file=tmp_path / "absent.toml")

    def test_broken_toml_is_refused_with_its_place(self, write_file):
        with pytest.raises(InvalidSettings, match=r"skep\.toml is not valid TOML.*line 2"):
            load(file=write_file("port = 1\nworkers = x"))

    def test_an_unknown_key_is_refused_with_the_nearest_name(self, write_file):
        with pytest.raises(InvalidSettings, match="unknown setting `prot`; did you mean `port`"):
            load(file=write_file("prot = 1"))

    def test_the_type_of_a_value_matters(self, write_file):
        with pytest.raises(InvalidSettings, match=r"port \(file .*\) must be a whole number"):
            load(file=write_file('port = "6632"'))


class TestEnvironment:
    @pytest.mark.parametrize(("variable", "name"), VARIABLES.items())
    def test_every_setting_has_a_variable(self, variable, name, write_file):
        value = msgspec.structs.asdict(Settings())[name]
        samples = {
            "database_url": "postgresql://db",
            "postgres_bin": "/pg",
            "dedup_spill_dir": "/spill",
            "spill_dir": "/spilled",
            "encryption_keys": "0" * 64,
            "peers": "other:6633",
            "encryption_key_file": str(write_file("0" * 64, name="keys")),
            "cors_origins": "https://app.example.com",
            "jwt_secret": "s" * 32,
            "jwt_secret_file": str(write_file("s" * 32, name="secret")),
            "jwt_public_key_file": str(write_file("a key", name="public")),
            "jwt_jwks_url": "https://keys.example.com",
            "tls_certificate": "/certificate",
            "tls_key": "/key",
            "tls_client_authority": "/authority",
        }
        text = samples.get(name, str(value))
        # These do not stand alone.
        others = {"SKEP_TLS_CERTIFICATE": "/c", "SKEP_TLS_KEY": "/k"} if "tls" in name else {}

        effective = load(**{**others, variable: text})

        assert effective.origins[name] == f"environment {variable}"
        assert str(getattr(effective.settings, name)) == text

    def test_an_unknown_variable_is_warned_about_with_the_nearest_name(self):
        effective = load(SKEP_PROT="1")

        assert effective.warnings == ("unknown variable SKEP_PROT; did you mean `SKEP_PORT`?",)

    @pytest.mark.parametrize(
        ("variable", "text"),
        [
            ("SKEP_PORT", "many"),
            ("SKEP_PORT", "65536"),
            ("SKEP_PORT", "-1"),
            ("SKEP_WORKERS", "1.5"),
            ("SKEP_CONNECTIONS", "0"),
            ("SKEP_CONCURRENCY", "renos"),
            ("SKEP_SHUTDOWN_GRACE_S", "nan"),
            ("SKEP_STATEMENT_TIMEOUT_S", "inf"),
            ("SKEP_DATABASE_URL", "mysql://db"),
            ("SKEP_LOG_LEVEL", "loud"),
        ],
    )
    def test_a_wrong_value_is_refused_by_name_with_what_is_accepted(self, variable, text):
        name = VARIABLES[variable]

        with pytest.raises(InvalidSettings) as refusal:
            load(**{variable: text})

        assert f"{name} (environment {variable}) must be" in refusal.value.message
        assert accepted_values(name) in refusal.value.message

    def test_a_refused_url_does_not_show_its_password(self):
        with pytest.raises(InvalidSettings) as refusal:
            load(SKEP_DATABASE_URL="mysql://me:hidden@db")

        assert "hidden" not in refusal.value.message

    def test_the_first_poll_may_not_be_later_than_the_last(self):
        with pytest.raises(InvalidSettings, match="poll_interval_ms_max"):
            load(SKEP_POLL_INTERVAL_MS="50", SKEP_POLL_INTERVAL_MS_MAX="20")


class TestSchema:
    def test_it_is_part_of_the_address_of_an_installation(self):
        settings = load(SKEP_DATABASE_SCHEMA="billing").settings

        assert settings.installation("postgresql://h/d") == "postgresql://h/d?schema=billing"
        assert Settings().installation("postgresql://h/d") == "postgresql://h/d"

    @pytest.mark.parametrize("name", ["public", "pg_x", "Billing", "a-b", "select", "x" * 41])
    def test_a_name_that_will_not_do_is_refused(self, name):
        with pytest.raises(InvalidSettings, match="database_schema: the schema"):
            load(SKEP_DATABASE_SCHEMA=name)

    def test_the_url_may_name_it_but_not_another_one(self):
        url = "postgresql://h/d?schema=billing"

        assert load(SKEP_DATABASE_URL=url).settings.installation(url) == url
        with pytest.raises(InvalidSettings, match="the URL says schema billing"):
            load(SKEP_DATABASE_URL=url, SKEP_DATABASE_SCHEMA="shipping")


class TestQueenVariables:
    @pytest.mark.parametrize(
        ("variable", "text", "value"),
        [
            ("HOST", "0.0.0.0", "0.0.0.0"),
            ("PORT", "7000", 7000),
            ("NUM_WORKERS", "10", 10),
            ("DB_STATEMENT_TIMEOUT", "1500", 1.5),
            ("QUEEN_CONCURRENCY_MODE", "static", "static"),
            ("DEFAULT_TIMEOUT", "5000", 5000),
            ("DEFAULT_BATCH_SIZE", "9", 9),
            ("DEFAULT_SUBSCRIPTION_MODE", "new-only", "new"),
            ("POP_WAIT_INITIAL_INTERVAL_MS", "50", 50),
            ("POP_WAIT_MAX_INTERVAL_MS", "500", 500),
            ("RETENTION_INTERVAL", "60000", 60.0),
            ("RETENTION_BATCH_SIZE", "500", 500),
            ("EVICTION_INTERVAL", "1500", 1.5),
            ("EVICTION_BATCH_SIZE", "250", 250),
            ("PARTITION_CLEANUP_DAYS", "7", 7),
            ("METRICS_RETENTION_DAYS", "30", 30),
            ("LOG_LEVEL", "WARN", "warning"),
            ("LOG_FORMAT", "json", "json"),
            ("POLL_DB_INTERVAL", "40", 40),
            ("QUEUE_MAX_POLL_INTERVAL", "2000", 2000),
            ("SIDECAR_POP_WAIT_INITIAL_MS", "70", 70),
            ("SIDECAR_POP_WAIT_MAX_MS", "5000", 5000),
            ("POP_WAIT_BASE_INTERVAL_MS", "60", 60),
            ("SIDECAR_MICRO_BATCH_WAIT_MS", "5", 5.0),
            ("QUEEN_PUSH_MAX_HOLD_MS", "8", 8.0),
            ("MAX_BODY_SIZE", "1048576", 1 << 20),
        ],
    )
    def test_a_variable_of_queen_sets_what_it_means_here(self, variable, text, value):
        field, _ = SINGLE_VARIABLES[variable]

        assert getattr(load(**{variable: text}).settings, field) == value

    def test_those_without_an_equivalent_are_named_in_one_warning(self):
        effective = load(
            WORKER_ID="cpp-worker-1",
            QUEEN_VEGAS_ALPHA="3",
            FILE_BUFFER_FLUSH_MS="100",
            QUEEN_POP_MAX_HOLD_MS="5",
            DEFAULT_LEASE_TIME="60",
            CORS_ALLOWED_ORIGINS="*",
        )

        assert effective.settings == Settings()
        (warning,) = effective.warnings
        assert warning == (
            "variables of Queen without an equivalent here are ignored: CORS_ALLOWED_ORIGINS, "
            "DEFAULT_LEASE_TIME, FILE_BUFFER_FLUSH_MS, QUEEN_POP_MAX_HOLD_MS, QUEEN_VEGAS_ALPHA, "
            "WORKER_ID"
        )

    def test_a_variable_that_is_not_queens_is_not_named(self):
        assert load(QUEEN_SERVICE_HOST="10.0.0.1", DB_NAME="x", PATH="/bin").warnings == ()

    def test_every_variable_of_the_wire_reference_is_understood_or_named(self):
        for name in QUEEN_0_15.split():
            assert is_understood(name) or is_ignored(name), name

    @pytest.mark.parametrize(
        ("variables", "connections"),
        [
            ({"SIDECAR_POOL_SIZE": "50", "NUM_WORKERS": "10"}, 5),
            ({"SIDECAR_POOL_SIZE": "8", "DB_POOL_SIZE": "150"}, 8),
        ],
    )
    def test_the_pool_of_the_engine_is_the_one_that_carries_messages(self, variables, connections):
        assert load(**variables).settings.connections == connections

    def test_peers_by_http_and_by_udp_are_merged(self):
        settings = load(
            QUEEN_PEERS="http://b:6632, http://c:6632",
            QUEEN_UDP_PEERS="b:7000,c,http://d:7002/",
            QUEEN_UDP_NOTIFY_PORT="7001",
        ).settings

        assert peer_addresses(settings) == PeerAddresses(
            datagrams=(("b", 7000), ("c", 7001), ("d", 7002)),
            urls=("http://b:6632", "http://c:6632"),
        )

    def test_a_first_interval_beyond_the_default_maximum_raises_that(self):
        settings = load(POLL_DB_INTERVAL="2500").settings

        assert (settings.poll_interval_ms, settings.poll_interval_ms_max) == (2500, 2500)

    def test_the_newest_name_of_a_setting_wins(self):
        names = {"POP_WAIT_INITIAL_INTERVAL_MS": "30", "SIDECAR_POP_WAIT_INITIAL_MS": "20"}

        assert load(POLL_DB_INTERVAL="10", **names).settings.poll_interval_ms == 30

    def test_one_database_variable_is_enough_and_queen_has_defaults_for_the_rest(self):
        settings = load(PG_DB="queue").settings

        assert settings.database_url == "postgresql://postgres:postgres@localhost:5432/queue"

    def test_special_characters_of_a_password_do_not_break_the_url(self):
        settings = load(PG_HOST="db", PG_PASSWORD="a@b/c:d").settings

        assert settings.database_url == ("postgresql://postgres:a%40b%2Fc%3Ad@db:5432/postgres")

    @pytest.mark.parametrize(
        ("host", "address"),
        [
            ("::1", "@[::1]:5432/postgres"),
            ("/run/pg", "@/postgres?host=%2Frun%2Fpg&port=5432"),
        ],
    )
    def test_a_host_may_be_an_ipv6_address_or_a_socket_directory(self, host, address):
        assert load(PG_HOST=host).settings.database_url.endswith(address)

    @pytest.mark.parametrize(
        ("variables", "query"),
        [
            ({"PG_USE_SSL": "true"}, "?sslmode=require"),
            ({"PG_USE_SSL": "1"}, ""),
            ({"PG_USE_SSL": "true", "PG_SSL_REJECT_UNAUTHORIZED": "false"}, "?sslmode=prefer"),
        ],
    )
    def test_only_the_literal_true_asks_for_encryption(self, variables, query):
        url = load(PG_HOST="db", **variables).settings.database_url

        assert url.endswith(f"/postgres{query}")

    @pytest.mark.parametrize(
        ("pool", "workers", "connections"), [("50", "10", 5), ("2", "4", 1), ("9999", "1", 64)]
    )
    def test_the_pool_of_the_server_is_shared_out_to_its_workers(self, pool, workers, connections):
        assert load(DB_POOL_SIZE=pool, NUM_WORKERS=workers).settings.connections == connections

    def test_a_url_of_our_own_wins_over_the_database_variables(self):
        settings = load(PG_HOST="db", SKEP_DATABASE_URL="postgresql://other").settings

        assert settings.database_url == "postgresql://other"


class TestSecrets:
    @given(st.text("abcABC012:@/?#%&=+ ", min_size=1).map(lambda text: f"<{text}>"))
    def test_no_password_in_a_url_is_ever_shown(self, password):
        assert password not in redacted_url(f"postgresql://me:{password}@db:5432/skep?a=b")

    def test_a_password_in_the_query_is_not_shown_either(self):
        url = "postgresql://db/skep?password=hidden&sslmode=require"

        assert redacted_url(url) == "postgresql://db/skep?password=***&sslmode=require"

    @pytest.mark.parametrize(
        "url", ["postgresql://db/skep", "postgresql://me@db:5432/skep", "postgresql://"]
    )
    def test_a_url_without_a_password_stays_as_it_is(self, url):
        assert redacted_url(url) == url

    def test_the_settings_print_without_the_password(self):
        settings = Settings(database_url="postgresql://me:hidden@db/skep")

        assert "hidden" not in repr(settings)
        assert "hidden" not in str(settings)
        assert "hidden" not in str(settings.printable())
        assert "postgresql://me:***@db/skep" in repr(settings)


def test_settings_travel_to_a_worker_process_unchanged():
    settings = Settings(database_url="postgresql://me:secret@db/skep", workers=3)

    assert pickle.loads(pickle.dumps(settings)) == settings


def test_settings_cannot_be_changed():
    with pytest.raises(AttributeError):
        Settings().port = 1


def test_as_many_workers_serve_as_fit_this_machine_unless_others_are_asked_for():
    assert Settings().worker_count == automatic_worker_count()
    shared_out = load(DB_POOL_SIZE="12").settings.connections
    assert shared_out == 12 // automatic_worker_count()


@pytest.mark.parametrize(("asked", "count"), [(0, automatic_worker_count()), (3, 3)])
def test_zero_workers_means_as_many_as_fit_this_machine(asked, count):
    assert Settings(workers=asked).worker_count == count


@pytest.mark.parametrize(("cores", "count"), [(1, 1), (2, 1), (3, 1), (4, 2), (8, 4), (128, 4)])
def test_half_of_the_cores_are_left_to_postgresql(monkeypatch, cores, count):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))

    assert automatic_worker_count() == count


def test_the_data_directory_of_root_is_one_that_other_accounts_reach(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)

    assert str(default_data_dir()) == "/var/lib/skep"


def test_the_data_directory_of_a_user_follows_the_desktop_standard(monkeypatch, tmp_path):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    assert default_data_dir() == tmp_path / "skep"


def test_every_field_says_which_values_it_takes():
    assert all(accepted_values(name) for name in FIELDS)


class TestPresets:
    @pytest.mark.parametrize("name", PRESETS)
    def test_a_preset_gives_settings_that_are_accepted(self, name):
        effective = load(SKEP_PRESET=name)

        values = msgspec.structs.asdict(effective.settings)
        assert {field: values[field] for field in PRESETS[name]} == PRESETS[name]
        assert {effective.origins[field] for field in PRESETS[name]} <= {f"preset {name}"}

    def test_without_one_the_defaults_hold(self):
        assert load().settings == load(SKEP_PRESET="balanced").settings == Settings()

    def test_whatever_is_set_by_hand_wins_over_a_preset(self, write_file):
        effective = load(file=write_file('preset = "latency"\npush_hold_ms = 7'))

        assert effective.settings.push_hold_ms == 7
        assert effective.settings.poll_interval_ms == PRESETS["latency"]["poll_interval_ms"]

    def test_a_flag_chooses_another_preset_than_the_file(self, write_file):
        effective = load(file=write_file('preset = "latency"'), flags={"preset": "throughput"})

        assert effective.settings.connections == PRESETS["throughput"]["connections"]
        assert effective.settings.push_hold_ms == PRESETS["throughput"]["push_hold_ms"]

    def test_an_unknown_preset_is_refused_with_those_there_are(self):
        with pytest.raises(InvalidSettings, match=r"preset .* one of `balanced`"):
            load(SKEP_PRESET="fast")


class TestWithoutEffect:
    @pytest.mark.parametrize(
        ("variables", "name"),
        [
            ({"SKEP_DATA_DIR": "/d", "SKEP_DATABASE_URL": "postgresql://db"}, "data_dir"),
            ({"SKEP_POSTGRES_BIN": "/p", "PG_HOST": "db"}, "postgres_bin"),
            ({"QUEEN_UDP_NOTIFY_PORT": "7"}, "peer_port"),
        ],
    )
    def test_a_setting_that_another_makes_meaningless_is_named(self, variables, name):
        (warning,) = load(**variables).warnings

        assert warning.startswith(f"{name} (environment ")
        assert "has no effect" in warning

    def test_settings_that_fit_together_are_no_reason_to_warn(self):
        assert load(SKEP_DATA_DIR="/d", SKEP_PEERS="a:1", SKEP_PEER_PORT="7").warnings == ()


class TestPeers:
    def test_the_form_of_an_address_says_how_a_peer_is_told(self):
        settings = load(SKEP_PEERS=" a:1, udp://b:2,http://c:3,https://d,[::1]:4,a:1,, ").settings

        assert peer_addresses(settings) == PeerAddresses(
            datagrams=(("a", 1), ("b", 2), ("::1", 4)), urls=("http://c:3", "https://d")
        )

    @pytest.mark.parametrize(
        "peers", ["a", "a:0", "a:x", ":1", "a:1/path", "ftp://a:1", "http://", "http://a/path?x=1"]
    )
    def test_an_address_that_is_none_is_refused_by_name(self, peers):
        with pytest.raises(InvalidSettings, match="peers: "):
            load(SKEP_PEERS=peers)

    def test_queens_variables_name_the_peers(self):
        settings = load(
            QUEEN_UDP_PEERS="a:6633", QUEEN_UDP_NOTIFY_PORT="7", QUEEN_SYNC_SECRET="s"
        ).settings

        assert (settings.peers, settings.peer_port, settings.peer_secret) == ("a:6633", 7, "s")

    def test_queens_switch_turns_peers_off(self):
        settings = load(
            QUEEN_UDP_PEERS="a:6633", QUEEN_SYNC_SECRET="s", QUEEN_SYNC_ENABLED="false"
        ).settings

        assert (settings.peers, settings.peer_secret) == (None, None)

    def test_the_secret_is_never_shown(self):
        settings = load(SKEP_PEER_SECRET="hush-hush").settings

        assert "hush" not in f"{settings!r}{settings.printable()}"
