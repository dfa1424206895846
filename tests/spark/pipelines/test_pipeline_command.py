"""`skep pipeline` as a person uses it."""

import json
import warnings

import pytest
from typer.testing import CliRunner

from skep.cli.commands import app
from skep.model.errors import Refused
from skep.spark.pipelines.pipeline import InvalidPipeline
from skep.spark.pipelines.registry import Progress, Registry
from skep.spark.runtime.postgres import forget_connections
from tests.spark.support.pipelines import CLOSING_MS, COUNTS, messages_of


@pytest.fixture
def skep(database_url):
    """Run a command; return what it printed, or raise what it raised."""

    def skep(*arguments, url=database_url):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Spark's own, when a session is asked for again
            ended = CliRunner(env={"COLUMNS": "200"}).invoke(
                app, ["pipeline", *arguments, "--database-url", url]
            )
        if ended.exception is not None and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        assert ended.exit_code == 0, ended.output
        return ended.stdout

    yield skep
    forget_connections()


@pytest.fixture
def running(database_url):
    """A pipeline that somebody runs, as far as the record tells."""
    registry = Registry(database_url)
    registry.lock("counts")
    registry.begin(
        "counts", definition=b"{}", digest="h", checkpoint="/c", master="local", is_reset=False
    )
    yield registry
    registry.close()


@pytest.mark.slow
def test_a_pipeline_is_run_and_recorded(spark, skep, writer, tmp_path):
    writer.push({"at": 1_000, "n": 3}, {"at": CLOSING_MS, "n": 0})
    path = tmp_path / "counts.yaml"
    path.write_text(COUNTS)

    said = skep("run", str(path), "--data-dir", str(tmp_path), "--master", "local[2,2]")

    assert "counts: read 2 messages" in said
    assert [data["total"] for _, data in messages_of(writer, "counts")] == [3]
    assert (tmp_path / "pipelines" / "counts" / "queue" / "commits").is_dir()
    state = "select state || ' ' || lag_messages || ' ' || checkpoint from skep.pipeline"
    assert writer.value(state).startswith(f"stopped 0 {tmp_path}")


def test_a_stop_is_heard_by_whoever_runs_it(running, writer):
    assert running.report("running", Progress(messages=5, rate=2.0))

    writer.execute("select * from skep.stop_pipeline('counts')")

    assert not running.report("running", Progress())


def test_a_run_hears_when_another_took_its_place(running, database_url, writer):
    writer.execute("update skep.pipeline set run_id = gen_random_uuid()")

    assert not running.report("running", Progress())


def test_a_run_that_lost_its_connection_gets_its_lock_again(running, database_url, writer):
    writer.execute(
        "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' "
        "and pid <> pg_backend_pid() and database = "
        "(select oid from pg_database where datname = current_database())"
    )

    assert running.report("running", Progress())
    assert running.report("running", Progress(position={"queue": [{"a": 1}]}))
    position = writer.value("select position::text from skep.pipeline")
    assert json.loads(position) == {"queue": [{"a": 1}]}
    other = Registry(database_url)
    with pytest.raises(Refused, match="is already running by"):
        other.lock("counts")
    other.close()


def test_a_file_that_is_missing_is_told_in_one_line(skep, tmp_path):
    with pytest.raises(InvalidPipeline, match="cannot read"):
        skep("run", str(tmp_path / "missing.yaml"))
