"""Behind a pooler the sessions of a broker are not its own, and it says so instead of starting.

Runs where pgbouncer is installed.
"""

import os
import pwd
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from skep.db.access.sessions import PoolerInBetween
from skep.db.access.slots import HOT_PATH, Slots
from tests.sql.support.waiting import eventually
from tests.support.ports import free_port

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
IGNORED = "extra_float_digits"
EVERYTHING = ",".join(
    [
        IGNORED,
        "skep.session",
        "statement_timeout",
        "lock_timeout",
        "idle_in_transaction_session_timeout",
        *HOT_PATH,
    ]
)

pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed")


@pytest.fixture
def pooled(postgres_dir, database_url):
    """Start pgbouncer before the test's database; the URL leads through it."""

    @contextmanager
    def pooled(*, mode, ignored):
        direct, port = urlsplit(database_url), free_port()
        config = Path(postgres_dir) / "pgbouncer.ini"
        config.write_text(
            "[databases]\n"
            f"* = host={direct.hostname} port={direct.port} "
            f"user={direct.username} password={direct.password}\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = any\npool_mode = {mode}\nignore_startup_parameters = {ignored}\n"
        )
        command = [PGBOUNCER, "--quiet", str(config)]
        if os.geteuid() == 0:
            command += ["-u", pwd.getpwnam("nobody").pw_name]
        url = f"postgresql://{direct.username}@127.0.0.1:{port}{direct.path}"
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                yield url
            finally:
                process.kill()

    return pooled


async def is_serving(url):
    try:
        connection = await asyncpg.connect(url, statement_cache_size=0)
    except OSError:
        return False
    await connection.close()
    return True


@pytest.mark.parametrize("mode", ["transaction", "statement", "session"])
@pytest.mark.parametrize("ignored", [IGNORED, EVERYTHING], ids=["by default", "ignoring all"])
async def test_scenario_30_a_broker_behind_a_pooler_is_refused_with_the_reason(
    pooled, mode, ignored
):
    with pooled(mode=mode, ignored=ignored) as url:
        await eventually(lambda: is_serving(url))
        slots = Slots(url, size=2, server_settings=HOT_PATH, statement_timeout_s=5)
        with pytest.raises(PoolerInBetween, match="pgbouncer"):
            await slots.open()


async def test_scenario_30_skep_serve_behind_a_pooler_says_what_to_do_and_starts_nothing(pooled):
    with pooled(mode="transaction", ignored=EVERYTHING) as url:
        await eventually(lambda: is_serving(url))
        command = [sys.executable, "-m", "skep", "serve", "--port", "0", "--database-url", url]
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)

    assert ended.returncode == 1
    assert "give it the address of PostgreSQL" in ended.stderr
    assert "Traceback" not in ended.stderr
