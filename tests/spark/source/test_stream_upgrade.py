"""`pg_upgrade` gives the server another identifier, and keeps what positions mean."""

from subprocess import DEVNULL, PIPE

import asyncpg
import pytest
from typer.testing import CliRunner

from skep.cli.commands import app
from skep.db.embedded.programs import Programs, choose_account, find_binaries
from skep.db.schema.migrate import migrate
from skep.spark.runtime.postgres import forget_connections
from skep.spark.source.positions import InvalidPosition
from tests.spark.support.logs import Writer
from tests.spark.support.queries import Query
from tests.support.ports import free_port
from tests.support.postgres import chosen_binaries

TRUST = "local all all trust\nhost all all 127.0.0.1/32 trust\n"


def upgraded(programs, home):
    """Upgrade the cluster of an embedded server in place, to one that initdb makes anew."""
    old, new = home / "data", home / "upgraded"
    access = (old / "pg_hba.conf").read_text()
    (old / "pg_hba.conf").write_text(TRUST)
    programs.account.own(home)  # the programs write their reports beside the data
    programs.run("initdb", f"--pgdata={new}", "--username=skep", "--encoding=UTF8", "--locale=C")
    (new / "pg_hba.conf").write_text(TRUST)
    options = (
        *("--username=skep", f"--old-datadir={old}", f"--new-datadir={new}"),
        *(f"--old-bindir={programs.directory}", f"--new-bindir={programs.directory}"),
        *(f"--old-port={free_port()}", f"--new-port={free_port()}", f"--socketdir={home}"),
    )
    # It writes into the directory it is called in.
    command = f"cd {home} && exec {programs.directory}/pg_upgrade {' '.join(options)}"
    process = programs.spawn(["sh", "-c", command], stdin=DEVNULL, stdout=PIPE)
    printed, _ = process.communicate()
    assert process.returncode == 0, printed.decode()
    (new / "pg_hba.conf").write_text(access)
    old.rename(home / "old")
    new.rename(old)


@pytest.fixture
def adopt():
    def adopt(url):
        ended = CliRunner().invoke(app, ["adopt", "--database-url", url, "--yes"])
        assert ended.exit_code == 0, ended.output
        return ended.stdout

    yield adopt
    forget_connections()


@pytest.mark.slow
def test_a_stream_goes_on_after_pg_upgrade_once_the_log_is_adopted(
    durable_postgres, postgres_dir, arun, adopt
):
    server = durable_postgres()
    server.start()
    arun(migrate(server.dsn))
    writer = Writer(arun(asyncpg.connect(server.dsn)), arun)
    writer.push(1)
    stream = Query(server.dsn)
    assert stream.drain() == [1]
    writer.push(2)
    assert "Nothing to do" in adopt(server.dsn)
    writer.close()
    server.stop()

    upgraded(Programs(find_binaries(chosen_binaries()), choose_account()), postgres_dir / "pg")
    server.start()

    stream.restart(url=server.dsn)
    with pytest.raises(InvalidPosition, match="After pg_upgrade run `skep adopt`"):
        stream.step()
    assert "checkpoints and the archive go on" in adopt(server.dsn)
    assert stream.drain() == [2]
    writer = Writer(arun(asyncpg.connect(server.dsn)), arun)
    writer.push(3)
    assert stream.drain() == [3]
    assert "Nothing to do" in adopt(server.dsn)
    writer.close()
