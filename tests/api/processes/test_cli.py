"""The command line as a person sees it: real processes, their output and their exit codes."""

import json
import os
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from skep.app.processes.assignment import bind_listener

UNREACHABLE = "postgresql://me:hidden@127.0.0.1:1/skep"


@pytest.fixture
def skep(tmp_path):
    """Run a command in an empty directory, with nothing of ours in the environment."""

    def run(*arguments, program=("-m", "skep"), **variables):
        foreign = {name: v for name, v in os.environ.items() if not name.startswith(("SKEP", "PG"))}
        return subprocess.run(
            [sys.executable, *program, *map(str, arguments)],
            cwd=tmp_path,
            env=foreign | variables,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def assert_refused(result, *, exit_code, saying):
    assert result.returncode == exit_code
    assert saying in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_version_is_printed(skep):
    assert skep("--version").stdout == "skep 0.1.0\n"


def test_the_help_names_every_command(skep):
    shown = skep("--help").stdout

    assert all(
        command in shown for command in ("serve", "migrate", "config", "openapi", "--version")
    )


@pytest.mark.parametrize("arguments", [["nonsense"], ["serve", "--prot", "1"]])
def test_a_command_that_was_mistyped_is_the_callers_error(skep, arguments):
    assert skep(*arguments).returncode == 1


class TestConfig:
    def test_each_value_is_shown_with_its_origin(self, skep):
        shown = json.loads(skep("config", "-o", "json", SKEP_PORT="7000").stdout)

        assert shown["port"] == {"value": 7000, "origin": "environment SKEP_PORT"}
        assert shown["host"]["origin"] == "default"

    @pytest.mark.parametrize("form", [[], ["-o", "json"]])
    def test_a_password_is_not_shown(self, skep, form):
        shown = skep("config", *form, SKEP_DATABASE_URL=UNREACHABLE).stdout

        assert "hidden" not in shown
        assert "me:***@127.0.0.1" in shown

    def test_an_unknown_variable_is_warned_about(self, skep):
        result = skep("config", SKEP_PROT="1")

        assert result.returncode == 0
        assert "skep: warning: unknown variable SKEP_PROT" in result.stderr

    def test_a_wrong_value_is_the_callers_error(self, skep):
        result = skep("config", SKEP_PORT="many")

        assert_refused(result, exit_code=1, saying="port (environment SKEP_PORT) must be")

    def test_a_missing_file_is_the_callers_error(self, skep):
        result = skep("config", "--config", "absent.toml")

        assert_refused(result, exit_code=1, saying="cannot read the settings file absent.toml")


class TestMigrate:
    def test_an_empty_database_is_behind_until_it_is_migrated(self, skep, empty_database_url):
        before = skep("migrate", "--check", SKEP_DATABASE_URL=empty_database_url)
        migrated = skep("migrate", SKEP_DATABASE_URL=empty_database_url)
        after = skep("migrate", "--check", SKEP_DATABASE_URL=empty_database_url)

        assert (before.returncode, migrated.returncode, after.returncode) == (3, 0, 0)
        assert "the schema is behind" in before.stdout
        assert "the schema is current" in migrated.stdout

    def test_migrating_twice_does_nothing(self, skep, database_url):
        assert skep("migrate", SKEP_DATABASE_URL=database_url).stdout == "nothing to do\n"

    async def test_a_schema_of_a_newer_skep_is_recognised(self, skep, connect, database_url):
        await pretend_to_be_newer(await connect())

        checked = skep("migrate", "--check", SKEP_DATABASE_URL=database_url)
        migrated = skep("migrate", SKEP_DATABASE_URL=database_url)

        assert checked.returncode == 4
        assert migrated.returncode == 1

    def test_the_sql_is_printed_without_a_database(self, skep):
        script = skep("migrate", "--sql", SKEP_DATABASE_URL=UNREACHABLE).stdout

        assert "create table skep.partition" in script
        assert "create function skep.push_segments" in script

    def test_a_database_that_cannot_be_reached_is_the_servers_error(self, skep):
        result = skep("migrate", "--database-url", UNREACHABLE)

        assert_refused(result, exit_code=2, saying="cannot connect to PostgreSQL")
        assert "hidden" not in result.stderr


@pytest.mark.parametrize("command", ["serve", "openapi"])
def test_a_bare_installation_is_told_what_to_install(skep, command):
    bare = "import sys; sys.modules['uvicorn'] = None; from skep.cli import main; sys.exit(main())"

    result = skep(command, program=("-c", bare))

    assert_refused(result, exit_code=1, saying='pip install "skep[server]"')


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("adbc_driver_manager", ("pipeline", "run", "x.yaml")),
        ("pyiceberg", ("archive", "files")),
        ("sqlalchemy", ("analytics", "status")),
    ],
)
def test_an_installation_without_spark_is_told_what_to_install(skep, module, command):
    bare = f"import sys; sys.modules['{module}'] = None; import skep.cli; sys.exit(skep.cli.main())"

    result = skep(*command, "--database-url", UNREACHABLE, program=("-c", bare))

    assert_refused(result, exit_code=1, saying='pip install "skep[spark]"')


class TestOpenapi:
    def test_the_document_is_printed_without_a_database(self, skep):
        document = json.loads(skep("openapi", SKEP_DATABASE_URL=UNREACHABLE).stdout)

        assert document["openapi"].startswith("3.1")
        assert "/api/v1/push" in document["paths"]


class TestServe:
    def test_a_taken_port_is_noticed_before_anything_is_started(self, skep, tmp_path):
        with bind_listener("127.0.0.1", 0) as taken:
            port = taken.getsockname()[1]

            result = skep("serve", "--port", port, "--data-dir", tmp_path / "data")

        assert_refused(result, exit_code=1, saying=f"port {port} on 127.0.0.1 is in use")
        assert not (tmp_path / "data").exists()

    def test_a_start_without_a_database_and_without_a_spill_says_so_in_a_line(self, skep):
        flags = ("--port", 0, "--database-url", UNREACHABLE)
        result = skep("serve", *flags, SKEP_SPILL_BYTES_MAX="0")

        assert_refused(result, exit_code=2, saying="cannot connect to PostgreSQL")

    def test_the_first_start_on_a_database_that_cannot_be_reached_says_why(self, skep, tmp_path):
        flags = ("--port", 0, "--database-url", UNREACHABLE)
        result = skep("serve", *flags, SKEP_SPILL_DIR=str(tmp_path))

        assert_refused(result, exit_code=2, saying="cannot connect to PostgreSQL")
        assert list(tmp_path.iterdir()) == []

    def test_a_database_that_is_away_is_not_waited_for_where_that_is_said(self, skep):
        flags = ("--port", 0, "--database-url", UNREACHABLE)
        result = skep("serve", *flags, SKEP_START_WITHOUT_DATABASE="never")

        assert_refused(result, exit_code=2, saying="cannot connect to PostgreSQL")

    @pytest.mark.parametrize(
        ("part", "mistyped", "saying"),
        [
            # Not a name at all: every resolver says the same of it, also where there is none.
            ("hostname", "no..host", "cannot resolve the database host: no..host"),
            ("password", "mistyped", 'password authentication failed for user "'),
            ("username", "nobody", 'authentication failed for user "nobody"'),
            ("path", "nothing", 'database "nothing" does not exist'),
        ],
    )
    def test_a_mistyped_database_is_told_at_once_and_not_waited_for(
        self, skep, database_url, part, mistyped, saying
    ):
        address = urlsplit(database_url)
        named = {
            "username": address.username,
            "password": address.password,
            "hostname": address.hostname,
            "path": address.path.lstrip("/"),
            part: mistyped,
        }
        url = "postgresql://{username}:{password}@{hostname}:{port}/{path}".format(
            **named, port=address.port
        )

        result = skep("serve", "--port", 0, SKEP_DATABASE_URL=url)

        assert_refused(result, exit_code=1, saying=saying)
        assert "mistyped" not in result.stderr, "passwords are not told"

    def test_somebody_elses_database_is_not_migrated_unasked(self, skep, empty_database_url):
        result = skep("serve", "--port", 0, SKEP_DATABASE_URL=empty_database_url)

        assert_refused(result, exit_code=1, saying="run `skep migrate`")
        assert skep("migrate", "--check", SKEP_DATABASE_URL=empty_database_url).returncode == 3

    async def test_a_schema_of_a_newer_skep_is_refused(self, skep, connect, database_url):
        await pretend_to_be_newer(await connect())

        result = skep("serve", "--port", 0, SKEP_DATABASE_URL=database_url)

        assert_refused(result, exit_code=1, saying="newer than this version")

    def test_a_data_directory_in_use_is_refused(self, skep, durable_postgres, postgres_dir):
        server = durable_postgres("taken", fsync="off")
        server.start()

        result = skep("serve", "--port", 0, "--data-dir", postgres_dir / "taken")

        assert_refused(result, exit_code=1, saying="another process")


async def pretend_to_be_newer(connection):
    await connection.execute(
        "insert into skep.migration (number, name, checksum) values (9999, '9999_later', '')"
    )
