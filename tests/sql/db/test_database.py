import os
import signal
import subprocess
import sys
from multiprocessing.connection import wait
from pathlib import Path

import asyncpg
import pytest

from skep.app.processes.database import (
    SchemaNotCurrent,
    join_database,
    open_database,
    prepare_schema,
    running_embedded,
)
from skep.db.access.sessions import WrongDatabase
from skep.db.schema.migrate import schema_state
from skep.model.errors import Unavailable
from skep.settings import Settings
from skep.spill.directory import spill_directory


def prepare(settings, dsn):
    prepare_schema(settings, dsn, on_step=lambda _: None)


@pytest.mark.parametrize("policy", ["auto", "never"])
def test_a_database_of_somebody_else_is_only_checked(empty_database_url, policy):
    settings = Settings(database_url=empty_database_url, migrate=policy)

    with pytest.raises(SchemaNotCurrent, match="skep migrate"):
        prepare(settings, empty_database_url)


def test_a_database_of_somebody_else_is_migrated_on_request(empty_database_url, arun):
    prepare(Settings(database_url=empty_database_url, migrate="always"), empty_database_url)

    assert arun(schema_state(empty_database_url)).verdict == "current"


def test_the_embedded_database_is_migrated_by_itself(empty_database_url, arun):
    prepare(Settings(migrate="auto"), empty_database_url)

    assert arun(schema_state(empty_database_url)).verdict == "current"


def test_a_current_schema_is_good_whatever_the_policy(database_url):
    for policy in ("auto", "always", "never"):
        prepare(Settings(database_url=database_url, migrate=policy), database_url)


def test_a_url_is_used_as_it_is():
    with open_database(Settings(database_url="postgresql://db/skep")) as database:
        assert database.dsn == "postgresql://db/skep"
        assert database.companions == ()


@pytest.mark.parametrize("host", ["127.0.0.1:1", "no..host"])
def test_only_a_database_that_was_served_here_before_is_taken_for_away(tmp_path, host):
    url = f"postgresql://me@{host}/skep"
    settings = Settings(database_url=url, spill_dir=tmp_path)

    with pytest.raises((WrongDatabase, Unavailable), match=r"cannot (connect|resolve)"):
        prepare(settings, url)

    spill_directory(settings).mkdir()
    prepare(settings, url)  # the workers wait for it


def test_a_refused_login_is_wrong_also_where_the_database_was_served_before(database_url, tmp_path):
    url = database_url.replace("@", "mistyped@")
    settings = Settings(database_url=url, spill_dir=tmp_path)
    spill_directory(settings).mkdir()

    with pytest.raises(WrongDatabase, match="authentication failed"):
        prepare(settings, url)


@pytest.mark.slow
def test_a_command_uses_the_embedded_server_that_a_broker_runs(postgres_dir, arun):
    settings = Settings(data_dir=postgres_dir / "shared")
    assert running_embedded(settings) is None

    with open_database(settings) as owned:
        with join_database(settings) as joined:
            assert joined.dsn == owned.dsn == running_embedded(settings)
            assert joined.companions == ()
        assert arun(fetch(owned.dsn, "select 7")) == 7

    with join_database(settings) as alone:
        assert arun(fetch(alone.dsn, "select 8")) == 8
    assert running_embedded(settings) is None


@pytest.mark.slow
def test_people_reach_the_embedded_database_of_a_broker(postgres_dir):
    settings = Settings(data_dir=postgres_dir / "reached", database_schema="bees")
    place = ("--data-dir", str(settings.data_dir), "--database-schema", "bees")

    def skep(*command):
        return subprocess.run(
            [sys.executable, "-m", "skep", *command], capture_output=True, text=True, check=False
        )

    with open_database(settings) as database:
        assert skep("dsn", *place).stdout.strip() == database.dsn.removesuffix("?schema=bees")
        shown = skep("psql", *place, "--", "-Atc", "show search_path; show max_connections")
        assert shown.stdout.split() == ["bees,public", "100"], shown.stderr

    stopped = skep("psql", *place)
    assert (stopped.returncode, "start it with `skep serve`" in stopped.stderr) == (2, True)


@pytest.mark.slow
def test_an_embedded_server_that_was_killed_comes_back_where_it_was(postgres_dir, arun):
    with open_database(Settings(data_dir=postgres_dir / "data")) as database:
        [server] = database.companions
        arun(execute(database.dsn, "create table kept (n int); insert into kept values (7)"))

        assert not wait([server.fileno()], timeout=0)
        os.kill(arun(postmaster_pid(database.dsn)), signal.SIGKILL)
        assert wait([server.fileno()], timeout=60)
        server.revive()

        assert arun(fetch(database.dsn, "select n from kept")) == 7
        assert not wait([server.fileno()], timeout=0)


async def execute(dsn, command):
    connection = await asyncpg.connect(dsn)
    await connection.execute(command)
    await connection.close()


async def fetch(dsn, query):
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def postmaster_pid(dsn):
    data = await fetch(dsn, "show data_directory")
    return int(Path(data, "postmaster.pid").read_text().split()[0])
